# Everything runs in .venv, which the first target that needs it makes.
#
#   make tour      one real model through every stage of the compiler
#   make test      lint and tests
#
# PYTHON=... picks the interpreter that makes .venv, FLAGS=... is passed on to pytest.

.DEFAULT_GOAL := help
# Bytecode is kept: tests start many processes, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help tour lab lessons unit test test-all lint clean

VENV    := .venv
BIN     := $(VENV)/bin
CORE    := $(VENV)/.core.stamp
FULL    := $(VENV)/.full.stamp
WORKERS ?= 4
FLAGS   ?=

# The newest interpreter that runs, is in the range of pyproject.toml, and can make a venv.
USABLE := import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
              $$p -c '$(USABLE)' >/dev/null 2>&1 && echo $$p && break; done)

PIP    = $(BIN)/python -m pip install -qq --disable-pip-version-check
NBVAL  = --nbval --nbval-current-env --nbval-cell-timeout 60 -n auto --maxprocesses 2 --dist loadfile
PYTEST = $(BIN)/python -m pytest -q -n auto --maxprocesses $(WORKERS) --dist worksteal $(FLAGS)

help:
	@echo "make tour      one real model through every stage of the compiler"
	@echo "make lab       open the lessons in JupyterLab"
	@echo "make lessons   build the notebooks whose text changed"
	@echo "make unit      the tests that need no LLVM, under a minute"
	@echo "make test      lint and tests: the one command before a commit"
	@echo "make test-all  lint and tests at full size"
	@echo "make lint      ruff, pyright, import layers"
	@echo "make clean     remove .venv, out/ and caches"

tour: $(CORE)
	@$(BIN)/minidlc tour

lab: $(CORE)
	@$(BIN)/jupyter lab course

lessons: $(CORE)
	@$(BIN)/python course/build.py

unit: $(FULL)
	@echo "test      without LLVM"
	@$(PYTEST) -m "not llvm and not long and not slow"

test: lint
	@echo "test      pytest"
	@$(PYTEST)
	@echo "test      lessons"
	@$(BIN)/python -m pytest -q $(NBVAL) course

test-all: lint
	@echo "test      pytest at full size"
	@$(PYTEST) --full
	@echo "test      lessons at full size"
	@$(BIN)/python -m pytest -q $(NBVAL) --full course

lint: $(FULL)
	@echo "lint      ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "lint      ruff format"
	@$(BIN)/ruff format --check --quiet . || \
	    { $(BIN)/ruff format --check .; echo "fix with: $(BIN)/ruff format ."; exit 1; }
	@echo "lint      pyright"
	@$(BIN)/pyright > $(VENV)/pyright.txt || { cat $(VENV)/pyright.txt; exit 1; }
	@echo "lint      import layers"
	@$(BIN)/lint-imports --no-logo > $(VENV)/imports.txt || { cat $(VENV)/imports.txt; exit 1; }

$(CORE): pyproject.toml
	@test -n "$(PYTHON)" || { echo "minidlc needs Python 3.11, 3.12 or 3.13 with venv; \
	none found (on Debian: apt install python3-venv). PYTHON=/path/to/python picks one."; exit 1; }
	@$(PYTHON) -c '$(USABLE)' || { echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13 with venv"; exit 1; }
	@$(BIN)/pip --version >/dev/null 2>&1 || { \
	    echo "setup     $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "setup     minidlc and what it needs (about a minute)"
	@$(PIP) --editable .
	@touch $@

$(FULL): $(CORE)
	@echo "setup     test and lint tools"
	@$(PIP) --editable ".[test,dev]"
	@touch $@

clean:
	rm -rf $(VENV) out build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
