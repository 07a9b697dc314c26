"""Plotly in the reader's browser: its basic bundle, and a figure as JSON.

Streamlit's own Plotly element brings four times as many bytes and draws before the numbers are on screen.
"""

from json import dumps
from typing import Any

import streamlit as st

from pages.parts.outputs import scripts
from pages.parts.outputs.downloads import table as csv_table
from pages.parts.screen import download
from pages.parts.words import percent, say

CONFIG = {"displayModeBar": False, "responsive": True}
BASIC = {"bar", "pie", "scatter"}
"""Kinds of traces that npm's plotly.js-basic-dist-min draws."""
CHART = scripts.element("weighbridge_chart", "chart.js")


TABLE = 30
"""Pixels of the line with its figures: as files, and in the chart's place, as a table."""


TITLE = 48
"""And of its heading."""


def draw(
    key: str,
    label: str,
    figure: dict[str, Any],
    tree: dict[str, Any] | None = None,
    *,
    tabled: bool = False,
    titled: bool = False,
) -> None:
    """A figure with its name, which may head it, a sentence and a table, unless a page has a better one. With a tree it
    is a pie whose slices can be looked into. What the basic bundle does not draw is left to Streamlit."""
    if any(trace["type"] not in BASIC for trace in figure["data"]):
        st.plotly_chart(figure, key=key, theme=None, config=CONFIG, alt=label)
        files(key, label, *figures_of(figure["data"]))
        return
    CHART(
        key=key,
        data={
            "label": label,
            "titled": titled,
            "told": largest_slice(tree) if tree else span(figure),
            "table": None if tabled else say("As a table"),
            "figure": figure | {"config": CONFIG},
            "tree": tree,
        },
        height=figure["layout"]["height"] + TABLE + (TITLE if titled else 0),
    )


def figures_of(traces: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """A head and rows of what Streamlit draws: of a map a row for each of its rows, of boxes one for each point."""
    cells = traces[0]
    if cells["type"] == "heatmap":
        lines = zip(cells["customdata"], cells["text"], strict=True)
        return ["name", *cells["x"]], [[names[0], *line] for names, line in lines]
    points = ((box["name"], *point) for box in traces for point in zip(box["text"], box["x"], strict=True))
    return ["kind", "name", "percent"], [list(point) for point in points]


def files(key: str, label: str, head: list[str], lines: list[list[Any]]) -> None:
    """The figures of a chart as files, as charts of the browser have them below."""
    written = {
        "csv": ("text/csv", csv_table(head, lines)),
        "json": ("application/json", dumps([dict(zip(head, line, strict=True)) for line in lines], indent=1)),
    }
    with st.container(horizontal=True, horizontal_alignment="right", gap="small", key=f"{key}_files"):
        for ending, (mime, text) in written.items():
            download(f".{ending}", f"{key}_{ending}", f"{label}.{ending}", mime, text, icon=None, type="tertiary")


def largest_slice(tree: dict[str, Any]) -> str | None:
    """A sentence on the largest slice of a pie."""
    root = tree["root"]
    name, size, *_ = max(root[4], key=lambda node: node[1], default=(None, 0))
    return (
        None if name is None else say("The largest part is {name}: {share}.", name=name, share=percent(size / root[1]))
    )


def span(figure: dict[str, Any]) -> str | None:
    """A sentence on the longest and the shortest bar, with all their parts."""
    bars = [trace for trace in figure["data"] if trace["type"] == "bar" and trace.get("name")]
    if not bars:
        return None
    along, across = ("x", "y") if bars[0].get("orientation") == "h" else ("y", "x")
    names, sums = bars[0][across], [sum(sizes) for sizes in zip(*(bar[along] for bar in bars), strict=True)]
    if not sums:
        return None
    ends = (max(range(len(sums)), key=sums.__getitem__), min(range(len(sums)), key=sums.__getitem__))
    most, least = (f"{names[end]} {sums[end]:,.2f} {figure['layout'].get('meta', '')}".strip() for end in ends)
    return say("The most: {most}; the least: {least}.", most=most, least=least)
