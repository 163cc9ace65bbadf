# `make lab` opens the course, `make test` tests it. Both do all the set-up: Python 3.11+ and make are enough.
#   make lab ARGS="--no-browser --port 8890"      make unit ARGS="-k roofline"      make PYTHON=python3.12 test

VENV ?= .venv
ARGS ?=
# the first Python on the path that is new enough
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# by file: plain -n splits one notebook over two workers, and its cells fail without each other
SPREAD := -n 2 --dist loadfile
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout=120

# a simulator left switched on in the shell would replace numba.cuda in everything below
unexport NUMBA_ENABLE_CUDASIM
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help lab test lint stubs unit engine counts fuzz notebooks notebooks-solutions browser gpu bench clean

help:
	@echo "make lab        set up, then open JupyterLab at lesson 00"
	@echo "make test       set up, then every test (under ten minutes on two cores)"
	@echo "make unit | engine | counts | fuzz | notebooks | notebooks-solutions | browser | gpu | lint      parts of it"
	@echo "make stubs      write exercises/ again from solutions/"
	@echo "make bench      the benchmarks"
	@echo "make clean      remove what was built; the learner's work in exercises/mine stays"

# ---- set-up: one stamp for the course, one for its tests
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "solcourse needs Python 3.11 or newer, and found none on the path."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.lab: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	@touch $@ $(VENV)/.lab

# ---- the course
lab: $(VENV)/.lab
	$(BIN)/python -m solcourse lab $(ARGS)

stubs: $(VENV)/.lab
	$(BIN)/python -m solcourse.stubs

# ---- the tests. Notebooks run twice: with the stubs as a learner finds them, and with the solutions.
test: lint
	$(PYTEST) tests solcourse notebooks $(NBVAL) $(SPREAD) $(ARGS)
	SOLCOURSE_SOLUTIONS=1 $(PYTEST) notebooks $(NBVAL) $(SPREAD)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.test
	$(PYTEST) tests/unit solcourse $(SPREAD) $(ARGS)

engine counts fuzz browser gpu: $(VENV)/.test
	$(PYTEST) tests/$@ $(SPREAD) $(ARGS)

notebooks: $(VENV)/.test
	$(PYTEST) notebooks tests/notebooks $(NBVAL) $(SPREAD) $(ARGS)

notebooks-solutions: $(VENV)/.test
	SOLCOURSE_SOLUTIONS=1 $(PYTEST) notebooks $(NBVAL) $(SPREAD) $(ARGS)

bench: $(VENV)/.lab
	for b in benchmarks/*.py; do $(BIN)/python $$b $(ARGS) || exit 1; done

clean:
	rm -rf $(VENV) .venv-numba build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
