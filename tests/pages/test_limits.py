"""How much one address may ask of this server."""

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse

from calc import ConfigError
from pages.parts import limits
from pages.parts.limits import PerMinute, Visitors
from pages.parts.state import published
from pages.parts.state.scenario import Source

READER, OTHER = "8.8.8.8", "9.9.9.9"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (READER, READER, True),
        (READER, OTHER, False),
        ("2606:4700::1", "2606:4700::2", True),
        ("2606:4700::1", "2606:4700:0:1::1", False),
        ("::ffff:8.8.8.8", READER, True),
    ],
)
def test_one_address_or_the_network_of_one_reader(first, second, same):
    limit = PerMinute(1)
    assert [limit.allows(first), limit.allows(first)] == [True, False]
    assert limit.allows(second) != same


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.7", "172.17.0.1", "192.168.1.2", "::1", "fd00::1", None, "", "x"]
)
def test_a_proxy_is_not_counted(host):
    """Behind it are many, and its own address is one of a private network."""
    limit = PerMinute(1)
    assert all(limit.allows(host) for _ in range(5))


def test_a_minute_later_one_may_ask_again():
    now = [0.0]
    limit = PerMinute(2, lambda: now[0])
    assert [limit.allows(READER) for _ in range(3)] == [True, True, False]
    now[0] = 61.0
    assert limit.allows(READER)


def test_no_more_addresses_are_remembered_than_so_many(monkeypatch):
    monkeypatch.setattr(limits, "MOST_ADDRESSES", 100)
    limit = PerMinute(1)
    for n in range(10_000):
        limit.allows(f"8.{n // 65536}.{n // 256 % 256}.{n % 256}")
    assert len(limit.counts) <= 100


def test_sessions_of_one_address(monkeypatch):
    monkeypatch.setenv(limits.SESSIONS, "2")

    async def stream(websocket):
        await websocket.accept()
        await websocket.close()

    app = Visitors(Starlette(routes=[WebSocketRoute("/_stcore/stream", stream)]))
    reader, other = (TestClient(app, client=(host, 50_000)) for host in (READER, OTHER))

    def opens(client):
        try:
            with client.websocket_connect("/_stcore/stream"):
                return True
        except WebSocketDenialResponse as refusal:
            assert (refusal.status_code, "wait a minute" in refusal.text) == (429, True)
            return False

    assert [opens(reader) for _ in range(3)] == [True, True, False]
    assert opens(other)


def test_look_ups_at_the_hub_for_one_address(monkeypatch):
    asked = []
    monkeypatch.setattr(published, "LOOKED_UP", PerMinute(1))
    monkeypatch.setattr(published, "address", lambda: READER)
    monkeypatch.setattr(published.hub, "fetch", lambda *question: asked.append(question) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        published.of_hub(Source(model="a/b"))
    refused = published.of_hub(Source(model="a/c"))
    assert isinstance(refused.error, ConfigError)
    assert "1 models a minute" in str(refused.error)
    assert len(asked) == 1


@pytest.mark.parametrize(("text", "number"), [("", 120), ("7", 7), ("0", 0), ("many", 120), ("-1", 120)])
def test_the_number_of_an_environment_variable(monkeypatch, text, number):
    monkeypatch.setenv(limits.SESSIONS, text)
    assert limits.stated(limits.SESSIONS) == number
