"""The map of the engine, its package's docstring, has every file."""

from __future__ import annotations

import re
from pathlib import Path

import solcourse.simt


def test_the_map_of_the_engine_names_every_file_and_no_other():
    folder = Path(solcourse.simt.__file__).parent
    table = solcourse.simt.__doc__.split("\n\n")[2]
    named = [name for line in table.splitlines() for name in re.findall(r"\w+", line[12:].split("   ")[0])]  # stage, files, what they do
    assert sorted(named) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
