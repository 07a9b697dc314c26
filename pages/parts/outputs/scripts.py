"""Scripts of the page's own elements and Plotly's bundle, which this server hands out once. In the message of an
element its script would come along with every new value."""

from collections.abc import Callable, Mapping
from functools import cached_property
from gzip import compress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HEADERS = {"Content-Encoding": "gzip", "Cache-Control": "public, max-age=31536000, immutable"}


class Files:
    """Files of one kind that this server hands out once, below a folder of their version: a browser keeps them until
    one changes. Those of any other version are not found, for what a browser is told to keep must be what its page asks
    for, and a route of this version alone would leave the others to Streamlit, which answers with the page."""

    def __init__(self, folder: str, media_type: str, read: Callable[[], Mapping[str, bytes]]) -> None:
        self.folder, self.media_type, self.read = folder, media_type, read

    @cached_property
    def packed(self) -> Mapping[str, bytes]:
        """Each file as it goes over the wire, by name."""
        return MappingProxyType({name: compress(data, mtime=0) for name, data in self.read().items()})

    @cached_property
    def version(self) -> str:
        return sha256(b"".join(data for _, data in sorted(self.packed.items()))).hexdigest()[:12]

    def address(self, name: str) -> str:
        return f"{folder(self.folder)}/{self.version}/{name}"

    def hand_out(self, request: Request) -> Response:
        given = request.path_params
        data = self.packed.get(given["name"]) if given["version"] == self.version else None
        if data is None:
            return Response("There is no such file.", status_code=404)
        return Response(data, media_type=self.media_type, headers=HEADERS)

    def route(self) -> Route:
        return Route(f"{folder(self.folder)}/{{version}}/{{name:path}}", self.hand_out)


def folder(name: str) -> str:
    """Address of a folder, below the path that the server has."""
    base = st.get_option("server.baseUrlPath").strip("/")
    return f"{base and '/' + base}/{name}"


SCRIPTS = Files(
    "scripts",
    "text/javascript",
    lambda: {file.name: file.read_bytes() for file in (Path(__file__).parents[2] / "scripts").glob("*.js")},
)


def element(name: str, script: str, *, isolate_styles: bool = False) -> Callable[..., Any]:
    """An element of Streamlit that is drawn by `export default` of a script of the folder. What all scripts import is
    fetched with it, not after it. Its data goes in a list: in a mapping, Streamlit looks for data frames, value by
    value, for a tenth of a millisecond each."""
    js = f"""
const script = import(new URL("{SCRIPTS.address(script)}", document.baseURI));
import(new URL("{SCRIPTS.address("dom.js")}", document.baseURI));
export default async (given) => (await script).default({{...given, data: given.data[0]}});
"""
    mount = st.components.v2.component(name, js=js, isolate_styles=isolate_styles)
    return lambda *, data, **how: mount(data=[data], **how)
