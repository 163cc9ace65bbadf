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
# what only .ci/run waits for: published ladders, numba-cuda's own tests, and tests marked slow
LATER := --ignore=tests/ladders --ignore=tests/peer
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout=120

# a simulator left switched on in the shell would replace numba.cuda in everything below
unexport NUMBA_ENABLE_CUDASIM
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help lab test lint stubs picture unit engine counts exercises fuzz notebooks notebooks-solutions browser gpu ladders slow peer bench clean

help:
	@echo "make lab        set up, then open JupyterLab at lesson 00"
	@echo "make test       set up, then every test (under ten minutes on two cores)"
	@echo "make unit | engine | counts | exercises | fuzz | notebooks | notebooks-solutions | browser | gpu | lint      parts of it"
	@echo "make ladders | slow      tests that take minutes: kernels of the published ladders; many processes, long compilations, NVVM"
	@echo "make peer       numba-cuda's own tests through the engine (about five minutes on two cores)"
	@echo "make stubs      write exercises/ again from solutions/"
	@echo "make picture    take the README's picture again (needs Chromium)"
	@echo "make bench      the benchmarks"
	@echo "make clean      remove what was built; the learner's work in exercises/mine stays"

# ---- set-up, each step with a stamp: the course, what its tests need, and the cache simulator's machine code
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "solcourse needs Python 3.11 or newer, and found none on the path."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.lab: $(VENV)/.made pyproject.toml
	@echo "Installing JupyterLab, numba and the course into $(VENV): about two minutes, the first time only."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.lab
	@echo "Installing what the tests need."
	@$(BIN)/python -m pip install --quiet --editable ".[test]"
	@touch $@

$(VENV)/.peer: $(VENV)/.test
	@echo "Installing what numba-cuda's tests need."
	@$(BIN)/python -m pip install --quiet --editable ".[test,peer]"
	@touch $@

$(VENV)/.warm: $(VENV)/.lab solcourse/cachesim.py
	@echo "Compiling the cache simulator, so that your first profile does not have to wait for it: about twenty seconds."
	@$(BIN)/python -m solcourse.warm
	@touch $@

FOR_LAB := $(VENV)/.lab $(VENV)/.warm
FOR_TESTS := $(VENV)/.test $(VENV)/.warm

# ---- the course
lab: $(FOR_LAB)
	$(BIN)/python -m solcourse lab $(ARGS)

stubs: $(VENV)/.lab
	$(BIN)/python -m solcourse.stubs

picture: $(FOR_TESTS)
	$(BIN)/python docs/picture.py

# ---- the tests. Notebooks run twice: with the stubs as a learner finds them, and with the solutions.
test: lint $(FOR_TESTS)
	SOLCOURSE_SOLUTIONS=1 $(PYTEST) notebooks $(NBVAL) $(SPREAD)
	$(PYTEST) tests solcourse notebooks $(LATER) -m "not slow" $(NBVAL) $(SPREAD) $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(FOR_TESTS)
	$(PYTEST) tests/unit solcourse $(SPREAD) $(ARGS)

engine counts exercises fuzz browser gpu ladders: $(FOR_TESTS)
	$(PYTEST) tests/$@ $(SPREAD) $(ARGS)

slow: $(FOR_TESTS)
	$(PYTEST) tests $(LATER) -m slow $(SPREAD) $(ARGS)

notebooks: $(FOR_TESTS)
	$(PYTEST) notebooks tests/notebooks $(NBVAL) $(SPREAD) $(ARGS)

notebooks-solutions: $(FOR_TESTS)
	SOLCOURSE_SOLUTIONS=1 $(PYTEST) notebooks $(NBVAL) $(SPREAD) $(ARGS)

peer: $(VENV)/.peer $(VENV)/.warm
	$(PYTEST) tests/peer -q
	$(BIN)/python -m tests.peer.peer_suite $(ARGS)

bench: $(FOR_LAB)
	for b in benchmarks/*.py; do $(BIN)/python $$b $(ARGS) || exit 1; done

clean:
	rm -rf $(VENV) .venv-numba build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
