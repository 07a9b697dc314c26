"""Work that one address may ask of this server in a minute."""

import os
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Lock
from time import monotonic

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

SESSIONS = "WEIGHBRIDGE_NEW_SESSIONS"
"""Environment variable: new sessions of one address in a minute; 0 for any number."""
LOOK_UPS = "WEIGHBRIDGE_HUB_LOOK_UPS"
"""Environment variable: look-ups at the Hub for one address in a minute; 0 for any number."""
ANSWERS = "WEIGHBRIDGE_API_ANSWERS"
"""Environment variable: answers for programs at one address in a minute; 0 for any number."""
USUAL = {SESSIONS: "120", LOOK_UPS: "60", ANSWERS: "300"}
"""A class of readers may share one address."""
SUBNET = 64
"""Bits of an IPv6 address that one customer has."""
MOST_ADDRESSES = 100_000
"""Addresses that are counted in a minute: about 20 MB."""
MINUTE = 60.0


class PerMinute:
    """Counts what each address asked in this minute. Addresses of private networks are not counted: they are those of
    a proxy, behind which are many. A proxy that uvicorn trusts (FORWARDED_ALLOW_IPS) hands the readers' own on."""

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.most, self.clock = most, clock
        self.lock, self.counts, self.until = Lock(), Counter[str](), 0.0

    def allows(self, host: str | None) -> bool:
        """Whether an address may ask once more."""
        if self.most == 0 or (network := network_of(host)) is None:
            return True
        with self.lock:
            if self.clock() >= self.until or len(self.counts) >= MOST_ADDRESSES:
                self.counts.clear()
                self.until = self.clock() + MINUTE
            self.counts[network] += 1
            return self.counts[network] <= self.most


def network_of(host: str | None) -> str | None:
    """The address, or the part of an IPv6 address, that is one reader's; None for none and for private ones."""
    try:
        address: IPv4Address | IPv6Address = ip_address((host or "").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if not address.is_global:
        return None
    return str(address) if isinstance(address, IPv4Address) else address.exploded[: SUBNET // 4 + SUBNET // 16 - 1]


def stated(name: str) -> int:
    """The number in an environment variable, or the usual one."""
    text = os.environ.get(name, "")
    return int(text if text.isascii() and text.isdecimal() else USUAL[name])


LOOKED_UP, ANSWERED = PerMinute(stated(LOOK_UPS)), PerMinute(stated(ANSWERS))


class Visitors:
    """No more than so many new sessions for one address in a minute."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.sessions = PerMinute(stated(SESSIONS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self.sessions.allows((scope.get("client") or (None,))[0]):
            refusal = PlainTextResponse("Too many sessions were opened from this address; wait a minute.", 429)
            return await WebSocket(scope, receive, send).send_denial_response(refusal)
        await self.app(scope, receive, send)
