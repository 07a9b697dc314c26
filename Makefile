PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run check lint image format test quick bench messages

run: $(VENV)/run.stamp
	$(BIN)/streamlit run app.py --server.fileWatcherType=auto

# The image is built beside the type check: each waits for the other's disk and network.
check: $(VENV)/dev.stamp
	$(MAKE) -j2 --output-sync=target lint image
	$(MAKE) test

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

image: $(VENV)/dev.stamp
	$(BIN)/hadolint Dockerfile
	.ci/docker-steps

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Two workers, `make test COVER=--cov` with coverage; tests/conftest.py says which runs what.
test: $(VENV)/dev.stamp
	CHROMIUM="$$(.ci/chromium)" $(BIN)/pytest -n 2 --dist loadgroup $(COVER)

# All but whole sweeps and browsers, while you work; CI runs `make test`.
quick: $(VENV)/dev.stamp
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow and not browser"

# Ours beside public records (writes pages/evidence/accuracy.json and the README's table), and how fast hostile inputs
# are read.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.speed.doors
	$(BIN)/python -m benchmarks.speed.reports
	$(BIN)/python -m benchmarks.speed.solvers 12
	CHROMIUM="$$(.ci/chromium)" $(BIN)/python -m benchmarks.speed.load
	CHROMIUM="$$(.ci/chromium)" $(BIN)/python -m benchmarks.speed.moves

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
