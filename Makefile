PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Servers and workers of the tests start with what the first of them has compiled: a quarter of their start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run check lint image format test quick sweep bench messages

# Two workers that take whole files, whose tests share a server, in the order of tests/conftest.py.
TESTS := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

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

# `make test COVER=--cov` with coverage.
test: $(VENV)/dev.stamp
	CHROMIUM="$$(.ci/chromium)" $(TESTS) -m "not sweep" $(COVER)

# The first case of each function, while you work.
quick: $(VENV)/dev.stamp
	$(TESTS) -m "not slow and not browser and not sweep and not further"

# The rest of `make test`: every night and before a release.
sweep: $(VENV)/dev.stamp
	CHROMIUM="$$(.ci/chromium)" $(TESTS) -m "sweep or drawn" --hypothesis-profile nightly

# Ours beside public records (writes pages/evidence/accuracy.json and the README's table), and how fast hostile inputs
# are read.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.speed.doors
	$(BIN)/python -m tests.hostile --corpus
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

# Python compiles what is imported: a quarter of the 10,000 modules.
$(VENV)/dev.stamp: requirements-dev.txt requirements.txt $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt
	touch $@ $(VENV)/run.stamp
