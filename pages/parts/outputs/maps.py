"""Heat maps of what fits where, and a roofline."""

from collections.abc import Callable, Sequence
from math import log10

import numpy as np

from calc.hardware import GPU
from calc.serving import MOST_TOKENS
from calc.time import Array, OperatingPoint
from pages.parts import words
from pages.parts.outputs.charts import DARK, KEY_ABOVE, LIGHT, Figure, Theme, figure, hover, small
from pages.parts.words import say

CELL = 24
"""Pixels of a row."""
BEGINNING, END = 15, 9
"""Characters of a long name of a row; the rest is in the hover text."""
Scale = tuple[tuple[float, str], ...]
INK = {LIGHT: "#14202B", DARK: "#F2F4F7"}  # on any of these shades
SCALE: dict[Theme, Scale] = {LIGHT: ((0.0, "#E8F1FA"), (1.0, "#74AEDB")), DARK: ((0.0, "#16242F"), (1.0, "#1F6597"))}
MISSING: dict[Theme, Scale] = {
    LIGHT: ((0.0, "#E8943A"), (0.999, "#F9E3C6"), (1.0, "#EEF1F4")),
    DARK: ((0.0, "#9A4F0F"), (0.999, "#4A321A"), (1.0, "#23272E")),
}
"""Colours from little of what a row could have to all of it, which has a hue of its own."""
ROOFS = {"fp4": "#CC79A7", "fp8": "#D55E00", "bf16": "#0072B2", "fp16": "#009E73"}
"""Peaks that are drawn, and their colours."""


def tokens(n: float) -> str:
    """A context in short: 131,072 is 128k."""
    if n >= MOST_TOKENS:
        return say("no limit")
    if n >= 2**20:
        return f"{n / 2**20:.3g}M"
    return f"{n / 1024:.0f}k" if n >= 10_240 else f"{n / 1024:.1f}k" if n >= 1024 else f"{n:.0f}"


def shortened(name: str) -> str:
    """A name without its middle: its end tells it from others."""
    return name if len(name) <= BEGINNING + END + 1 else f"{name[:BEGINNING].rstrip()}…{name[-END:].lstrip()}"


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Array,
    write: Callable[[float], str],
    theme: Theme,
    most: Array | None = None,
) -> Figure:
    """A cell for each row and format, darker where the figure is larger; empty where nothing fits. With the most that
    each row could have, cells that have it are pale, and the others the darker the less of it they have."""
    with np.errstate(divide="ignore"):
        shades = np.where(values > 0, np.log10(values), np.nan)
    if most is not None:
        shades = np.minimum(0, shades - np.log10(most)[:, None])
    low, high = float(np.nanmin(shades)), float(np.nanmax(shades)) if most is None else 0.0
    cells = {
        "type": "heatmap",
        "x": list(columns),
        "y": list(range(len(rows))),
        "z": [[None if np.isnan(shade) else float(shade) for shade in line] for line in shades],
        "zmin": low if most is None else min(low, -1e-9),
        "zmax": max(high, low + 1e-9),
        "colorscale": (SCALE if most is None else MISSING)[theme],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "text": [[write(float(value)) if value > 0 else "" for value in line] for line in values],
        "texttemplate": "%{text}",
        "textfont": {"size": 12, "color": INK[theme]},
        "customdata": [[name] * len(columns) for name in rows],
        "hovertemplate": hover(
            "<b>{name}</b>, {format}: {figure}", name="%{customdata}", format="%{x}", figure="%{text}"
        ),
    }
    return figure(
        [cells],
        theme,
        height=CELL * len(rows) + 50,
        margin={"l": 8, "r": 8, "t": 40, "b": 8},
        xaxis={"side": "top", "showgrid": False, "type": "category"},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "tickmode": "array",
            "tickvals": list(range(len(rows))),
            "ticktext": [shortened(name) for name in rows],
            "zeroline": False,
        },
    )


def roofline(gpu: GPU, points: Sequence[OperatingPoint], theme: Theme) -> Figure:
    """TFLOP/s over FLOP per byte: a slope of the printed bandwidth, a ceiling for each printed peak, and the passes."""
    peaks = {dtype: peak for dtype, peak in gpu.tflops.items() if dtype in ROOFS}
    if gpu.tflops.get("bf16") == gpu.tflops.get("fp16"):
        peaks.pop("fp16", None)
    ends = [min(point.intensity for point in points) / 2, max(point.intensity for point in points) * 3]
    slope = gpu.bandwidth_gb_s / 1000  # TFLOP/s for each FLOP per byte
    top = max(peaks.values(), default=slope * ends[1])
    roofs = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": say("{dtype}: {peak} TFLOP/s", dtype=dtype, peak=words.figure(peak)),
            "x": [ends[0], peak / slope, max(ends[1], 3 * peak / slope)],
            "y": [ends[0] * slope, peak, peak],
            "line": {"color": ROOFS[dtype], "width": 2},
            "hoverinfo": "skip",
        }
        for dtype, peak in peaks.items()
    ]
    marks = {
        "type": "scatter",
        "mode": "markers+text",
        "name": gpu.name,
        "showlegend": False,
        "x": [point.intensity for point in points],
        "y": [point.tflops for point in points],
        "text": [say(point.what) for point in points],
        "textposition": ["bottom right"] * (len(points) - 2) + ["top left", "bottom left"],
        "textfont": {"size": 12},
        "marker": {"size": 11, "color": theme.text, "symbol": ["circle"] * (len(points) - 1) + ["diamond"]},
        "cliponaxis": False,
        "hovertemplate": hover(
            "<b>{what}</b><br>{intensity} FLOP per byte, {tflops} TFLOP/s",
            what="%{text}",
            intensity="%{x:,.3~g}",
            tflops="%{y:,.3~g}",
        ),
    }
    least = min(point.tflops for point in points) / 2
    return figure(
        [*roofs, marks],
        theme,
        height=440,
        margin={"l": 8, "r": 8, "t": 40, "b": 52},
        **KEY_ABOVE,
        hovermode="closest",
        xaxis={
            "type": "log",
            "range": [log10(ends[0]), log10(max(ends[1], *(3 * peak / slope for peak in peaks.values()), 1))],
            "dtick": 1,
            "tickformat": ",.12~g",
            "title": small(say("FLOP per byte of memory traffic")),
        },
        yaxis={
            "type": "log",
            "range": [log10(least), log10(2 * top)],
            "dtick": 1,
            "tickformat": ",.12~g",
            "title": small(say("TFLOP/s")),
        },
    )
