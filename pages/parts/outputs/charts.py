"""Charts: functions of numbers that return a figure. One colour for each part in the whole app.

A figure is built from one dict, which Plotly checks once, and carries its own colours and fonts: it is drawn with
`st.plotly_chart(figure, key=..., theme=None, config=CONFIG)`. The legend is a line of text, because Plotly's own breaks
into as many lines as it has entries on a telephone.
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import plotly.graph_objects as go

from calc import Memory
from calc.serving.verdict import Verdict
from calc.training.training_verdict import TrainingVerdict
from pages.parts import words

CONFIG = {"displayModeBar": False, "responsive": True}
LABELS = {
    "embedding": "Embedding",
    "attention": "Attention",
    "mlp": "Feed-forward",
    "experts_routed": "Routed experts",
    "experts_shared": "Shared experts",
    "router": "Router",
    "ssm_linear": "Recurrent",
    "norms": "Norms",
    "lm_head": "Head",
    "other": "Other",
    "weights": "Weights",
    "kv_cache": "KV cache",
    "activations": "Activations",
    "overhead": "Overhead",
    "vision": "Image tower",
    "master_weights": "Master weights",
    "gradients": "Gradients",
    "optimizer": "Optimizer",
    "temporaries": "Temporaries",
    "logits": "Logits and loss",
}
COLORS = {
    "embedding": "#E69F00",  # Okabe and Ito's palette for the components, its yellow a little darker, and a grey
    "attention": "#0072B2",
    "mlp": "#009E73",
    "experts_routed": "#56B4E9",
    "experts_shared": "#CC79A7",
    "router": "#EADB45",
    "ssm_linear": "#6B4A3A",
    "norms": "#C2B8AE",
    "lm_head": "#D55E00",
    "other": "#6B6B6B",
    "weights": "#6F63C0",  # other hues for memory, so that no colour means two things
    "kv_cache": "#E57373",
    "activations": "#A9B93B",
    "overhead": "#9EA3AC",
    "vision": "#26547C",
    "master_weights": "#5BC0EB",
    "gradients": "#FFD9A0",
    "optimizer": "#8A3030",
    "temporaries": "#B08D57",
    "logits": "#7A2E5D",
}
GIB = words.GIB
HELD = ("weights", "kv_cache", "activations", "overhead")
SEEING = ("weights", "vision", "kv_cache", "activations", "overhead")
TRAINED = ("weights", "master_weights", "gradients", "optimizer", "activations", "logits", "temporaries", "overhead")
FONT = '"Source Sans", sans-serif'  # the page's own
OTHER = ("Other", "#7F7F7F")  # a component that has no colour yet
ROW, LEGEND, LINE = 52, 32, 18  # heights in pixels: a GPU's row, the legend above, a line of text


class Theme(NamedTuple):
    text: str
    grid: str
    ground: str  # what lies behind the figure, for edges between its parts


LIGHT = Theme(text="#31333F", grid="rgba(49,51,63,0.14)", ground="#FFFFFF")
DARK = Theme(text="#E8E8E8", grid="rgba(250,250,250,0.16)", ground="#14161B")


def gpu_bars(
    verdicts: Sequence[Verdict | TrainingVerdict],
    names: Mapping[str, str],
    memories: Sequence[Memory],
    dark: bool,
    parts: Sequence[str] | None = None,
) -> go.Figure:
    """What one GPU of each kind must hold, part by part, against what it has: a row a GPU, a line where its memory
    ends."""
    theme, parts = DARK if dark else LIGHT, parts or served(memories)
    rows = [names[verdict.gpu] for verdict in verdicts]
    usable = [verdict.usable / GIB for verdict in verdicts]
    bars = _bars("x", "y", rows, memories, parts)
    for bar in bars:
        bar["orientation"] = "h"
    capacity = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "Usable",
            "x": usable,
            "y": rows,
            "cliponaxis": False,
            "marker": {"symbol": "line-ns", "size": 0.6 * ROW, "line": {"width": width, "color": color}},
            **hover,
        }
        for width, color, hover in (  # with an edge, to be seen on a bar of any colour
            (5, theme.ground, {"hoverinfo": "skip"}),
            (2.5, theme.text, {"hovertemplate": "Usable on the card: %{x:,.2f} GiB<extra></extra>"}),
        )
    ]
    return figure(
        [*bars, *capacity],
        theme,
        height=LEGEND + ROW * len(rows) + 60,
        margin={"l": 8, "r": 14, "t": LEGEND, "b": 60},
        title=_legend(parts),
        barmode="stack",
        bargap=0.36,
        hovermode="y unified",
        xaxis={"rangemode": "tozero", "tickformat": ",~g"},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "tickmode": "array",
            "tickvals": rows,
            "ticktext": [
                f"{'<br>'.join(wrap(row, 22))}<br><b>|</b> {size:,.2f} GiB"
                for row, size in zip(rows, usable, strict=True)
            ],
            "ticklabelstandoff": 6,
        },
        annotations=[
            {
                "text": "GiB on one GPU · hatched: overhead at its highest",
                "showarrow": False,
                "xref": "paper",
                "yref": "paper",
                "x": 1,
                "y": 0,
                "xanchor": "right",  # not an axis title: it may reach under the names where the bars are narrow
                "yanchor": "top",
                "yshift": -26,
            }
        ],
    )


def context_bars(by_context: Mapping[int, Memory], dark: bool) -> go.Figure:
    """The same memory as the context grows, marked where the cache first outweighs the weights."""
    columns = [words.tokens(context) for context in by_context]
    over = next((i for i, memory in enumerate(by_context.values()) if memory.kv_cache > memory.weights), None)
    marks: dict[str, Any] = {}
    if over is not None:
        side = "left" if over < 3 else "right" if over > len(columns) - 3 else "center"
        marks["annotations"] = [
            {
                "text": f"KV cache outweighs the weights from {columns[over]}",
                "x": over,
                "xanchor": side,
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
            }
        ]
        marks["shapes"] = [
            {
                "type": "line",
                "layer": "below",
                "x0": over,
                "x1": over,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": (DARK if dark else LIGHT).text, "width": 1, "dash": "dot"},
            }
        ]
    memories = dict(zip(columns, by_context.values(), strict=True))
    return _columns(memories, served(memories.values()), "Context of each sequence, tokens", dark, **marks)


def sequence_bars(by_sequence: Mapping[int, Memory], dark: bool) -> go.Figure:
    """The memory of a training step as the sequences grow."""
    by_length = {words.tokens(tokens): memory for tokens, memory in by_sequence.items()}
    return _columns(by_length, TRAINED, "Length of each sequence, tokens", dark)


def phase_bars(phases: Mapping[str, Memory], dark: bool) -> go.Figure:
    """The memory of each phase of a training step at its fullest."""
    return _columns(phases, TRAINED, "Phase of the step", dark)


def stage_bars(stages: Sequence[Memory], dark: bool, parts: Sequence[str] | None = None) -> go.Figure:
    """The memory of one GPU of each pipeline stage."""
    bars = {str(number + 1): stage for number, stage in enumerate(stages)}
    return _columns(bars, parts or served(stages), "Pipeline stage", dark)


def _columns(memories: Mapping[str, Memory], parts: Sequence[str], axis: str, dark: bool, **marks: Any) -> go.Figure:
    return figure(
        _bars("y", "x", list(memories), list(memories.values()), parts),
        DARK if dark else LIGHT,
        height=340,
        margin={"l": 8, "r": 8, "t": LEGEND + LINE, "b": 52},
        title=_legend(parts),
        barmode="stack",
        bargap=0.3,
        hovermode="x unified",
        xaxis={"title": small(axis), "type": "category", "showgrid": False},
        yaxis={"title": small("GiB on one GPU"), "rangemode": "tozero", "tickformat": ",~g", "nticks": 6},
        **marks,
    )


def served(memories: Iterable[Memory]) -> tuple[str, ...]:
    """The parts of memory in serving; the image tower only where there is one."""
    return SEEING if any(memory.vision for memory in memories) else HELD


def _bars(
    along: str, across: str, rows: Sequence[str], memories: Sequence[Memory], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Stacked bars in GiB: the parts with the overhead's middle, and hatched what its high end adds."""
    parts = {part: [getattr(memory, part) / GIB for memory in memories] for part in names}
    rest = [(memory.overhead_high - memory.overhead) / GIB for memory in memories]
    totals = [
        [memory.overhead_low / GIB, memory.overhead_high / GIB, memory.total / GIB, memory.high / GIB]
        for memory in memories
    ]
    bars = [
        {
            "type": "bar",
            "name": LABELS[part],
            along: sizes,
            across: rows,
            "marker": {"color": COLORS[part]},
            "hovertemplate": f"{LABELS[part]}: %{{{along}:,.2f}} GiB<extra></extra>",
        }
        for part, sizes in parts.items()
    ]
    bars[-1] |= {
        "customdata": totals,
        "hovertemplate": f"{LABELS['overhead']}: %{{{along}:,.2f}} GiB (%{{customdata[0]:,.2f}} to "
        "%{customdata[1]:,.2f})<br>Together: <b>%{customdata[2]:,.2f} GiB</b> (at most %{customdata[3]:,.2f})"
        "<extra></extra>",
    }
    hatched = {
        "type": "bar",
        "name": "Overhead at its highest",
        along: rest,
        across: rows,
        "marker": {
            "color": "rgba(0,0,0,0)",
            "line": {"width": 1, "color": COLORS["overhead"]},
            "pattern": {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": COLORS["overhead"]},
        },
        "hoverinfo": "skip",
    }
    return [*bars, hatched]


def label(part: str) -> str:
    return LABELS.get(part, OTHER[0])


def swatch(part: str) -> str:
    return f'<span style="color:{COLORS.get(part, OTHER[1])};font-size:18px">■</span>'


def _legend(parts: Iterable[str]) -> dict[str, Any]:
    """Every part with its colour, in one line of text above the figure."""
    return {
        "text": "  ".join(f"{swatch(part)} {LABELS[part]}" for part in parts),
        "font": {"size": 13},
        "x": 0,
        "xref": "container",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 6, "l": 4},
    }


def small(text: str) -> dict[str, Any]:
    """The title of an axis."""
    return {"text": text, "font": {"size": 13}, "standoff": 8}


def figure(data: list[dict[str, Any]], theme: Theme, **layout: Any) -> go.Figure:
    """A figure with the looks that all have."""
    axis = {
        "gridcolor": theme.grid,
        "zerolinecolor": theme.grid,
        "automargin": True,
        "fixedrange": True,
        "showspikes": False,
    }
    for name in ("xaxis", "yaxis"):
        if name in layout:
            layout[name] = axis | layout[name]
    font = {"color": theme.text, "size": 13, "family": FONT}
    common = {
        "template": "none",
        "autosize": True,
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": font,
        "hoverlabel": {"bgcolor": theme.ground, "font": font},
        "uirevision": "keep",
    }
    return go.Figure({"data": data, "layout": common | layout})
