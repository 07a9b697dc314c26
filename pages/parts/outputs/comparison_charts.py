"""Charts of configurations side by side, on one scale."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from calc import Memory
from calc.serving.comparison import CONTEXTS, cache_growth
from calc.units import GIB
from pages.parts import words
from pages.parts.outputs.charts import PLAIN, ROW, Figure, Theme, figure, small, stacked
from pages.parts.state.compared import LETTERS, Column
from pages.parts.words import say

LINES = (
    ("#0072B2", "solid", "circle"),
    ("#D55E00", "dash", "square"),
    ("#009E73", "dot", "diamond"),
    ("#CC79A7", "dashdot", "cross"),
    ("#E69F00", "longdash", "triangle-up"),
    ("#56B4E9", "longdashdot", "star"),
)
"""Colour, dash and mark of each letter."""


def names(columns: Sequence[Column]) -> dict[str, str]:
    """The model of each letter."""
    return {column.letter: column.answer.model.name for column in columns}


def memory_bars(names: Mapping[str, str], memories: Sequence[Memory], parts: Sequence[str], theme: Theme) -> Figure:
    """Memory of one GPU by part."""
    bars = stacked("x", "y", list(names), memories, parts)
    return _rows(names, bars, say("GiB per GPU · hatched: overhead at its highest"), theme)


def parameter_bars(columns: Sequence[Column], theme: Theme) -> Figure:
    """The parameters of each, component by component."""
    counts: list[Mapping[Any, int]] = [column.answer.report.parameters.components for column in columns]
    bars: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": words.part(part),
            "x": [count.get(part, 0) / 10**9 for count in counts],
            "y": [column.letter for column in columns],
            "marker": {"color": words.color(part)},
            "hovertemplate": say("{part}: {n} B", part=words.part(part), n="%{x:,.3f}") + PLAIN,
        }
        for part in components(columns)
    ]
    return _rows(names(columns), bars, say("Billions of parameters"), theme)


def components(columns: Sequence[Column]) -> list[str]:
    """The components that any of them has."""
    known = [column.answer.report.parameters.components for column in columns]
    return [part for part in words.COLORS if any(part in components for components in known)]


def _rows(names: Mapping[str, str], bars: list[dict[str, Any]], axis: str, theme: Theme) -> Figure:
    """Stacked bars, a row a letter."""
    for bar in bars:
        bar["orientation"] = "h"
    return figure(
        bars,
        theme,
        height=ROW * len(names) + 68,
        margin={"l": 8, "r": 14, "t": 8, "b": 60},
        barmode="stack",
        bargap=0.36,
        hovermode="y unified",
        xaxis={"title": small(axis), "rangemode": "tozero", "tickformat": ",~g"},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "tickmode": "array",
            "tickvals": list(names),
            "ticktext": [f"<b>{letter}</b> {'<br>'.join(wrap(name, 18))}" for letter, name in names.items()],
            "ticklabelstandoff": 6,
        },
    )


def growth_curves(columns: Sequence[Column], theme: Theme) -> Figure:
    """KV cache and states of the whole batch over the context."""
    lines: list[dict[str, Any]] = []
    grown = {column.letter: _grown(column) for column in columns}
    ends = {letter: list(sizes.items())[-1] for letter, sizes in grown.items()}
    for letter, sizes in grown.items():
        color, dash, symbol = style(letter)
        together = [other for other, end in ends.items() if end == ends[letter]]
        label = f"<b>{', '.join(together)}</b>" if letter == together[-1] else ""  # not one above the other
        lines.append(
            {
                "type": "scatter",
                "mode": "lines+markers+text",
                "name": letter,
                "x": list(sizes),
                "y": [size / GIB for size in sizes.values()],
                "text": [*[""] * (len(sizes) - 1), label],
                "textposition": "middle right",
                "cliponaxis": False,
                "line": {"color": color, "dash": dash, "width": 2.5},
                "marker": {"color": color, "symbol": symbol, "size": 7},
                "hovertemplate": say("{letter}: {size} GiB", letter=letter, size="%{y:,.3f}") + PLAIN,
            }
        )
    return figure(
        lines,
        theme,
        height=340,
        margin={"l": 8, "r": 30, "t": 10, "b": 52},
        hovermode="x unified",
        xaxis={
            "title": small(say("Context length, tokens")),
            "type": "log",
            "tickmode": "array",
            "tickvals": CONTEXTS,
            "ticktext": [words.tokens(context) for context in CONTEXTS],
        },
        yaxis={"title": small(say("KV cache, total, GiB")), "type": "log", "tickformat": ",~g", "dtick": 1},
    )


def _grown(column: Column) -> dict[int, int]:
    scenario = column.answer.report.scenario
    engine = column.answer.scenario.serving.started()
    return cache_growth(column.answer.architecture, engine, scenario.precision.kv, scenario.workload.batch)


def style(letter: str) -> tuple[str, str, str]:
    return LINES[LETTERS.index(letter)]
