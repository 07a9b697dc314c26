"""Scripts of the page's own elements and Plotly's basic bundle, which this server hands out once. In the message of an
element its script would come along with every new value."""

from collections.abc import Callable, Mapping
from functools import cache
from gzip import compress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parents[2] / "scripts"
VERSION = sha256(b"".join(file.read_bytes() for file in sorted(FOLDER.glob("*.js")))).hexdigest()[:12]
"""Version in the address, so that a browser keeps them until one changes."""
HEADERS = {"Content-Encoding": "gzip", "Cache-Control": "public, max-age=31536000, immutable"}


@cache
def packed() -> Mapping[str, bytes]:
    """Each script as it goes over the wire, by name."""
    return MappingProxyType({file.name: compress(file.read_bytes()) for file in FOLDER.glob("*.js")})


def hand_out(request: Request) -> Response:
    given = request.path_params
    script = packed().get(given["name"]) if given["version"] == VERSION else None
    if script is None:
        return Response("There is no such script.", status_code=404)
    return Response(script, media_type="text/javascript", headers=HEADERS)


def folder(name: str) -> str:
    """Address of a folder, below the path that the server has."""
    base = st.get_option("server.baseUrlPath").strip("/")
    return f"{base and '/' + base}/{name}"


def address() -> str:
    """Address of the scripts of this version."""
    return f"{folder('scripts')}/{VERSION}"


def route() -> Route:
    """Route to the scripts of this version; those of any other are not found, for what a browser is told to keep must
    be what its page asks for, and a route of this version alone would leave the others to Streamlit, which answers with
    the page."""
    return Route(f"{folder('scripts')}/{{version}}/{{name:path}}", hand_out)


def element(name: str, script: str, *, isolate_styles: bool = False) -> Callable[..., Any]:
    """An element of Streamlit that is drawn by `export default` of a script of the folder. What all scripts import is
    fetched with it, not after it. Its data goes in a list: in a mapping, Streamlit looks for data frames, value by
    value, for a tenth of a millisecond each."""
    js = f"""
const script = import(new URL("{address()}/{script}", document.baseURI));
import(new URL("{address()}/dom.js", document.baseURI));
export default async (given) => (await script).default({{...given, data: given.data[0]}});
"""
    mount = st.components.v2.component(name, js=js, isolate_styles=isolate_styles)
    return lambda *, data, **how: mount(data=[data], **how)
