"""What whoever runs the server is told: ready or not, figures, and log lines without what readers gave."""

import asyncio
import json
import logging
import sys

import pytest

from calc import ConfigError
from pages.parts import direct
from pages.parts.operations import Gate, JsonLine, Operations
from presets import hub


async def app(scope, receive, send):
    """A server that is there."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"page"})


def answer(gate, path, kind="http"):
    """Status and body of what a path is answered."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": f"{kind}.connect"}

    extensions = {"websocket.http.response": {}}
    scope = {"type": kind, "path": path, "headers": [], "method": "GET", "extensions": extensions}
    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode()


@pytest.fixture
def operations():
    operations = Operations()
    operations.is_warm = True
    return operations


def test_ready_is_when_everything_is_loaded():
    operations = Operations()
    gate = Gate(app, operations)
    assert answer(gate, "/ready") == (503, "not ready")
    operations.is_warm = True
    assert answer(gate, "/below/ready") == (200, "ready")


@pytest.mark.parametrize(("path", "status"), [("/", 503), ("/ready", 503), ("/_stcore/health", 200)])
def test_a_server_that_drains_sends_new_readers_away(operations, path, status):
    gate = Gate(app, operations)
    assert answer(gate, "/") == (200, "page")
    operations.is_draining = True
    assert answer(gate, path)[0] == status
    assert answer(gate, "/_stcore/stream", "websocket")[0] == 503


def test_figures_are_closed_unless_asked_for(operations, monkeypatch):
    for path in ("/metrics", "/_stcore/metrics"):
        assert answer(Gate(app, operations), path)[0] == 404
    monkeypatch.setenv("WEIGHBRIDGE_METRICS", "1")
    status, text = answer(Gate(app, operations), "/metrics")
    assert status == 200
    assert "\nweighbridge_sessions 0.0\n" in text
    assert answer(Gate(app, operations), "/_stcore/metrics") == (200, "page")  # Streamlit's own


def test_runs_and_failures_of_the_hub_are_figures(operations, monkeypatch):
    async def run():
        async with operations.running():
            direct.RUNS.observe(0.07)
            with pytest.raises(ConfigError):
                hub.fetch("no/such-model")

    monkeypatch.setattr(hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("WEIGHBRIDGE_METRICS", "1")
    asyncio.run(run())
    text = answer(Gate(app, operations), "/metrics")[1]
    assert '\nweighbridge_run_seconds_bucket{le="0.1"} 1.0\n' in text
    assert '\nweighbridge_run_seconds_bucket{le="0.05"} 0.0\n' in text
    assert '\nweighbridge_hub_errors_total{kind="ConnectError"} 1.0\n' in text


def line(message, *values, error=None):
    record = logging.LogRecord("a.logger", logging.WARNING, "file.py", 1, message, values, error)
    return json.loads(JsonLine().format(record))


def test_a_log_line_is_an_object():
    found = line("%d runs", 3)
    assert (found["level"], found["logger"], found["message"]) == ("WARNING", "a.logger", "3 runs")


@pytest.mark.parametrize(
    "text",
    [
        "GET /?pasted=SECRETeJyrVkrOz0nVUbIy",
        "GET /?token=SECRET&x=1",
        "asked with hf_SECRETsecret12",
        "https://hub.example/a/b?x=SECRET failed",
    ],
)
def test_no_log_line_has_what_readers_gave(text):
    assert "SECRET" not in line(text)["message"]


def test_an_error_is_its_type_and_places():
    try:
        raise ValueError("pasted SECRET")
    except ValueError:
        found = line("Uncaught app execution", error=sys.exc_info())
    assert found["error"] == "ValueError"
    assert found["at"][0].startswith("test_operations.py:")
    assert "SECRET" not in json.dumps(found)
