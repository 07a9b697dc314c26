"""Old addresses of what a page shows no more: the browser is sent on before anything is drawn, so that Back never meets
them."""

from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pages.parts.outputs.preview import addressed
from pages.parts.state.query import moved


class Moved:
    """Pages whose links lead to where their numbers are now."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        there = destination(scope)
        answer = self.app if there is None else RedirectResponse(there)
        await answer(scope, receive, send)


def destination(scope: Scope) -> str | None:
    """The address, relative to the one that is fetched, for a proxy may have taken away what stands before both; None
    where the page is still there."""
    page = addressed(scope)
    query = scope.get("query_string", b"").decode("latin-1")
    there = None if page is None or is_for_programs(scope["path"]) else moved(page, dict(parse_qsl(query)))
    if there is None:
        return None
    return f"{'../' if scope['path'].endswith('/') else ''}{there.path}?{query}"


def is_for_programs(path: str) -> bool:
    """Whether it lies below /api, where an answer is called as its page."""
    return path.rstrip("/").rpartition("/")[0].endswith("/api")
