# make demo: solve three instances and look at the pictures.
# make test: everything that is checked before a change is accepted.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
SETUP := constraints.txt pyproject.toml
DEMO := demo-tsp60.tsp demo-cvrp100.vrp demo-op100.oplib

.PHONY: demo test lint pictures clean

demo: .venv/installed
	@mkdir -p demo
	$(BIN)/renco solve $(DEMO:%=renco/instances/%) --time-limit 10 \
	    --sol-dir demo --plot demo/routes.png
	@echo "Pictures and solutions are in demo/:"
	@ls demo

test: lint
	$(BIN)/pytest -q -n 2

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pictures of the README.
pictures: .venv/installed
	@mkdir -p docs/pictures
	$(BIN)/renco solve $(DEMO:%=renco/instances/%) --time-limit 20 \
	    --plot docs/pictures/solved.png

clean:
	rm -rf .venv demo

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or newer is needed: make PYTHON=python3.x"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python $(SETUP)
	@echo "Installing into .venv, this takes a minute or two the first time ..."
	$(PIP) -e .
	@touch $@

.venv/installed-dev: .venv/bin/python $(SETUP)
	@echo "Installing into .venv, this takes a minute or two the first time ..."
	$(PIP) -e '.[dev,experts]'
	@touch $@ .venv/installed
