"""Charts: functions of numbers that return a figure. One colour for each part in the whole app.

A figure is one dict as Plotly takes it, with its own fonts, and the colours that its key explains: `plot.draw` writes
the key above it, because Plotly's own breaks into as many lines as it has entries on a telephone.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log10
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from calc import Memory, Report
from calc.hardware import GPU, find_gpu
from calc.serving import MOST_TOKENS, Verdict
from calc.time import Array, OperatingPoint
from calc.training import TRAINER, RolloutPhase, RolloutReport, TrainingVerdict
from pages.parts import words
from pages.parts.words import say

Figure = dict[str, Any]
PLAIN = "<extra></extra>"
"""A hover text without the name of its trace."""
FONT = '"Source Sans", sans-serif'  # the page's own
TICKS = ",.12~g"
"""Ticks with separators of thousands and without exponents."""
ROW, LINE = 52, 18  # heights in pixels: a GPU's row, a line of text


class Theme(NamedTuple):
    text: str
    grid: str
    ground: str  # what lies behind the figure, for edges between its parts


KEY_ABOVE: dict[str, Any] = {
    "showlegend": True,
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"},
}
"""Plotly's own key, in a line above the figure."""
NAMED_ROWS: dict[str, Any] = {"autorange": "reversed", "showgrid": False, "tickmode": "array"}
"""The axis of a chart whose rows have names, the first on top."""
LIGHT = Theme(text="#31333F", grid="rgba(49,51,63,0.14)", ground="#FFFFFF")
DARK = Theme(text="#E8E8E8", grid="rgba(250,250,250,0.16)", ground="#14161B")


def theme() -> Theme:
    """The reader's."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def hover(sentence: str, /, **values: Any) -> str:
    """Text at a mark, in which Plotly fills its values."""
    return say(sentence, **values) + PLAIN


def points(x: Sequence[Any], y: Sequence[Any], mode: str = "markers", **look: Any) -> dict[str, Any]:
    """A trace of marks, lines or texts."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **look}


