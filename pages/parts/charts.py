"""Charts: functions of numbers that return a figure. One colour for each part in the whole app."""

from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from calc import Memory
from calc.fit import Verdict
from calc.tensor import Tensor
from pages.parts import formats

GIB = formats.GIB
CONFIG = {"displayModeBar": False}
LABELS = {
    "embedding": "Embedding",
    "attention": "Attention",
    "mlp": "Feed-forward",
    "experts_routed": "Routed experts",
    "experts_shared": "Shared experts",
    "router": "Router",
    "norms": "Norms",
    "lm_head": "Head",
    "weights": "Weights",
    "kv_cache": "KV cache",
    "activations": "Activations",
    "overhead": "Overhead",
}
COLORS = {
    "embedding": "#E69F00",
    "attention": "#0072B2",
    "mlp": "#009E73",
    "experts_routed": "#56B4E9",
    "experts_shared": "#B07AA1",
    "router": "#F0C94A",
    "norms": "#999999",
    "lm_head": "#D55E00",
    "weights": "#0072B2",
    "kv_cache": "#E69F00",
    "activations": "#009E73",
    "overhead": "#9A9A9A",
}
CAPACITY = "#D1495B"


def shares(total: int, tensors: Iterable[Tensor], dark: bool) -> go.Figure:
    """Where the parameters sit: component, then layers, then tensor. Click a part to look into it."""
    sizes: dict[tuple[str, ...], int] = {}
    for tensor in tensors:
        if tensor.apart is None:
            layers = formats.layers(tensor.layers) if tensor.layers else ""
            name = tensor.name.removesuffix(".weight").split("{layer}.")[-1].replace(".{expert}", "")
            path = tuple(part for part in (LABELS[tensor.component], layers, name) if part)
            for depth in range(1, len(path) + 1):
                sizes[path[:depth]] = sizes.get(path[:depth], 0) + tensor.parameters
    colors = {LABELS[name]: color for name, color in COLORS.items()}
    paths = list(sizes)
    figure = go.Figure(
        go.Sunburst(
            ids=["total", *("/".join(path) for path in paths)],
            labels=[formats.count(total), *(path[-1] for path in paths)],
            parents=["", *("/".join(path[:-1]) or "total" for path in paths)],
            values=[total, *sizes.values()],
            marker_colors=["rgba(0,0,0,0)", *(colors[path[0]] for path in paths)],
            branchvalues="total",
            maxdepth=2,
            texttemplate="%{label}<br>%{percentRoot:.1%}",
            hovertemplate="%{label}<br>%{value:,} parameters<br>%{percentRoot:.2%} of all<extra></extra>",
            insidetextorientation="horizontal",
            sort=False,
        )
    )
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})
    return _dressed(figure, dark, height=380)


def gpu_bars(verdicts: Sequence[Verdict], names: Mapping[str, str], memory: Memory, dark: bool) -> go.Figure:
    """What one GPU must hold, part by part, against what each has."""
    rows = [f"{names[verdict.gpu]}" for verdict in verdicts]
    figure = go.Figure()
    for part in ("weights", "kv_cache", "activations", "overhead"):
        size = getattr(memory, part) / GIB
        half = (memory.overhead_high - memory.overhead_low) / 2 / GIB
        figure.add_bar(
            y=rows,
            x=[size] * len(rows),
            orientation="h",
            name=LABELS[part],
            marker_color=COLORS[part],
            error_x={"type": "constant", "value": half, "thickness": 1.5} if part == "overhead" else None,
            hovertemplate=f"{LABELS[part]}: %{{x:,.2f}} GiB<extra></extra>",
        )
    figure.add_scatter(
        y=rows,
        x=[verdict.usable / GIB for verdict in verdicts],
        mode="markers",
        name="Usable on the card",
        marker={"symbol": "line-ns", "size": 30, "line": {"width": 4, "color": CAPACITY}},
        hovertemplate="%{y}: %{x:,.2f} GiB usable<extra></extra>",
    )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="GiB on one GPU", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return _dressed(figure, dark, height=120 + 52 * len(rows))


def context_bars(by_context: Mapping[int, Memory], dark: bool) -> go.Figure:
    """The same memory as the context grows."""
    columns = [formats.tokens(context) for context in by_context]
    figure = go.Figure()
    for part in ("weights", "kv_cache", "activations", "overhead"):
        figure.add_bar(
            x=columns,
            y=[getattr(memory, part) / GIB for memory in by_context.values()],
            name=LABELS[part],
            marker_color=COLORS[part],
            hovertemplate=f"{LABELS[part]} at %{{x}}: %{{y:,.2f}} GiB<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_xaxes(title="Context of each sequence (tokens)", type="category")
    figure.update_yaxes(title="GiB on one GPU")
    return _dressed(figure, dark, height=340)


def _dressed(figure: go.Figure, dark: bool, height: int) -> go.Figure:
    text, grid = ("#E6E6E6", "rgba(255,255,255,0.15)") if dark else ("#31333F", "rgba(0,0,0,0.12)")
    figure.update_layout(
        template=None,
        height=height,
        margin={"l": 8, "r": 16, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": text, "size": 13, "family": "sans-serif"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        uirevision="keep",
    )
    figure.update_xaxes(gridcolor=grid, zerolinecolor=grid, automargin=True, fixedrange=True)
    figure.update_yaxes(gridcolor=grid, zerolinecolor=grid, automargin=True, fixedrange=True)
    return figure
