PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run check messages

run: $(VENV)/run.stamp
	$(BIN)/streamlit run app.py

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile
	.ci/docker-steps
	CHROMIUM="$$(.ci/chromium)" $(BIN)/pytest

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
