"""Headers of every answer over HTTP, and the address that only asks for the server's own figures."""

import os

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EMBEDDING = "WEIGHBRIDGE_EMBEDDED_IN"
"""Environment variable: the sites, apart from our own, that may show the page in a frame, as in a
Content-Security-Policy; `*` for all."""
METRICS = "WEIGHBRIDGE_METRICS"
"""Environment variable: any text opens the address of the metrics."""


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
    """Headers for the browser's own guards on every answer, that to an error of ours among them, and no metrics unless
    they are asked for."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.headers = {
            "Content-Security-Policy": policy(os.environ.get(EMBEDDING, "")),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "strict-origin-when-cross-origin",
        }
        self.metrics = bool(os.environ.get(METRICS))

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

        if scope["path"].endswith("/_stcore/metrics") and not self.metrics:
            return await PlainTextResponse("Not found", 404)(scope, receive, answered)
        try:
            await self.app(scope, receive, answered)
        except Exception:  # Starlette would answer, outside of all middleware
            if not has_begun:
                await PlainTextResponse("Internal Server Error", 500)(scope, receive, answered)
            raise
