"""What an input does to the process that reads it."""

import contextlib
import io
import json
import re
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple
from urllib.parse import urlencode

import anyio
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route

from calc import Architecture, ConfigError, report, training_report
from calc.families.gguf import config_of
from calc.formats import native
from calc.serving.engines import ENGINES
from calc.text import parse_config
from calc.verify.checkpoint import read_safetensors
from calc.verify.compare import compare
from calc.verify.gguf import read_gguf
from calc.verify.logs import read_log
from calc.verify.measurement import read_measurement
from calc.verify.printed import read_printed
from cli import log_report, main
from cli.assistant import server
from cli.sweep.grid import read_grid
from cli.sweep.rows import table
from pages.api import api
from pages.parts.inputs import lists
from pages.parts.limits import Visitors
from pages.parts.operations import Headers
from pages.parts.outputs import scripts
from pages.parts.outputs.preview import PLACE, Addresses
from pages.parts.state.compared import stepped
from pages.parts.state.planned import planned
from pages.parts.state.query import PAGES, decode
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import trained, weighed
from presets import models
from tests.hostile.inputs import DOORS

SECONDS, GIVEN_UP = 2.0, 8.0
"""Of CPU for one input, and for one that ends with the sentence that it was given up."""
PATIENCE = 20.0
"""After which it is given up."""
MEGABYTES = 300
"""Of memory for one input, though it be given back."""
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What steers a terminal."""
LLAMA = Architecture.from_config(models()["meta-llama/Llama-3.1-8B"].config)


class Harm(NamedTuple):
    """What an input did that none may."""

    door: str
    number: int
    what: str


class Slow(BaseException):
    """No code of ours catches it."""


def drawn(door: str, seed: int, number: int) -> Any:
    """The input of a number."""
    return DOORS[door](Random(f"{seed}/{door}/{number}"))


def read_link(value: tuple[str, dict[str, str]]) -> ConfigError | None:
    """What the page would say instead of an answer."""
    path, query = value
    page = next(page for page in PAGES if page.path == path)
    scenario, problems = decode(query, page, Scenario(), lambda source: {})
    sentences(problems)
    if scenario.source.pasted is None and scenario.source.model not in models():
        return None  # the Hub's
    if path == "plan":
        answer: Any = planned(scenario)
    elif path == "steps":
        answer = stepped(scenario)
        sentences(other.error for other in answer.others if other.error is not None)
    else:
        answer = trained(scenario) if path == "train" else weighed(scenario)
    if answer.error is not None:
        sentences([answer.error])
    return answer.error


def read_paste(value: str) -> None:
    config = parse_config(value)
    model = Architecture.from_config(config)
    model.parameters()
    number = len(value)
    engine = ENGINES[list(ENGINES)[number % len(ENGINES)]]()
    if number % 3 == 0:
        training_report(config, architecture=model)
    else:
        report(config, architecture=model, engine=engine, precision=engine.precision(native(config), None, None))


def read_gguf_config(value: bytes) -> None:
    header = read_gguf(value)
    Architecture.from_config(config_of(header.metadata, header.checkpoint.shapes))


READERS: dict[str, Callable[[bytes], Any]] = {
    "safetensors": lambda value: compare(LLAMA, read_safetensors(value)),
    "gguf": read_gguf_config,
    "log": lambda value: read_log(value.decode(errors="replace")),
    "measurement": lambda value: read_measurement(value.decode(errors="replace")),
    "printed": lambda value: read_printed(value.decode(errors="replace")),
}


def read_upload(value: tuple[str, bytes]) -> None:
    kind, data = value
    READERS[kind](data)


def read_command(value: list[str]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = main(value)
        except SystemExit as end:  # argparse's
            status = end.code
    assert status in (0, 1, 2, 3), status
    assert not UNSEEN.search(printed.getvalue()), printed.getvalue()
    assert status != 2 or printed.getvalue().strip(), "a refusal without a word"


@cache
def site() -> Starlette:
    """What `app.py` serves but for Streamlit, which gives every page one index.html."""
    index = HTMLResponse(b"<html><head>" + PLACE + b"</head></html>")
    routes = [
        scripts.SCRIPTS.route(),
        lists.LISTS.route(),
        Mount("/api", app=api()),
        Route("/{path:path}", lambda _: index),
    ]
    return Starlette(routes=routes, middleware=list(map(Middleware, (Headers, Visitors, Addresses))))


def read_address(value: tuple[str, bytes]) -> ConfigError | None:
    path, query = value
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [],
        "client": None,
        "server": ("localhost", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    anyio.run(site(), scope, receive, send)
    status, body = sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
    assert status in (200, 307, 404, 422), status
    is_html = (b"content-type", b"text/html; charset=utf-8") in sent[0]["headers"]
    assert not is_html or b"<script>alert" not in body, body
    if not path.startswith("/api/") or status not in (200, 422) or path == "/api/docs":
        return None
    errors = json.loads(body).get("errors", [])
    sentences(errors)
    return ConfigError(errors[0]) if errors else None


def read_tool(value: tuple[str, dict[str, Any]]) -> None:
    name, arguments = value
    try:
        anyio.run(server().call_tool, name, arguments)
    except UnexpectedToolError as error:
        raise error.__cause__ or error from None
    except ToolError as error:
        assert not UNSEEN.search(str(error)), str(error)


def read_host(value: tuple[str, dict[str, str]]) -> ConfigError | None:
    """What a page and the address for programs say."""
    _, query = value
    read_address(("/api/report", urlencode(query, errors="surrogatepass").encode()))
    return read_link(value)


def read_doctor(value: tuple[str, str | None]) -> None:
    printed = log_report.table(log_report.log_report(*value))
    assert not UNSEEN.search(printed), printed


def read_sweep(value: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "grid.toml"
        file.write_text(value, encoding="utf-8", errors="replace")
        parts = read_grid(str(file))
    for part in [part for part in parts if part.rows < 20][:2]:
        assert len(table(part)) == part.rows


def given_up(outcome: object) -> bool:
    return isinstance(outcome, ConfigError) and "was stopped" in str(outcome)


def sentences(values: Any) -> None:
    """Each is one that a person can read."""
    for value in values:
        text = str(value)
        assert text.strip().endswith((".", "?", "…", ")")), text
        assert len(text) < 3000, text


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def megabytes(field: str) -> float:
    """Of memory now (VmRSS), or at most since it was asked last (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))


def forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def harm_of(read: Callable[[Any], None], value: Any, *, timed: bool = True) -> str | None:
    """What reading an input did that none may; None where it ended in an answer or a sentence.

    Seconds count where they are measured (`python -m tests.hostile`), on a machine that does nothing else. A test
    leaves them out and asks only that an input ends.
    """
    forget_peak()
    before, start, what, allowed = megabytes("VmRSS"), process_time(), None, SECONDS
    try:
        with patience(PATIENCE):
            if given_up(read(value)):
                allowed = GIVEN_UP
    except ConfigError as error:
        allowed = GIVEN_UP if given_up(error) else SECONDS
        try:
            sentences([error])
        except AssertionError as wrong:
            what = f"no sentence: {wrong}"
    except Slow:
        what = "no end"
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        what = f"{error!r:.200} in {where}"
    seconds, grown = process_time() - start, megabytes("VmHWM") - before
    if what is None and timed and seconds > allowed:
        what = f"{seconds:.1f} s"
    if what is None and grown > MEGABYTES:
        what = f"{grown:.0f} MB"
    return what


READ: dict[str, Callable[[Any], None]] = {
    "link": read_link,
    "paste": read_paste,
    "upload": read_upload,
    "command": read_command,
    "address": read_address,
    "sharing": read_command,
    "tool": read_tool,
    "grid": read_sweep,
    "conversion": read_command,
    "host": read_host,
    "doctor": read_doctor,
}
"""Who reads the inputs of each door, the Hub's apart."""
