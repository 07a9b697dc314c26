"""Plotly in the reader's browser: its basic bundle, which this server hands out once, and a figure as JSON.

Streamlit's own Plotly element brings four times as many bytes and draws before the numbers are on screen.
"""

from functools import cache
from gzip import compress
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CONFIG = {"displayModeBar": False, "responsive": True}
HERE = Path(__file__).parents[2] / "plotly"
BASIC = {"bar", "pie", "scatter"}
PATH = "/plotly-basic-4.1.1.min.js"
HEADERS = {"Content-Encoding": "gzip", "Cache-Control": "public, max-age=31536000, immutable"}
CHART = st.components.v2.component("weighbridge_chart", js=(HERE / "chart.js").read_text("utf-8"), isolate_styles=False)


@cache
def packed() -> bytes:
    """The bundle of npm's plotly.js-basic-dist-min, as it goes over the wire."""
    return compress((HERE / "plotly-basic.min.js").read_bytes())


def bundle(request: Request) -> Response:
    return Response(packed(), media_type="text/javascript", headers=HEADERS)


ROUTE = Route(PATH, bundle)


def draw(key: str, label: str, figure: dict[str, Any], tree: dict[str, Any] | None = None) -> None:
    """A figure, and what it shows in words. With a tree it is a pie whose slices can be looked into. What the basic
    bundle does not draw is left to Streamlit."""
    if any(trace["type"] not in BASIC for trace in figure["data"]):
        st.plotly_chart(figure, key=key, theme=None, config=CONFIG)
        return
    base = st.get_option("server.baseUrlPath").strip("/")
    url = f"/{base}{PATH}" if base else PATH
    CHART(
        key=key,
        data={"url": url, "label": label, "figure": figure | {"config": CONFIG}, "tree": tree},
        height=figure["layout"]["height"],
    )
