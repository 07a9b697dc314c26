"""Parameters by component, group of layers, tensor."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from calc.model.tensor import Component, Tensor
from pages.parts import words
from pages.parts.outputs import plot
from pages.parts.outputs.charts import Figure, figure, hover, theme
from pages.parts.words import part, percent, say

DEEP = {"attention", "ssm_linear"}  # these take white letters
Node = list[Any]
"""Name, parameters, colour and that of the letters (None: as above it), nodes below."""


class ShareRow(NamedTuple):
    """One slice at the end: the parameters of one tensor in one group of equal layers."""

    component: Component
    layers: str  # as people say it; empty outside the layers
    tensor: str  # checkpoint name without the module that it sits in
    parameters: int


def share_rows(tensors: Iterable[Tensor]) -> list[ShareRow]:
    """The tensors that are in the total, as slices; those of a component that share a name are called by the whole."""
    counted = [tensor for tensor in tensors if tensor.excluded_as is None]
    same = Counter((tensor.component, tensor.layers, _short(tensor)) for tensor in counted)
    return [
        ShareRow(
            component=tensor.component,
            layers=words.layers(tensor.layers) if tensor.layers else "",
            tensor=_short(tensor) if same[tensor.component, tensor.layers, _short(tensor)] == 1 else _within(tensor),
            parameters=tensor.parameters,
        )
        for tensor in counted
    ]


def _within(tensor: Tensor) -> str:
    """A tensor's name within its layer."""
    return tensor.name.split("{layer}.")[-1].removesuffix(".weight")


def _short(tensor: Tensor) -> str:
    """A tensor's name within its module: q_a_proj, or indexer.q_proj where the module has parts."""
    parts = [part for part in _within(tensor).split(".") if part not in ("experts", "{expert}")]
    if not tensor.layers:
        return ".".join(parts[-2:] if parts[-1] == "bias" else parts[-1:])
    whole = len(parts) == 1 or parts[1:] == ["bias"] or tensor.component == "other"
    return ".".join(parts if whole else parts[1:])


def draw(total: int, tensors: Iterable[Tensor]) -> None:
    """A pie whose slices can be looked into: component, then group of layers, then tensor."""
    rows = share_rows(tensors)
    frame, tree_of_parts = pie_frame(total, rows), pie(total, rows)
    plot.draw("shares", say("Parameter breakdown"), frame, tree_of_parts, titled=True)


def tree(total: int, rows: Iterable[ShareRow]) -> Node:
    """Component, group of layers, tensor, each with the parameters of what is below it."""
    order = list(words.PARTS)
    root: Node = [words.count(total), 0, None, None, []]
    for row in sorted(rows, key=lambda row: order.index(row.component) if row.component in order else len(order)):
        node, letters = root, "#FFFFFF" if row.component in DEEP else "#1A1A1A"
        for depth, name in enumerate((part(row.component), row.layers, row.tensor)):
            if name:
                node[1] += row.parameters
                below: list[Node] = node[4]
                known = next((inner for inner in below if inner[0] == name), None)
                if known is None:
                    known = [name, 0, *([None, None] if depth else [words.color(row.component), letters]), []]
                    below.append(known)
                node = known
        node[1] += row.parameters
    return root


def pie(total: int, rows: Sequence[ShareRow]) -> dict[str, Any]:
    """The tree, and how a level of it is drawn."""
    trace = {
        "type": "pie",
        "hole": 0.42,
        "sort": False,
        "direction": "clockwise",
        "textinfo": "label+text",
        "textposition": "inside",
        "insidetextorientation": "horizontal",
        "marker": {"line": {"color": theme().ground, "width": 1}},
        "hovertemplate": hover(  # a slice has the customdata of all its points, here of one
            "<b>{name}</b><br>{n} parameters<br>{share} of all",
            name="%{customdata[0][0]}",
            n="%{value:,}",
            share="%{customdata[0][1]}",
        ),
    }
    middle = {"showarrow": False, "captureevents": True, "font": {"size": 15}, "x": 0.5, "y": 0.5}
    return {"root": tree(total, rows), "trace": trace, "middle": middle, "all": say("{n}<br>parameters", n="{n}")}


def pie_frame(total: int, rows: Sequence[ShareRow]) -> Figure:
    """Space round the pie, and its key, the largest component first."""
    sizes = Counter[str]()
    for row in rows:
        sizes[row.component] += row.parameters
    colors = [(words.color(name), f"{part(name)} {percent(size / total)}") for name, size in sizes.most_common()]
    margin = {"l": 4, "r": 4, "t": 4, "b": 4}
    return figure([], colors, height=350, margin=margin, uniformtext={"minsize": 11, "mode": "hide"})
