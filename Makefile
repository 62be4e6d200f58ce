# Each target sets up what it needs in .venv, and only if something has changed: a second run starts at once and
# needs no network. ARGS are arguments for the command: make run ARGS="--http-port 0".

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

PACKAGES := broker config peeklock protocol storage
DEFINITION := pyproject.toml constraints.txt setup.py $(wildcard */native/*.[ch])
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
EDITABLE := --config-settings editable_mode=compat --editable

.DEFAULT_GOAL := help
.PHONY: help run test check bench clients crash postgres-versions fuzz sanitize soak screenshots image clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.installed ## start the broker on 127.0.0.1:5672; administration is on port 5300
	@# Where PYTHONDONTWRITEBYTECODE is set, a start would compile everything again.
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@exec $(BIN)/peeklock serve $(ARGS)

test: $(VENV)/.developed ## run what CI runs: lint, types, import rules, tests
	@$(BIN)/python -m tests.check $(ARGS)

check: $(VENV)/.developed ## run only lint, types and import rules
	@$(BIN)/python -m tests.check --static

bench: $(VENV)/.developed ## measure throughput, latency, memory and start time
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@$(BIN)/python -m tests.bench.run $(ARGS)

clients: $(VENV)/.developed ## run every stock client, in its own language, against a broker
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@$(BIN)/python -m tests.clients.run $(ARGS)
	@PEEKLOCK_ALL_RECIPES=1 $(BIN)/python -m pytest -q -p no:cacheprovider tests/examples/test_other_languages.py tests/console/test_connect_snippets.py

crash: $(VENV)/.developed ## kill the broker under load and make its disk fail; check that it kept what it accepted
	@$(BIN)/python -m tests.crash.run $(ARGS)

postgres-versions: $(VENV)/.developed ## run the tests of the PostgreSQL store on every version of the server (npm)
	@$(BIN)/python -m tests.storage.postgres.versions $(ARGS)

fuzz: $(VENV)/.developed ## send invalid bytes to the broker for a minute, or ARGS="--seconds N --seed S"
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

sanitize: $(VENV)/.developed ## check the memory of the C modules while tests and hostile clients use them (gcc)
	@$(BIN)/python -m tests.protocol.native.sanitize $(ARGS)

soak: $(VENV)/.developed ## run the long tests: 100,000 steps of the model, 10,000 simulations, ten minutes of load
	@$(BIN)/python -m tests.soak.run $(ARGS)

screenshots: $(VENV)/.developed ## make the screenshots of the README with a browser
	@$(BIN)/python -m tests.console.screenshots

image: ## build the container image peeklock:latest
	docker build --tag peeklock .

clean: ## delete .venv and all caches
	rm -rf $(VENV) build dist *.egg-info pytest-peeklock/build pytest-peeklock/src/*.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(PACKAGES) pytest-peeklock tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f */native/*.so

# Each step prints what it does, because on a fresh clone they take a minute or two and pip prints nothing.
# A file marks each finished step, so an interrupted step is repeated.
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

$(VENV)/.developed: $(DEFINITION) pytest-peeklock/pyproject.toml | $(VENV)/.engine
	@echo "  installing the broker, its other dependencies and the tools that test it"
	@$(INSTALL) $(EDITABLE) '.[dev]' --editable pytest-peeklock
	@touch $@ $(VENV)/.installed
