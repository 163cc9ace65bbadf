"""The programs here are run by tests/engine/test_programs.py; they are not modules to be imported for doctests."""

collect_ignore_glob = ["*.py"]