def gpu_bars(
    verdicts: Sequence[Verdict | TrainingVerdict],
    memories: Sequence[Memory],
    parts: Sequence[str] | None = None,
) -> Figure:
    """Memory of each GPU by part against its capacity: a row per GPU, a line where its memory ends."""
    look, rows = theme(), [find_gpu(verdict.gpu).name for verdict in verdicts]
    unit, base = unit_of(memories)
    usable = [verdict.usable / base for verdict in verdicts]
    capacity = [
        points(
            usable,
            rows,
            name=say("Usable"),
            cliponaxis=False,
            marker={"symbol": "line-ns", "size": 0.6 * ROW, "line": {"width": width, "color": color}},
            **hover,
        )
        for width, color, hover in (  # with an edge, to be seen on a bar of any colour
            (5, look.ground, {"hoverinfo": "skip"}),
            (2.5, look.text, {"hovertemplate": hover("Usable on the card: {size}", size=f"%{{x:,.2f}} {unit}")}),
        )
    ]
    labels = [
        f"{'<br>'.join(wrap(row, 22))}<br><b>|</b> {words.gib(verdict.usable)}"
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    return memory_rows(rows, labels, memories, parts or served(memories), capacity)


def memory_rows(
    rows: Sequence[str],
    labels: Sequence[str],
    memories: Sequence[Memory],
    parts: Sequence[str],
    marks: Sequence[dict[str, Any]] = (),
) -> Figure:
    """Memory of one GPU by part, a row for each, and marks on the rows."""
    unit, _ = unit_of(memories)
    axis = say("{unit} per GPU · hatched: overhead at its highest", unit=unit)
    return bars_in_rows(rows, labels, [*stacked("x", "y", rows, memories, parts), *marks], parts, axis, unit)


def bars_in_rows(
    rows: Sequence[str],
    labels: Sequence[str],
    bars: list[dict[str, Any]],
    parts: Sequence[str],
    axis: str,
    unit: str,
) -> Figure:
    """Stacked bars of parts, a row for each, with its label."""
    return figure(
        bars,
        part_colors(parts),
        height=ROW * len(rows) + 68,
        margin={"l": 8, "r": 14, "t": 8, "b": 60},
        meta=unit,
        barmode="stack",
        bargap=0.36,
        hovermode="y unified",
        xaxis={"rangemode": "tozero", "tickformat": TICKS},
        yaxis=NAMED_ROWS | {"tickvals": rows, "ticktext": labels, "ticklabelstandoff": 6},
        annotations=[below(axis)],
    )


def unit_of(memories: Iterable[Memory]) -> tuple[str, int]:
    """Unit for the largest of them, and its bytes."""
    return words.unit(max([0, *(memory.high for memory in memories)]))


def context_bars(report: Report) -> Figure:
    """Memory as the context grows, marked where the cache first outweighs the weights, at the context that is chosen,
    and where each GPU's memory ends."""
    contexts, look = list(report.by_context), theme()
    columns = [words.tokens(context) for context in contexts]
    here = contexts.index(report.scenario.workload.context)
    texts = [f"<b>{column}</b>" if place == here else column for place, column in enumerate(columns)]
    band = {"fillcolor": look.grid, "line": {"width": 0}, "x0": here - 0.5, "x1": here + 0.5}
    shapes, notes = [upright(band)], []
    if report.overtaken_at is not None:
        over = contexts.index(report.overtaken_at)
        shapes.append(
            upright({"line": {"color": look.text, "width": 1, "dash": "dot"}, "x0": over, "x1": over}, "line")
        )
        text = say("KV cache outweighs the weights from {tokens}", tokens=columns[over])
        side = "left" if over < 3 else "right" if over > len(columns) - 3 else "center"
        notes.append(note(text, over, 1, side, "bottom") | {"yref": "paper"})
    memories = dict(zip(columns, report.by_context.values(), strict=True))
    ends, names = capacities(report.verdicts, max(memory.high for memory in memories.values()))
    marks = {"shapes": shapes + ends, "annotations": notes + names}
    bars = memory_columns(memories, served(memories.values()), say("Context length, tokens"), **marks)
    bars["layout"]["xaxis"] |= {"tickmode": "array", "tickvals": columns, "ticktext": texts}
    return bars


def note(text: str, x: float, y: float, xanchor: str, yanchor: str) -> dict[str, Any]:
    """A text in the figure."""
    return {"text": text, "showarrow": False, "x": x, "y": y, "xanchor": xanchor, "yanchor": yanchor}


def below(text: str) -> dict[str, Any]:
    """The title of the axis along rows that have names: unlike Plotly's own it may reach under them where a figure is
    narrow."""
    return note(text, 1, 0, "right", "top") | {"xref": "paper", "yref": "paper", "yshift": -26}


def upright(shape: dict[str, Any], kind: str = "rect") -> dict[str, Any]:
    """A shape over the whole height, behind the bars."""
    return {"type": kind, "layer": "below", "y0": 0, "y1": 1, "yref": "paper", **shape}


CLOSE, FAR = 0.09, 2.5
"""Shares: of the height, capacities whose names would overlap; of the tallest bar, the most that is drawn."""


def capacities(verdicts: Iterable[Verdict], tallest: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A line where each GPU's memory ends, as far as the bars reach and the next one above, and its name."""
    (_, base), look = words.unit(tallest), theme()
    near = sorted((verdict.usable, find_gpu(verdict.gpu).name) for verdict in verdicts)
    top = next((usable for usable, _ in near if usable > 1.1 * tallest), tallest)
    ends: dict[int, list[str]] = {}
    for usable, name in near:
        if usable <= min(max(top, tallest), FAR * tallest):
            drawn = next((end for end in ends if usable - end < CLOSE * top), usable)
            ends.setdefault(drawn, []).append(name)
    lines: list[dict[str, Any]] = [
        {
            **{"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": usable / base, "y1": usable / base},
            "line": {"color": look.text, "width": 1.5, "dash": "dash"},
        }
        for usable in ends
    ]
    names: list[dict[str, Any]] = [
        note(", ".join(gpus[:2]) + (" …" if len(gpus) > 2 else ""), 0, usable / base, "left", "bottom")
        | {"xref": "paper", "bgcolor": look.ground, "opacity": 0.85, "font": {"size": 12}}
        for usable, gpus in ends.items()
    ]
    return lines, names


def stage_bars(stages: Sequence[Memory], parts: Sequence[str] | None = None) -> Figure:
    """The memory of one GPU of each pipeline stage."""
    bars = {str(number + 1): stage for number, stage in enumerate(stages)}
    return memory_columns(bars, parts or served(stages), say("Pipeline stage"))


def step_bars(memories: Mapping[str, Memory], axis: str) -> Figure:
    """Memory of a training step by part, a column for each phase or length."""
    return memory_columns(memories, trained(memories.values()), axis)


def memory_columns(memories: Mapping[str, Memory], parts: Sequence[str], axis: str, **marks: Any) -> Figure:
    """Memory of one GPU by part, a column for each."""
    unit, _ = unit_of(memories.values())
    return figure(
        stacked("y", "x", list(memories), list(memories.values()), parts),
        part_colors(parts),
        height=310,
        margin={"l": 8, "r": 8, "t": LINE, "b": 52},
        meta=unit,
        barmode="stack",
        bargap=0.3,
        hovermode="x unified",
        xaxis={"title": small(axis), "type": "category", "showgrid": False},
        yaxis={
            "title": small(say("{unit} per GPU", unit=unit)),
            "rangemode": "tozero",
            "tickformat": TICKS,
            "nticks": 6,
        },
        **marks,
    )


def served(memories: Iterable[Memory]) -> tuple[str, ...]:
    """The parts of memory in serving; the vision encoder only where there is one."""
    return words.SEEING if any(memory.vision for memory in memories) else words.SERVED


def trained(memories: Iterable[Memory]) -> tuple[str, ...]:
    """The parts of memory in training that are there, and those of an engine that generates."""
    some = list(memories)
    return tuple(part for part in words.GENERATED if any(getattr(memory, part, 0) for memory in some))


def stacked(
    along: str, across: str, rows: Sequence[str], memories: Sequence[Memory], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Stacked bars: the parts with the overhead's middle, and hatched what its high end adds."""
    unit, base = unit_of(memories)
    parts = {part: [getattr(memory, part, 0) / base for memory in memories] for part in names}
    rest = [(memory.overhead_high - memory.overhead) / base for memory in memories]
    totals = [
        [memory.overhead_low / base, memory.overhead_high / base, memory.total / base, memory.high / base]
        for memory in memories
    ]
    size = f"%{{{along}:,.2f}} {unit}"
    kind: dict[str, Any] = {"type": "bar"} | ({"orientation": "h"} if along == "x" else {})
    bars = [
        {
            **kind,
            "name": words.part(part),
            along: sizes,
            across: rows,
            "marker": {"color": words.COLORS[part]},
            "hovertemplate": hover("{part}: {size}", part=words.part(part), size=size),
        }
        for part, sizes in parts.items()
    ]
    bars[-1] |= {
        "customdata": totals,
        "hovertemplate": hover(
            "Overhead: {size} ({low} to {high})<br>Together: <b>{total}</b> (at most {most})",
            size=size,
            **{name: f"%{{customdata[{i}]:,.2f}} {unit}" for i, name in enumerate(("low", "high", "total", "most"))},
        ),
    }
    hatched = {
        **kind,
        "name": say("Overhead at its highest"),
        along: rest,
        across: rows,
        "marker": {
            "color": "rgba(0,0,0,0)",
            "line": {"width": 1, "color": words.COLORS["overhead"]},
            "pattern": {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": words.COLORS["overhead"]},
        },
        "hoverinfo": "skip",
    }
    return [*bars, hatched]


def part_colors(parts: Iterable[str]) -> list[tuple[str, str]]:
    """Each part's colour and name."""
    return [(words.color(part), words.part(part)) for part in parts]


def small(text: str) -> dict[str, Any]:
    """The title of an axis."""
    return {"text": text, "font": {"size": 13}, "standoff": 8}


def figure(data: list[dict[str, Any]], colors: Sequence[tuple[str, str]] = (), **layout: Any) -> Figure:
    """A figure with the looks that all have; `colors`, with what they stand for, are its key."""
    look = theme()
    axis = {"gridcolor": look.grid, "zerolinecolor": look.grid, "automargin": True}
    axis |= {"fixedrange": True, "showspikes": False}
    for name in ("xaxis", "yaxis"):
        if name in layout:
            layout[name] = axis | layout[name]
    font = {"color": look.text, "size": 13, "family": FONT}
    common = {
        "template": "none",
        "autosize": True,
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": font,
        "hoverlabel": {"bgcolor": look.ground, "font": font},
        "uirevision": "keep",
    }
    return {"data": data, "layout": common | layout, "colors": colors}


ROLLOUT_PARTS: dict[str, str] = {
    **{message.template: name for name, message in TRAINER.items()},
    "weights of the engine": "engine_weights",
    "KV cache": "kv_cache",
    "overhead": "overhead",
}
"""calc's name of a part -> the chart's; all else is other memory of the engine."""


class RolloutMemory(Memory):
    """Bytes on one GPU of trainer and engine."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    master_weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    logits: int = 0
    temporaries: int = 0
    engine_weights: int = 0
    engine_rest: int = 0


def rollout_memory(phase: RolloutPhase) -> RolloutMemory:
    """Parts of a phase by their names, the overhead as a range."""
    sizes: dict[str, int] = {"overhead": 0}
    for part in phase.parts:
        name = ROLLOUT_PARTS.get(part.name.template, "engine_rest")
        sizes[name] = sizes.get(name, 0) + part.bytes
    rest = phase.total - sizes["overhead"]
    return RolloutMemory(overhead_low=phase.low - rest, overhead_high=phase.high - rest, total=phase.total, **sizes)


def peak_of(rollout: RolloutReport) -> RolloutMemory:
    """Bytes of each part of trainer and engine in the phase that is the peak."""
    return rollout_memory(next(phase for phase in rollout.phases if phase.name == rollout.peak))


CELL = 24
"""Pixels of a row."""
BEGINNING, END = 15, 9
"""Characters of a long name of a row; the rest is in the hover text."""
BRACKETS = re.compile(r"(?<=\w) \(.+?\)")
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


def short_tokens(n: float) -> str:
    """A context in short: 131,072 is 128k."""
    if n >= MOST_TOKENS:
        return say("no limit")
    if n >= 2**20:
        return f"{n / 2**20:.3g}M"
    return f"{n / 1024:.0f}k" if n >= 10_240 else f"{n / 1024:.1f}k" if n >= 1024 else f"{n:.0f}"


def shortened(name: str) -> str:
    """A long name without what stands in brackets, without words of its middle, or else without letters of it: its end
    tells it from others."""
    most = BEGINNING + END + 1
    if len(name) <= most:
        return name
    name = BRACKETS.sub("", name)
    parts = name.split()
    while len(parts) > 2 and len(name) > most:
        del parts[-2]
        name = f"{' '.join(parts[:-1])} …{parts[-1]}"
    return name if len(name) <= most else f"{name[:BEGINNING].rstrip()}…{name[-END:].lstrip()}"


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Array,
    write: Callable[[float], str],
    most: Array | None = None,
) -> Figure:
    """A cell for each row and format, darker where the figure is larger; empty where nothing fits. With the most that
    each row could have, cells that have it are pale, and the others the darker the less of it they have."""
    look = theme()
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
        "colorscale": (SCALE if most is None else MISSING)[look],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "text": [[write(float(value)) if value > 0 else "" for value in line] for line in values],
        "texttemplate": "%{text}",
        "textfont": {"size": 12, "color": INK[look]},
        "customdata": [[name] * len(columns) for name in rows],
        "hovertemplate": hover(
            "<b>{name}</b>, {format}: {figure}", name="%{customdata}", format="%{x}", figure="%{text}"
        ),
    }
    return figure(
        [cells],
        height=CELL * len(rows) + 50,
        margin={"l": 8, "r": 8, "t": 40, "b": 8},
        xaxis={"side": "top", "showgrid": False, "type": "category"},
        yaxis=NAMED_ROWS
        | {"tickvals": list(range(len(rows))), "ticktext": list(map(shortened, rows)), "zeroline": False},
    )


def roofline(gpu: GPU, passes: Sequence[OperatingPoint]) -> Figure:
    """TFLOP/s over FLOP per byte: a slope of the printed bandwidth, a ceiling for each printed peak, and the passes."""
    peaks = {dtype: peak for dtype, peak in gpu.tflops.items() if dtype in ROOFS}
    if gpu.tflops.get("bf16") == gpu.tflops.get("fp16"):
        peaks.pop("fp16", None)
    ends = [min(of.intensity for of in passes) / 2, max(of.intensity for of in passes) * 3]
    slope = gpu.bandwidth_gb_s / 1000  # TFLOP/s for each FLOP per byte
    top = max(peaks.values(), default=slope * ends[1])
    roofs = [
        points(
            [ends[0], peak / slope, max(ends[1], 3 * peak / slope)],
            [ends[0] * slope, peak, peak],
            "lines",
            name=say("{dtype}: {peak} TFLOP/s", dtype=dtype, peak=words.figure(peak)),
            line={"color": ROOFS[dtype], "width": 2},
            hoverinfo="skip",
        )
        for dtype, peak in peaks.items()
    ]
    marks = points(
        [of.intensity for of in passes],
        [of.tflops for of in passes],
        "markers+text",
        name=gpu.name,
        showlegend=False,
        text=["<br>".join(wrap(say(of.what), 18)) for of in passes],
        textposition=["bottom right"] * (len(passes) - 2) + ["top left", "bottom center"],
        textfont={"size": 12},
        marker={"size": 11, "color": theme().text, "symbol": ["circle"] * (len(passes) - 1) + ["diamond"]},
        cliponaxis=False,
        hovertemplate=hover(
            "<b>{what}</b><br>{intensity} FLOP per byte, {tflops} TFLOP/s",
            what="%{text}",
            intensity="%{x:,.3~g}",
            tflops="%{y:,.3~g}",
        ),
    )
    least = min(of.tflops for of in passes) / 2
    axis = {"type": "log", "dtick": 1, "tickformat": TICKS}
    return figure(
        [*roofs, marks],
        height=440,
        margin={"l": 8, "r": 8, "t": 40, "b": 52},
        **KEY_ABOVE,
        hovermode="closest",
        xaxis=axis
        | {
            "range": [log10(ends[0]), log10(max(ends[1], *(3 * peak / slope for peak in peaks.values()), 1))],
            "title": small(say("FLOP per byte of memory traffic")),
        },
        yaxis=axis | {"range": [log10(least), log10(2 * top)], "title": small(say("TFLOP/s"))},
    )
