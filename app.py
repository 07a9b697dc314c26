"""The dashboard: `streamlit run app.py`. The main script is in pages/, for Streamlit takes a folder of that name beside
the main script for the pages of its older multipage mode."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import streamlit as st

from pages.parts.outputs import answer, cards, charts, frame, sunburst, training_step  # noqa: F401  # loaded once
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import trained, weighed


@asynccontextmanager
async def warm(_: st.App) -> AsyncIterator[dict[str, Any]]:
    """Everything that stays is loaded before the first reader comes, and then left alone by the garbage collection that
    Streamlit runs after every script."""
    weighed(Scenario())
    trained(Scenario())
    gc.collect()
    gc.freeze()
    yield {}


app = st.App("pages/router.py", lifespan=warm)
