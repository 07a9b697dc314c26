"""What the ranks of each pipeline stage of a training step do."""

from collections.abc import Iterable
from dataclasses import dataclass

from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.hardware.shards import alike_pieces, alike_stages
from calc.model.architecture import Architecture
from calc.time.time_operations import Demand, demand
from calc.training.layout import TrainingLayout


def unlike(demands: Iterable[Demand]) -> Iterable[Demand]:
    """The first of stages that do the same, which share one object."""
    return {id(demand): demand for demand in demands}.values()


@dataclass(frozen=True)
class RankDemands:
    """What ranks of so many tensor-parallel ranks and pipeline stages do, and the whole model on one GPU."""

    rank: Architecture
    stages: tuple[tuple[range, ...], ...]  # the pieces of each
    demands: tuple[Demand, ...]
    whole: Demand

    @classmethod
    def of(cls, architecture: Architecture, layout: TrainingLayout, whole: Demand | None = None) -> "RankDemands":
        ranks, stored = Layout(tp=layout.tp, ep=layout.tp // layout.slices), Precision()
        rank = architecture.rank(layout.tp, layout.slices)
        stages = tuple(layout.stages(architecture.num_layers))
        alike = alike_stages(alike_pieces(rank, layout.pieces(architecture.num_layers), rank.tensors()), layout.pp)
        demands: list[Demand] = []
        for stage, first in zip(stages, alike, strict=True):
            here = demands[first] if first < len(demands) else demand(architecture, rank, stored, ranks, *stage)
            demands.append(next((known for known in demands if known == here), here))
        return cls(
            rank=rank,
            stages=stages,
            demands=tuple(demands),
            whole=whole or demand(architecture, architecture, stored, Layout(), range(architecture.num_layers)),
        )
