"""A link that somebody else wrote makes the browser ask nobody but this server, and every answer says so."""

import re
from contextlib import suppress
from http.client import HTTPConnection
from itertools import cycle
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.testclient import TestClient
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from pages.parts import limits
from pages.parts.inputs import lists
from pages.parts.operations import EMBEDDING, METRICS, Headers, policy
from pages.parts.outputs import scripts
from pages.parts.state.query import PAGES
from tests.pages.browser.conftest import running_app
from tests.pages.every_page import draw
from tests.pages.test_outside_text import DOORS

POLICY = "Content-Security-Policy"
PLACES = ("", "train", "plan", "derive", "compare", "attention")
CASES = [
    pytest.param(door, path, marks=() if number < 3 else pytest.mark.sweep)
    for number, (door, path) in enumerate(zip(DOORS, cycle(PLACES), strict=False))
]
"""Each door on one page in turn; those after the first three by night."""


@pytest.mark.parametrize(("door", "path"), CASES)
def test_no_foreign_request(page, address, door, path):
    """On one page in turn; test_outside_text reads what each door writes on more of them."""
    own, asked, refused = urlsplit(address).netloc, [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda line: refused.append(line.text) if "Content Security Policy" in line.text else None)
    page.goto(f"{address}/{path}?{urlencode(DOORS[door])}")
    page.get_by_role("heading", level=1).first.wait_for()
    draw(page)
    foreign = [url for url in asked if urlsplit(url).scheme in ("http", "https", "ws") and urlsplit(url).netloc != own]
    assert (foreign, refused) == ([], [])


@pytest.mark.slow
def test_headers_of_the_page(address):
    with urlopen(address) as reply:
        assert dict(part.split(" ", 1) for part in reply.headers[POLICY].split("; ")) == {
            "default-src": "'self'",
            "script-src": "'self' blob: 'unsafe-inline' 'unsafe-eval'",
            "style-src": "'self' 'unsafe-inline'",
            "img-src": "'self' data: blob:",
            "font-src": "'self' data:",
            "connect-src": "'self'",
            "worker-src": "'self' blob:",
            "object-src": "'none'",
            "base-uri": "'self'",
            "form-action": "'self'",
            "frame-ancestors": "'self'",
        }


ANSWERS = {page.answers_at for page in PAGES if page.answers_at is not None}
ADDRESSES = [
    *(("GET", f"/{page.path}", 200) for page in PAGES),
    *(("GET", f"/api/{name}?context=x", 422) for name in sorted(ANSWERS)),
    ("GET", "/api/report?model=Qwen/Qwen3-8B&gpu=l4", 200),
    ("GET", "/api/openapi.json", 200),
    ("GET", "/api/docs", 200),
    ("GET", "/api/none", 404),
    ("POST", "/api/report", 405),
    ("GET", f"/scripts/{scripts.SCRIPTS.version}/{next(iter(scripts.SCRIPTS.packed))}", 200),
    ("GET", "/scripts/older/plot.js", 404),
    ("GET", f"/lists/{lists.LISTS.version}/en.json", 200),
    ("GET", "/lists/older/en.json", 404),
    ("GET", "/favicon.png", 200),
    ("GET", "/media/none.png", 404),
    ("GET", "/component/none/index.html", 404),
    ("GET", "/_stcore/bidi-components/none/x.js", 404),
    ("GET", "/_stcore/health", 200),
    ("GET", "/_stcore/host-config", 200),
    ("GET", "/_stcore/metrics", 404),
    ("GET", "/metrics", 404),
    ("GET", "/ready", 200),
    ("PUT", "/_stcore/upload_file/none/none", 403),
    ("GET", "/report", 200),  # Streamlit's index for any path that is not a file
    ("GET", "//example.org/%2e%2e", 400),  # a path that Streamlit refuses
]
"""Every route: pages, answers for programs, scripts, lists, Streamlit's own, and a miss of each."""


def test_headers_of_every_answer(address):
    """What the index names (scripts, styles, images) too."""
    with urlopen(address) as reply:
        named = set(re.findall(r'(?:src|href)="\.?/?((?:static|favicon)[^"]*)"', reply.read().decode()))
    assert len(named) > 2
    wrong = {}
    for method, path, expected in (*ADDRESSES, *(("GET", f"/{name}", 200) for name in named)):
        got, headers = answer(address, method, path)
        guards = headers.get(POLICY), headers.get("X-Content-Type-Options"), headers.get("Referrer-Policy")
        if (got, *guards) != (expected, policy(""), "nosniff", "strict-origin-when-cross-origin"):
            wrong[method, path] = (got, *guards)
    assert wrong == {}


def test_headers_of_an_error_of_ours():
    def fail(_):
        raise ZeroDivisionError("of ours")

    app = Starlette(routes=[Route("/", fail)], middleware=[Middleware(Headers)])
    reply = TestClient(app, raise_server_exceptions=False).get("/")
    assert (reply.status_code, reply.headers[POLICY]) == (500, policy(""))
    assert "of ours" not in reply.text


def answer(address, method, path):
    """Status and headers of an answer, its path as it is written."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request(method, path)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status, reply.headers


PROXY = "127.0.0.1,::ffff:127.0.0.1"
"""A server on all addresses sees one of IPv4 in the second form."""


@pytest.fixture(scope="module")
def configured():
    """The address of an app that its operator has set up."""
    few = {limits.SESSIONS: "2", limits.ANSWERS: "3", "FORWARDED_ALLOW_IPS": PROXY}
    with running_app(**few, **{METRICS: "yes", EMBEDDING: "https://example.org"}) as address:
        yield address


@pytest.mark.slow
def test_sessions_and_answers_of_one_address(configured):
    """Behind a proxy that uvicorn is told to trust, each reader by the address that the proxy names."""
    stream = f"{configured.replace('http', 'ws')}/_stcore/stream"

    def opens(reader):
        headers = {"X-Forwarded-For": reader}
        try:
            with connect(stream, subprotocols=["streamlit"], origin=configured, additional_headers=headers):
                return 101
        except InvalidStatus as refusal:
            return refusal.response.status_code

    def asks(reader):
        request = Request(f"{configured}/api/hardware", headers={"X-Forwarded-For": reader})
        return status(request)

    assert [opens("8.8.8.8") for _ in range(3)] == [101, 101, 429]
    assert opens("9.9.9.9") == 101
    assert [asks("8.8.8.8") for _ in range(4)] == [200, 200, 200, 429]
    assert asks("9.9.9.9") == 200


@pytest.mark.slow
def test_a_first_frame_of_140_mb_is_not_read(address):
    """It ends the connection as too big (1009, RFC 6455 section 7.4.1) before anything parses it; who still sends may
    not come to read that."""
    with connect(
        f"{address.replace('http', 'ws')}/_stcore/stream", subprotocols=["streamlit"], origin=address
    ) as socket:
        with suppress(ConnectionClosed):  # while it is being sent
            socket.send(bytes(140 * 10**6))
        with pytest.raises(ConnectionClosedError) as closed:
            socket.recv(timeout=30)
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    assert status(f"{address}/_stcore/health") == 200


@pytest.mark.slow
def test_metrics_are_shown_where_they_are_asked_for(address, configured):
    for place, wished in ((configured, True), (address, False)):
        assert status(f"{place}/_stcore/metrics") == (200 if wished else 404)
        with urlopen(place) as reply:
            assert ("frame-ancestors 'self' https://example.org" in reply.headers[POLICY]) == wished


def status(url):
    try:
        with urlopen(url) as reply:
            return reply.status
    except HTTPError as error:
        return error.code
