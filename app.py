"""The dashboard: `streamlit run app.py`. The main script is in pages/: Streamlit takes a folder of that name next to
the main script for the pages of its older multipage mode."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware
from starlette.routing import Mount

from pages import parts
from pages.api import api
from pages.parts import direct, operations
from pages.parts.inputs import lists
from pages.parts.limits import Visitors
from pages.parts.operations import Headers
from pages.parts.outputs import scripts
from pages.parts.outputs.preview import Addresses
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import trained, weighed


@asynccontextmanager
async def warm(_: st.App) -> AsyncIterator[dict[str, Any]]:
    """Everything that stays is loaded before the first reader comes, and then left alone by the garbage collection that
    Streamlit runs after every script."""
    folder = parts.__path__[0]
    for file in sorted(Path(folder).rglob("*.py")):
        import_module(".".join((parts.__name__, *file.relative_to(folder).with_suffix("").parts)))
    weighed(Scenario())
    trained(Scenario())
    for files in (scripts.SCRIPTS, lists.LISTS):
        files.version  # noqa: B018  # a cached property: files are packed now, not while the first reader waits
    direct.quicken()
    gc.collect()
    gc.freeze()
    async with state.running():
        yield {}


state = operations.Operations()

app = st.App(
    "pages/router.py",
    lifespan=warm,
    routes=[scripts.SCRIPTS.route(), lists.LISTS.route(), Mount(scripts.folder("api"), app=api())],
    middleware=[
        Middleware(Headers),
        Middleware(operations.Gate, state),
        Middleware(Visitors),
        Middleware(Addresses),
        *direct.middleware(),
    ],
)
