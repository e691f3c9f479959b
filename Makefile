# make run     the broker on 127.0.0.1:1883, map on http://127.0.0.1:8080/
# make test    everything it takes to trust it, set-up included
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run demo test lint types bench torture soak fuzz image-steps clean

run: $(VENV)/run
	$(BIN)/geomqtt serve

demo: $(VENV)/run
	$(BIN)/geomqtt demo

test: $(VENV)/test
	@sh tests/tools.sh
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/test
	$(BIN)/mypy

bench: $(VENV)/test
	$(BIN)/python tests/bench/run.py $(ARGS)

torture: $(VENV)/test
	$(BIN)/python tests/integration/torture.py --kills 50 $(ARGS)

soak: $(VENV)/test
	$(BIN)/python tests/integration/soak.py --minutes 30 $(ARGS)

fuzz: $(VENV)/test
	$(BIN)/python -m pytest -m long tests/fuzz

# What the Dockerfile does, without Docker: build the wheel, install it alone, start it.
image-steps: $(VENV)/test
	$(BIN)/python -m pytest tests/integration/test_wheel.py

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "geomqtt needs Python 3.11 or newer: PYTHON=/path/to/python3.11 make run"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/run: $(VENV)/python pyproject.toml
	@echo "installing geomqtt into $(VENV) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/test: $(VENV)/python pyproject.toml
	@echo "installing geomqtt with everything its tests need into $(VENV) ..."
	@$(PIP) install --editable '.[dev,spark,amqtt]'
	@touch $@ $(VENV)/run

clean:
	rm -rf $(VENV) .tools build dist *.egg-info bench-results
