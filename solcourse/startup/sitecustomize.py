"""Python's own first step in a program started by `solcourse run`, and in the Python processes that it starts in turn.

Loads this very solcourse, wherever the program is and whatever is installed, and leaves the program's sys.path as it would be.
"""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    home = os.path.dirname(HERE)
    spec = importlib.util.spec_from_file_location("solcourse", os.path.join(home, "__init__.py"), submodule_search_locations=[home])
    assert spec and spec.loader
    module = sys.modules["solcourse"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from solcourse import scripts

    scripts.start()


def _next_of_this_name() -> None:
    """The machine's own sitecustomize, which this one stands before."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    ours = sys.modules.pop("sitecustomize")
    if importlib.util.find_spec("sitecustomize"):
        importlib.import_module("sitecustomize")
    else:
        sys.modules["sitecustomize"] = ours


if __name__ == "sitecustomize" and "SOLCOURSE_RUN" in os.environ:
    _start()
    _next_of_this_name()
