# The everyday commands. Each sets up .venv by itself the first time it is needed.

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage check docs golden bench browser schemathesis wheel-test clean

# Any Python that is new enough and can make a virtual environment; override with PYTHON=...
PYTHON ?= $(shell for p in python3 python python3.11 python3.12 python3.13 python3.14; do \
	command -v $$p >/dev/null 2>&1 || continue; \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The workflow that `make demo` runs, what `make test` runs (all by default), further options.
DEMO ?= examples/airports/workflow.json
TESTS ?=
ARGS ?=
# Requests per route of `make schemathesis`.
EXAMPLES ?= 50
# The version whose samples `make golden` adds.
LABEL ?=

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv with all that developing needs

# uv installs in seconds what takes pip a minute; where it cannot be had, pip does it.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "yukta_rx needs Python 3.11 or newer with venv and ensurepip;" \
		"install it or say where it is: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; then \
		$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	fi
	@touch $@

demo: $(STAMP) ## run an example workflow with live progress
	$(BIN)/yukta run $(DEMO)

test: $(STAMP) ## run the tests (TESTS=tests/config ARGS='-k name')
	$(BIN)/python -m pytest $(TESTS) $(ARGS)

coverage: $(STAMP) ## branch coverage of streams and operators, which has to be whole
	$(BIN)/python -m pytest tests/streams tests/operators tests/tck tests/engine --cov-branch \
		--cov=yukta_rx.streams --cov=yukta_rx.operators --cov-fail-under=100

check: $(STAMP) ## lint, format check, layers, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(STAMP) ## write the reference pages that are made from the code
	$(BIN)/python docs/render.py

golden: $(STAMP) ## add samples of what is kept in files, for a release (LABEL=0.2.0)
	@test -n "$(LABEL)" || { echo "say which version writes so: make golden LABEL=0.2.0"; exit 2; }
	$(BIN)/python -m tests.golden.write $(LABEL)

bench: $(STAMP) ## measure everything, in minutes (ARGS='--only policies', ARGS=--write)
	$(BIN)/python -m bench $(ARGS)

browser: $(STAMP) ## the JavaScript client in Chromium, which is installed if need be
	$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright
	@command -v chromium >/dev/null || $(BIN)/playwright install --with-deps chromium
	$(BIN)/python -m pytest tests/browser $(ARGS)

schemathesis: $(STAMP) ## fuzz the REST interface from its OpenAPI document, for minutes
	YUKTA_TEST_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/http/test_schemathesis.py

wheel-test: $(STAMP) ## build the wheel, install it elsewhere, run the demo there
	DEMO=$(DEMO) .ci/wheel-test $(BIN)/python

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache \
		.ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
