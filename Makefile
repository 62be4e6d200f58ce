# Everything is set up by the target that needs it, in .venv, and only when something changed:
# a second run starts at once and needs no network. ARGS is handed on: make run ARGS="--http-port 0".

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

PACKAGES := broker config peeklock protocol storage
DEFINITION := pyproject.toml constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
EDITABLE := --config-settings editable_mode=compat --editable

.DEFAULT_GOAL := help
.PHONY: help run test check bench clients crash fuzz soak image clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.installed ## start the broker on 127.0.0.1:5672, its administration on 5300
	@# Where PYTHONDONTWRITEBYTECODE is set, a start would compile everything again.
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@exec $(BIN)/peeklock serve $(ARGS)

test: $(VENV)/.developed ## all that CI runs: lint, types, layers, tests
	@$(BIN)/python -m tests.check $(ARGS)

check: $(VENV)/.developed ## the fast half of it: lint, types, layers
	@$(BIN)/python -m tests.check --static

bench: $(VENV)/.developed ## throughput, latency, memory, start-up
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@$(BIN)/python -m tests.bench.run $(ARGS)

clients: $(VENV)/.developed ## every stock client in its own language against a live broker
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@$(BIN)/python -m tests.clients.run $(ARGS)

crash: $(VENV)/.developed ## kill the broker under load, let its disk fail, cut its power, and count what it kept
	@$(BIN)/python -m tests.crash.run $(ARGS)

fuzz: $(VENV)/.developed ## hostile bytes at the broker for a minute, or ARGS="--seconds N --seed S"
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

soak: $(VENV)/.developed ## hours of mixed load, watching memory
	@$(BIN)/python -m tests.soak.run $(ARGS)

image: ## the container image peeklock:latest
	docker build --tag peeklock .

clean: ## forget .venv and all caches
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Each step says what it does: on a fresh clone they take a minute or two together, and pip is quiet.
# A file marks each step that was finished, so that one that was interrupted is repeated.
$(VENV)/.created:
	@echo "Setting up $(VENV), once; this takes a minute or two."
	@echo "  creating the environment"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.engine: constraints.txt | $(VENV)/.created
	@echo "  compiling the AMQP engine, python-qpid-proton: most of the time"
	@$(INSTALL) python-qpid-proton
	@touch $@

$(VENV)/.installed: $(DEFINITION) | $(VENV)/.engine
	@echo "  installing the broker and its other dependencies"
	@$(INSTALL) $(EDITABLE) .
	@touch $@

$(VENV)/.developed: $(DEFINITION) | $(VENV)/.engine
	@echo "  installing the broker, its other dependencies and the tools that test it"
	@$(INSTALL) $(EDITABLE) '.[dev]'
	@touch $@ $(VENV)/.installed
