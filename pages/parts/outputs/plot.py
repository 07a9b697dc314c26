"""Plotly in the reader's browser: its bundle for charts with two axes, and a figure as JSON.

Streamlit's own Plotly element brings three times as many bytes and draws before the numbers are on screen.
"""

from typing import Any

from pages.parts.outputs import scripts
from pages.parts.words import percent, say

CHART = scripts.element("weighbridge_chart", "chart.js")


def draw(
    key: str,
    label: str,
    figure: dict[str, Any],
    tree: dict[str, Any] | None = None,
    *,
    tabled: bool = False,
    titled: bool = False,
    rows: tuple[list[str], list[list[Any]]] | None = None,
) -> Any:
    """A figure with its name, which may head it, its key, a sentence and a table, unless a page has a better one.
    `rows`, with their head, are what its table and files hold in place of all its points. With a tree it is a pie whose
    slices can be looked into. Returns the `customdata` of the point that was clicked, where the figure has
    `clickmode`."""
    clicked = CHART(
        key=key,
        data={
            "label": label,
            "title": label if titled else None,
            "told": largest_slice(tree) if tree else span(figure),
            "table": None if tabled else say("As a table"),
            "figure": figure,
            "tree": tree,
            "file": rows,
        },
        on_point_change=lambda: None,
    )
    return clicked.point


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
