"""Where the parameters sit: component, group of layers, tensor."""

from collections.abc import Iterable
from typing import NamedTuple

import plotly.graph_objects as go

from calc.model.tensor import Component, Tensor
from pages.parts import words
from pages.parts.outputs.charts import LINE, PLAIN, Theme, figure, swatch
from pages.parts.words import part, percent, say

DEEP = {"attention", "ssm_linear"}  # these take white letters


class ShareRow(NamedTuple):
    """One slice at the rim: the parameters of one tensor in one group of equal layers."""

    component: Component
    layers: str  # as people say it; empty outside the layers
    tensor: str  # checkpoint name without the module that it sits in
    parameters: int


def share_rows(tensors: Iterable[Tensor]) -> list[ShareRow]:
    """The tensors that are in the total, as slices."""
    return [
        ShareRow(
            component=tensor.component,
            layers=words.layers(tensor.layers) if tensor.layers else "",
            tensor=_short(tensor),
            parameters=tensor.parameters,
        )
        for tensor in tensors
        if tensor.apart is None
    ]


def _short(tensor: Tensor) -> str:
    """A tensor's name within its module: q_a_proj, or indexer.q_proj where the module has parts."""
    within = tensor.name.split("{layer}.")[-1].removesuffix(".weight")
    parts = [part for part in within.split(".") if part not in ("experts", "{expert}")]
    if not tensor.layers:
        return ".".join(parts[-2:] if parts[-1] == "bias" else parts[-1:])
    whole = len(parts) == 1 or parts[1:] == ["bias"] or tensor.component == "other"
    return ".".join(parts if whole else parts[1:])


def shares(total: int, tensors: Iterable[Tensor], theme: Theme) -> go.Figure:
    """Where the parameters sit."""
    return parameter_sunburst(total, share_rows(tensors), theme)


def parameter_sunburst(total: int, rows: Iterable[ShareRow], theme: Theme) -> go.Figure:
    """Component, then group of layers, then tensor; click a part to look into it. Every part has a line in the key."""
    order = list(words.PARTS)
    sizes: dict[tuple[str, ...], int] = {}
    for row in sorted(rows, key=lambda row: order.index(row.component) if row.component in order else len(order)):
        path = tuple(part for part in (row.component, row.layers, row.tensor) if part)
        for depth in range(1, len(path) + 1):
            sizes[path[:depth]] = sizes.get(path[:depth], 0) + row.parameters
    components = {path[0]: size for path, size in sizes.items() if len(path) == 1}
    key = [
        f"{swatch(name)} {part(name)} {percent(size / total)}"
        for name, size in sorted(components.items(), key=lambda item: -item[1])
    ]
    half = -(-len(key) // 2)
    data = {
        "type": "sunburst",
        "ids": ["total", *("/".join(path) for path in sizes)],
        "parents": ["", *("/".join(path[:-1]) or "total" for path in sizes)],
        "labels": [
            words.count(total),
            *(path[-1] if len(path) > 1 else part(path[0]) for path in sizes),
        ],
        "values": [total, *sizes.values()],
        "branchvalues": "total",
        "maxdepth": 4,
        "sort": False,
        "rotation": 90,
        "insidetextorientation": "horizontal",
        "leaf": {"opacity": 1},
        "marker": {
            "colors": ["rgba(0,0,0,0)", *(words.color(path[0]) for path in sizes)],
            "line": {"color": theme.ground, "width": 1},
        },
        "insidetextfont": {"color": [theme.text, *("#FFFFFF" if path[0] in DEEP else "#1A1A1A" for path in sizes)]},
        "texttemplate": [say("{n}<br>parameters", n="%{label}"), *["%{label}<br>%{percentRoot:.2%}"] * len(sizes)],
        "hovertext": [say("All"), *(" · ".join((part(path[0]), *path[1:])) for path in sizes)],
        "hovertemplate": say(
            "<b>{name}</b><br>{n} parameters<br>{share} of all",
            name="%{hovertext}",
            n="%{value:,}",
            share="%{percentRoot:.3%}",
        )
        + PLAIN,
    }
    columns = [
        {
            "text": "<br>".join(lines),
            "align": "left",
            "showarrow": False,
            "xref": "paper",
            "yref": "paper",
            "x": x,
            "y": 0,
            "xanchor": "left",
            "yanchor": "top",
            "yshift": -8,
        }
        for x, lines in ((0, key[:half]), (0.52, key[half:]))
        if lines
    ]
    return figure(
        [data],
        theme,
        height=350 + 12 + LINE * half,
        margin={"l": 4, "r": 4, "t": 4, "b": 12 + LINE * half},
        annotations=columns,
        uniformtext={"minsize": 11, "mode": "hide"},
    )
