"""Charts of speed: what a plan trades."""

from collections.abc import Sequence
from typing import Any

from calc.hardware import find_gpu
from calc.time import Point
from pages.parts import words
from pages.parts.outputs.charts import PLAIN, Figure, Theme, figure, small
from pages.parts.words import say

HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6F63C0", "#8A6350")
"""Colours of GPU models, in turn."""
AXIS = {"type": "log", "dtick": "D2", "tickformat": ",.12~g"}


def frontier(points: Sequence[Point], mine: Sequence[Point], chosen: Point, theme: Theme) -> Figure:
    """Tokens a second of a GPU over those of one user: what all GPUs together allow, what the chosen plan's GPU allows,
    and where the plan stands."""
    name = find_gpu(chosen.gpu).name
    lines = [
        line(say("Best of all"), points, {"color": theme.text, "width": 1.5, "dash": "dot"}, 5),
        line(name, mine, {"color": HUES[0], "width": 2}, 6),
        line(say("This plan"), [chosen], {"color": HUES[1]}, 14) | {"mode": "markers"},
    ]
    lines[-1]["marker"] |= {"symbol": "star"}
    return figure(
        lines,
        theme,
        height=380,
        margin={"l": 8, "r": 8, "t": 40, "b": 52},
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
        xaxis=AXIS | {"title": small(say("Tokens/s per user"))},
        yaxis=AXIS | {"title": small(say("Tokens/s per GPU"))},
    )


def line(name: str, points: Sequence[Point], look: dict[str, Any], size: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [point.tokens_per_s_per_user for point in points],
        "y": [point.tokens_per_s_per_gpu for point in points],
        "text": [described(point) for point in points],
        "line": look,
        "marker": {"size": size, "color": look["color"]},
        "hovertemplate": say(
            "<b>{what}</b><br>{user} tokens/s per user, {gpu} per GPU",
            what="%{text}",
            user="%{x:,.3~s}",
            gpu="%{y:,.3~s}",
        )
        + PLAIN,
    }


def described(point: Point) -> str:
    """H100 SXM 80GB, TP 4, fp8, 64 requests."""
    gpu, layout = find_gpu(point.gpu).name, words.layout(point.layout)
    parts = [part for part in (gpu, layout, point.weights) if part]
    return say("{what}, {n:,} requests", what=", ".join(parts), n=point.batch)
