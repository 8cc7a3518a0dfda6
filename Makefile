# Every target does its own set-up. The first run installs (minutes), later ones begin at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# JupyterLab refuses root without being told (containers)
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lab lint format bench clean

help:
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

setup: $(STAMP) ## make .venv with the package and all development needs

# pip is brought up to date first: dependency groups need pip 25.1
$(STAMP): pyproject.toml constraints-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[examples]' --group dev
	@touch $@

demo: $(STAMP) ## run the example notebook on a cluster of its own; writes examples/out/
	$(BIN)/python examples/demo.py

test: $(STAMP) ## import contract and all tests
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest

lab: $(STAMP) ## JupyterLab on the example notebook
	@mkdir -p examples/out
	@test -e examples/out/my-digits.ipynb || cp examples/digits.ipynb examples/out/my-digits.ipynb
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jupyter lab $(ROOT) --notebook-dir examples/out examples/out/my-digits.ipynb

lint: $(STAMP) ## ruff, format check, mypy strict, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## all benchmarks, as in docs; one JSON object each
	$(BIN)/python -m benchmarks all --json

clean: ## remove what the targets made, the virtual environment too
	rm -rf $(VENV) examples/out benchmarks/results dist build
