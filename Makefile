# Everyday commands. Each makes .venv from requirements.lock first, once; after that they start at once.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# The interpreter that makes .venv: the first of these that is Python 3.11 or newer and can. Override: make PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
  "$$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

# Book parameters, as in: make book PROFILE=full DEVICE=cuda
PROFILE ?= quick
DEVICE ?= auto
SEED ?= 0
RUN := --profile $(PROFILE) --device $(DEVICE) --seed $(SEED)
PORT ?= 8000

# Trace files that lie beside the clone are used from there; otherwise they are downloaded, once.
ifneq ($(wildcard ../shared/traces),)
export PAGEDKV_TRACES ?= $(abspath ../shared/traces)
endif

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  if [ -z "$(PYTHON)" ]; then \
	    echo "Python 3.11 or newer with its venv module is needed, and was not found."; \
	    echo "Install it (Debian, Ubuntu: apt-get install python3-venv), or name it: make PYTHON=/path/to/python3.11"; \
	    exit 1; fi; \
	  echo "Making $(VENV) with $(PYTHON) ..."; \
	  "$(PYTHON)" -m venv $(VENV); fi
	@echo "Installing the versions of requirements.lock (a few minutes the first time) ..."
	$(PY) -m pip install --disable-pip-version-check -r requirements.lock
	$(PY) -m pip install --disable-pip-version-check --no-deps -e .
	@touch $@

.PHONY: install
install: $(STAMP) ## make .venv from requirements.lock

.PHONY: book
book: $(STAMP) ## execute the notebooks and make the book in _build/html
	$(PY) -m pagedkv.cli book build $(RUN)

.PHONY: notebooks
notebooks: $(STAMP) ## execute the notebooks only
	$(PY) -m pagedkv.cli book run $(RUN)

.PHONY: serve
serve: book ## make the book and serve it on this machine
	$(PY) -m pagedkv.cli book serve --port $(PORT)

.PHONY: lab
lab: $(STAMP) ## open the notebooks in JupyterLab
	$(PY) -m jupyterlab notebooks

.PHONY: test
test: lint ## run the whole test suite, with all checks of the source
	$(PY) -m pytest -n 2 --dist loadgroup

.PHONY: lint
lint: $(STAMP) ## check style, types, spelling and the house rules of notebooks
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/codespell
	$(PY) -m pagedkv.cli book lint

.PHONY: format
format: $(STAMP) ## format the source
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: bench
bench: $(STAMP) ## what the memory manager's checks cost, as ratios, into _build/bench.json
	$(PY) -m pagedkv.cli bench --out _build/bench.json

.PHONY: measure
measure: $(STAMP) ## measure this machine and record it under data/measurements
	$(PY) -m pagedkv.cli measure --device $(DEVICE)

.PHONY: clean
clean: ## delete all that was made, but not .venv
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
