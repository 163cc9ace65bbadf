"""Every constant of the model has a value, a unit and a provenance, and is used."""

from __future__ import annotations

from pathlib import Path

import pytest

import solcourse
from solcourse.constants import PROVENANCES, constant, constants

PACKAGE = Path(solcourse.__file__).parent


@pytest.mark.parametrize("name", constants())
def test_a_constant_says_where_it_is_from(name):
    c = constants()[name]
    assert c.value > 0
    assert c.provenance in PROVENANCES
    assert len(c.source) > 15


def test_every_constant_is_used():
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py"))
    unused = [n for n in constants() if f'"{n}"' not in code and not n.startswith("width_")]
    assert unused == []


def test_judgements_are_widths_of_intervals_only():
    judged = {name for name, c in constants().items() if c.provenance == "judgement"}
    assert judged == {name for name in constants() if name.startswith("width_")}


def test_an_unknown_constant_is_an_error():
    with pytest.raises(KeyError):
        constant("p_nrom")
