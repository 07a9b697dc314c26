"""A link that somebody else wrote makes the browser ask nobody but this server, and every answer says so."""

from contextlib import suppress
from itertools import cycle
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.sync.client import connect

from pages.parts.headers import EMBEDDING, METRICS
from tests.pages.conftest import running_app
from tests.pages.every_page import draw
from tests.pages.test_outside_text import DOORS

PLACES = ("", "train", "plan", "derive", "compare", "attention")
CASES = [
    pytest.param(door, path, marks=() if number < len(PLACES) else pytest.mark.sweep)
    for number, (door, path) in enumerate(zip(DOORS, cycle(PLACES), strict=False))
]
"""Each door on one page in turn; those after the first of each page by night."""


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
        policy = dict(part.split(" ", 1) for part in reply.headers["Content-Security-Policy"].split("; "))
        assert policy["img-src"] == "'self' data: blob:"
        assert policy["connect-src"] == policy["frame-ancestors"] == "'self'"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"


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
def test_metrics_are_shown_where_they_are_asked_for(address):
    with running_app(**{METRICS: "yes", EMBEDDING: "https://example.org"}) as asked:
        for place, wished in ((asked, True), (address, False)):
            assert status(f"{place}/_stcore/metrics") == (200 if wished else 404)
            with urlopen(place) as reply:
                policy = reply.headers["Content-Security-Policy"]
            assert ("frame-ancestors 'self' https://example.org" in policy) == wished


def status(url):
    try:
        with urlopen(url) as reply:
            return reply.status
    except HTTPError as error:
        return error.code
