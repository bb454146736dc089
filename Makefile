# `make demo` and `make test` need nothing but Python 3.11 or newer; everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# No upgrade of pip: the one that comes with Python 3.11 can install all of this.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints-dev.txt

# Stamps: what they stand for is installed, and is installed again only when its list changes.
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev
LISTS := pyproject.toml constraints-dev.txt

DEMO_OUT := demo-data

.DEFAULT_GOAL := help
.PHONY: help demo test lint format faults bench clean

help: ## Show the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(CORE) ## Collect 100 000 steps of CartPole-v1 into demo-data, then show what is there
	rm -rf $(DEMO_OUT)
	$(BIN)/outrider collect CartPole-v1 --steps 100000 --envs 16 --seed 0 --out $(DEMO_OUT)
	$(BIN)/outrider show $(DEMO_OUT)

test: lint ## Lint, then run every test, three at a time: many wait for others
	$(BIN)/python -m pytest -n 3

lint: $(DEV) ## Style, format, types, and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## Format the code and apply safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

faults: $(DEV) ## Every fault of an environment, wherever it runs: what is said, how soon, what is left behind
	cd tests && ../$(BIN)/python -m helpers.fault_matrix

bench: $(DEV) ## Build the peers' environment beside this folder, then measure side by side
	PYTHON=$(PYTHON) benchmarks/make_peers.sh
	$(BIN)/python benchmarks/vector.py
	$(BIN)/python benchmarks/vector_costs.py
	$(BIN)/python benchmarks/collect.py
	$(BIN)/python benchmarks/tails.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/replay_memory.py
	$(BIN)/python benchmarks/kill_in_save.py
	$(BIN)/python benchmarks/returns.py
	$(BIN)/python benchmarks/envpool_pong.py

clean: ## Remove the environment, the demo's data, and all caches
	rm -rf $(VENV) $(DEMO_OUT) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or newer is needed, and this is %d.%d: run make PYTHON=/path/to/python" % v[:2])'
	$(PYTHON) -m venv $(VENV)

$(CORE): $(LISTS) | $(BIN)/python
	$(PIP_INSTALL) --editable .
	touch $@

$(DEV): $(LISTS) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[dev]'
# Without what it asks for: its pygame would be written over the pygame-ce that Gymnasium asks for.
	$(PIP_INSTALL) --no-deps mo-gymnasium
	touch $(CORE) $@
