"""What one rank of each layout holds and does, in several formats at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.loading import vision_share
from calc.serving.engines.sizes import LaidOut, Limits, Stage
from calc.serving.weighing import RankWeights, Weighing
from calc.time.arrays import Array, Indices
from calc.time.flops import unrolled
from calc.time.time_operations import Demand, Routing, computed, demand, routing


@dataclass(frozen=True)
class Shard:
    """A rank of a layout."""

    weighing: Weighing  # of all experts, which no cache depends on
    passing: Weighing  # of those that it holds, which its passes go through
    stage_bytes: Array  # weights of each pipeline stage, as stored, [stages, formats]
    demand: Demand  # of all stages together; weights and cache in all formats, [formats]
    layout: Layout
    formats: tuple[int, ...]  # by their numbers
    precisions: tuple[Precision, ...]
    ranges: tuple[range, ...]

    @cached_property
    def laid_out(self) -> LaidOut:
        """Stages as an engine knows them, in the first format, their weights left out."""
        return self.cut(self.ranges)

    def cut(self, ranges: tuple[range, ...]) -> LaidOut:
        """The rank in so many stages."""
        rank = self.weighing.rank
        stages = tuple(
            Stage(tuple(blocks_within(rank, stage)), first=stage.start == 0, last=stage.stop == rank.num_layers)
            for stage in ranges
        )
        return LaidOut(self.weighing.whole, rank, stages, ranges, self.layout, self.precisions[0])

    def working_bytes(self, engine: Engine, limits: Limits) -> list[int]:
        """The largest pass of each stage."""
        passing, laid_out = self.passing, self.laid_out
        passes = (passing.working(engine, limits, laid_out, stage) for stage in range(len(self.ranges)))
        return [int(largest.bytes) for largest in passes]


@dataclass(frozen=True)
class Weighed:
    """A tensor-parallel rank with a slice of all experts, as stored in each format: [formats] and [formats, layers]."""

    routed: Array  # bytes of each layer's routed experts
    others: Array  # of each layer beside them
    before: Array  # of what stands before the layers
    behind: Array  # of what stands behind them, a tied head included
    demand: Demand


class Shards:
    """The shards of layouts; each degree of tensor parallelism and number of slices is weighed once."""

    def __init__(self, architecture: Architecture, engine: Engine, precisions: Sequence[Precision]) -> None:
        self.engine, self.precisions = engine, precisions
        self.weights = list[RankWeights]()
        for precision in precisions:
            like = self.weights[0] if self.weights else None
            self.weights.append(RankWeights(architecture, engine, precision, like))
        self.by_slices = dict[Layout, Weighed]()
        self.known = dict[tuple[Layout, tuple[int, ...]], Shard]()

    def __call__(self, layout: Layout, formats: tuple[int, ...]) -> Shard:
        """The shard of a layout in some of the formats."""
        key = layout, formats
        if key not in self.known:
            self.known[key] = self.shard(layout, formats)
        return self.known[key]

    def shard(self, layout: Layout, formats: tuple[int, ...]) -> Shard:
        """A rank with its share of the attention, and of the slices of routed experts: without expert parallelism the
        copies of the attention cut each into one for every rank of theirs (vLLM `docs/serving/
        data_parallel_deployment.md`; SGLang `distributed/parallel_state.py`, `moe_tp_size`)."""
        first, chosen, own = self.weights[0], list(formats), self.weighed(Layout(tp=layout.tp))
        experts = own if layout.slices == layout.tp else self.weighed(Layout(dp=layout.slices))
        route = routing(first.whole, layout)
        share = 1.0 if route is None else -(-route.experts // layout.ep) / route.experts
        ranges = first.ranges_of(layout.pp)
        by_layer = own.others[chosen] + experts.routed[chosen] * share
        stage_bytes = np.stack([by_layer[:, stage.start : stage.stop].sum(axis=1) for stage in ranges])
        stage_bytes[0] += own.before[chosen]
        stage_bytes[-1] += (own.behind - (own.demand.tied_head if layout.pp == 1 else 0))[chosen]
        does = replace(own.demand, routing=route, dcp=layout.dcp, longest=max(map(len, ranges)), stages=layout.pp)
        if route is not None:
            there = experts.demand
            does = replace(
                does,
                flops=does.flops | {"experts_routed": there.flops["experts_routed"]},
                elements=does.elements | {"experts_routed": there.elements["experts_routed"]},
                weights=does.weights | {"experts_routed": there.weights["experts_routed"] * share},
            )
        return Shard(
            weighing=first.of(Layout(tp=layout.tp)),
            passing=first.of(layout),
            stage_bytes=stage_bytes,
            demand=does,
            layout=layout,
            formats=formats,
            precisions=tuple(self.precisions[number] for number in formats),
            ranges=ranges,
        )

    def weighed(self, layout: Layout) -> Weighed:
        """A rank with a slice of every expert; a draft layer and a vision encoder count where the engine loads them."""
        if layout not in self.by_slices:
            self.by_slices[layout] = self.weigh(layout)
        return self.by_slices[layout]

    def weigh(self, layout: Layout) -> Weighed:
        weighings = [ranks.of(layout) for ranks in self.weights]
        whole, rank, layers = weighings[0].whole, weighings[0].rank, range(weighings[0].rank.num_layers)
        sizes = [[weighing.parts[kind] for kind in (*weighing.tensors.kinds, -2, -1)] for weighing in weighings]
        *by_layer, before, behind = np.array(sizes, dtype=np.float64).transpose(1, 2, 0)
        before, behind = before.sum(axis=0), behind.sum(axis=0)
        routed, others = np.stack(by_layer, axis=2)
        if self.engine.loads_vision:
            before += sum(vision_share(tensor, layout) for tensor in rank.tensors() if tensor.excluded_as == "vision")
        states = partial(self.engine.state_bytes, whole)
        does = computed(unrolled(whole), unrolled(rank), layout, layers, states=states)
        demands = [
            demand(whole, rank, weighing.precision, layout, layers, file=weighing.read, like=does)
            for weighing in weighings
        ]
        return Weighed(routed, others, before, behind, combined(demands, np.array))


def combined(figures: Sequence[Any], of: Callable[[Sequence[Any]], Any]) -> Any:
    """Of demands, or other figures, those that `of` makes of all of them."""
    first = figures[0]
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for figure in figures for key in figure)  # a GGUF file has other products
        return {key: combined([figure.get(key, False) for figure in figures], of) for key in keys}
    if isinstance(first, Demand | Routing):
        names = [field.name for field in fields(first)]
        return replace(first, **{name: combined([getattr(each, name) for each in figures], of) for name in names})
    return None if first is None else of(figures)


def stacked(figures: Sequence[Any]) -> Any:
    """Figures of several ranks, each one or [formats], as one array; one figure where all are alike."""
    table = np.array(figures)
    return table.flat[0].item() if (table == table.flat[0]).all() else table


def of_rows(table: Demand, which: Indices, forms: Indices) -> Demand:
    """Of the demands of some ranks, stacked, those of rows of one rank and format each: [rows, 1]."""

    def chosen(figures: Sequence[Any]) -> Any:
        (figure,) = figures
        if not isinstance(figure, np.ndarray):
            return figure
        return figure[which, None] if figure.ndim == 1 else figure[which, forms, None]

    by_row: Demand = combined([table], chosen)
    return by_row
