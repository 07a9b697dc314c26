PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run check format test bench messages

run: $(VENV)/run.stamp
	$(BIN)/streamlit run app.py

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile
	.ci/docker-steps
	$(MAKE) test

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Two workers, `make test COVER=--cov` with coverage; tests/conftest.py says which runs what.
test: $(VENV)/dev.stamp
	CHROMIUM="$$(.ci/chromium)" $(BIN)/pytest -n 2 --dist loadgroup $(COVER)

# Ours beside public records (writes docs/accuracy.json and the README's table), and how fast hostile inputs are read.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.speed.doors

messages: $(VENV)/dev.stamp
	$(BIN)/python -m tests.messages

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV) || { echo "This Python has no venv module: install python3-venv." >&2; exit 1; }

$(VENV)/run.stamp: requirements.txt $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements.txt $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@ $(VENV)/run.stamp
