"""Endpoints for operators of the server: whether it may be sent readers, figures for Prometheus, log lines for a
store, an end that readers do not notice, and headers of every answer. docs/deploy.md says how to use each.
"""

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from pages.parts import direct
from pages.parts.verify import evidence
from presets import hub

DRAIN = "WEIGHBRIDGE_DRAIN"
"""Environment variable: seconds that a server whose end is asked for goes on for the readers that it has, while new
ones are sent to others; none where it is not set."""
LOGS = "WEIGHBRIDGE_LOGS"
"""Environment variable: `json` makes each line of the log an object."""
EMBEDDING = "WEIGHBRIDGE_EMBEDDED_IN"
"""Environment variable: the sites, apart from our own, that may show the page in a frame, as in a
Content-Security-Policy; `*` for all."""
METRICS = "WEIGHBRIDGE_METRICS"
"""Environment variable: any text opens the address of the metrics."""
READY, METRICS_PATH, HEALTH = "/ready", "/metrics", "/_stcore/health"
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of the buckets of the histogram of runs."""
QUERY, TOKEN = re.compile(r"\?\S*"), re.compile(r"\bhf_\w+")
"""Parts of a message that a log line leaves out: the query of an address, and a token of the Hub."""
LONGEST = 500
"""Characters of a log line's message."""


class HubErrors(logging.Handler):
    """Handler that counts the failures that the Hub's module logs, by kind."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.args:
            self.counter.labels(kind=str(record.args[0])).inc()


class Operations:
    """The state of one server process."""

    def __init__(self) -> None:
        self.is_warm, self.is_draining = False, False
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.sessions = Gauge("weighbridge_sessions", "Open websockets.", registry=self.registry)
        self.runs = Histogram(
            "weighbridge_run_seconds", "Seconds of a run of the page.", registry=self.registry, buckets=SECONDS
        )
        errors = Counter("weighbridge_hub_errors", "Failures of the Hub.", ["kind"], registry=self.registry)
        self.hub_errors = HubErrors(errors)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Lifetime of the server, from when everything is loaded. The evidence is read first."""
        for read in (evidence.accuracy, evidence.servers, evidence.speeds, evidence.startups):
            read()
        if os.environ.get(LOGS) == "json":
            log_as_json()
        logger = logging.getLogger(hub.__name__)
        logger.setLevel(logging.INFO)
        logger.addHandler(self.hub_errors)
        direct.RUNS.observe = self.runs.observe
        self.drain_before_end(float(os.environ.get(DRAIN) or 0))
        self.is_warm = True
        yield
        logger.removeHandler(self.hub_errors)

    def drain_before_end(self, seconds: float) -> None:
        """Lets a SIGTERM reach the server only when it has drained."""
        end, loop = signal.getsignal(signal.SIGTERM), asyncio.get_running_loop()
        if not seconds or not callable(end) or threading.current_thread() is not threading.main_thread():
            return

        async def drain() -> None:
            last = time.monotonic() + seconds
            await asyncio.sleep(seconds / 2)  # in which balancers see that it is not ready
            while direct.RUNS.running and time.monotonic() < last:
                await asyncio.sleep(0.05)
            end(signal.SIGTERM, None)

        def begin(number: int, frame: Any) -> None:
            if not self.is_draining:
                self.is_draining = True
                loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(drain())))

        tasks: list[asyncio.Task[None]] = []  # a loop does not keep its tasks alive
        signal.signal(signal.SIGTERM, begin)


class Gate:
    """Middleware that answers probes, shows metrics, Streamlit's too, only where `METRICS` is set, counts readers, and
    sends new ones away while the server drains."""

    def __init__(self, app: ASGIApp, operations: Operations) -> None:
        self.app, self.operations = app, operations
        self.shows_metrics = bool(os.environ.get(METRICS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operations = self.operations
        if scope["type"] == "websocket":
            if operations.is_draining:
                return await WebSocket(scope, receive, send).send_denial_response(not_ready())
            with operations.sessions.track_inprogress():
                return await self.app(scope, receive, send)
        path = scope["path"] if scope["type"] == "http" else ""
        if path.endswith(READY):
            is_ready = operations.is_warm and not operations.is_draining
            return await (PlainTextResponse("ready") if is_ready else not_ready())(scope, receive, send)
        if path.endswith(METRICS_PATH) and not self.shows_metrics:
            return await PlainTextResponse("Not found", 404)(scope, receive, send)
        if path.endswith(METRICS_PATH) and not path.endswith(f"_stcore{METRICS_PATH}"):
            figures = Response(generate_latest(operations.registry), media_type=PROMETHEUS_TEXT)
            return await figures(scope, receive, send)
        if path and operations.is_draining and not path.endswith(HEALTH):
            return await not_ready()(scope, receive, send)
        await self.app(scope, receive, send)


def not_ready() -> Response:
    """Answer that sends a proxy to another replica."""
    return PlainTextResponse("not ready", 503, {"Retry-After": "1"})


class JsonLine(logging.Formatter):
    """A record as a JSON object. What readers gave is not in it: no query of an address, no token, and of an error its
    type and places, but not its text."""

    def format(self, record: logging.LogRecord) -> str:
        message = TOKEN.sub("hf_…", QUERY.sub("?…", record.getMessage()))[:LONGEST]
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["at"] = [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=False)


def log_as_json() -> None:
    """Make every logger that prints write objects, ours too."""
    root = logging.getLogger()
    root.addHandler(logging.StreamHandler())
    for logger in (root, *map(logging.getLogger, root.manager.loggerDict)):
        for handler in logger.handlers:
            handler.setFormatter(JsonLine())
        if logger is not root and logger.handlers:
            logger.propagate = False


def policy(embedded_in: str) -> str:
    """The Content-Security-Policy of the page: everything is this server's own. Streamlit writes styles into the page
    and runs elements' scripts from blobs, and Plotly and Vega compile functions.

    Source: www.w3.org/TR/CSP3.
    """
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' blob: 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            f"frame-ancestors 'self' {embedded_in}".rstrip(),
        )
    )


class Headers:
    """Middleware that adds headers for the browser's own guards to every answer, that to an error of ours too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.headers = {
            "Content-Security-Policy": policy(os.environ.get(EMBEDDING, "")),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "strict-origin-when-cross-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        has_begun = False

        async def answered(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        try:
            await self.app(scope, receive, answered)
        except Exception:  # Starlette would answer, outside of all middleware
            if not has_begun:
                await PlainTextResponse("Internal Server Error", 500)(scope, receive, answered)
            raise
