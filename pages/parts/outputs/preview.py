"""Addresses as programs and old links fetch them: the finding as the title of a page that a chat or a mail previews,
and the way from what a page shows no more. A browser gets its title from the page itself; over https it says what it
fetches, and no program does."""

from contextvars import copy_context
from functools import partial
from html import escape
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.parts import words
from pages.parts.limits import ANSWERED
from pages.parts.outputs.findings import ALONE, SHOWN, alone, plain, title
from pages.parts.state import query, session
from pages.parts.state.published import is_preset, published
from pages.parts.state.query import Page
from pages.parts.state.scenario import Scenario, Source
from presets import models

BROWSER = "sec-fetch-dest"
"""A header of every request of a browser, and of no program's. Source: www.w3.org/TR/fetch-metadata."""
PLACE = b"<title>Streamlit</title>"


class Addresses:
    """Pages at their addresses: one that moved is where its numbers are now, and for a program the head of a page says
    what its address has found."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = addressed(scope)
        if page is not None and (there := destination(page, scope)) is not None:
            return await RedirectResponse(there)(scope, receive, send)
        if page is None or BROWSER in Headers(scope=scope):
            return await self.app(scope, receive, send)
        start: Message = {}
        body = b""

        async def answered(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            if PLACE in body and ANSWERED.allows((scope.get("client") or (None,))[0]):
                params = dict(parse_qsl(scope["query_string"].decode("latin-1")))
                text = await to_thread.run_sync(partial(copy_context().run, headline, page, params))
                body = body.replace(PLACE, head(text).encode())
                MutableHeaders(raw=start["headers"])["Content-Length"] = str(len(body))
            await send(start)
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, answered)


def addressed(scope: Scope) -> Page | None:
    """The page that is fetched; None where it is something else."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    return query.page_at(scope["path"])


def headline(page: Page, params: dict[str, str]) -> str:
    """Finding of a page's address. Nothing is computed for a model that is no preset, and the Hub is not asked."""
    words.SPOKEN.set(params.get("lang") if params.get("lang") in words.CATALOGUES else "en")
    session.PROGRAM.set(session.Program({}))
    source = {"model": params["model"]} if "model" in params else {}
    if not {"pasted", "revision"}.isdisjoint(params) or not query.shareable(params):
        return NAME
    try:
        if not is_preset(Source.model_validate(source)):
            return NAME
    except ValueError:
        return NAME
    page = query.moved(page, params) or page
    question = {name: text for name, text in params.items() if name != "lang"}
    scenario, _ = query.decode(question, page, Scenario(), lambda chosen: published(chosen).settings or {})
    if page == query.COMPARE and not all(is_preset(other.source) for other in scenario.comparison.others):
        return NAME
    if page == query.TOGETHER and not all(other.model in models() for other in scenario.sharing.share_with):
        return NAME
    if page in ALONE:
        return f"{plain(alone(scenario, page).sentence)} · {NAME}"
    return title(SHOWN[page].calculate(scenario), page)


NAME = "Weighbridge"


def head(text: str) -> str:
    """The title, and what the Open Graph protocol calls it. Source: ogp.me."""
    tags = {"og:title": text, "og:type": "website", "og:site_name": NAME}
    meta = "".join(f'<meta property="{name}" content="{escape(value)}" />' for name, value in tags.items())
    return f"<title>{escape(text)}</title>{meta}"


def destination(page: Page, scope: Scope) -> str | None:
    """The address of what a page's link meant before it moved, relative to the one that is fetched, for a proxy may
    have taken away what stands before both; None where the page is still there."""
    text = scope.get("query_string", b"").decode("latin-1")
    if scope["path"].rstrip("/").rpartition("/")[0].endswith("/api"):  # an answer is called as its page
        return None
    there = query.moved(page, dict(parse_qsl(text)))
    return None if there is None else f"{'../' if scope['path'].endswith('/') else ''}{there.path}?{text}"
