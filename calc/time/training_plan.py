"""How to train a model on so many GPUs of a kind: the layout, recomputation and ZeRO stage that take least time, the
largest micro-batch that fits, and what it comes to in days, energy and money."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args

from pydantic import Field

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.solver import largest
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE
from calc.time.efficiency import Edits
from calc.time.prices import price_of
from calc.time.training_time import Campaign, RankDemands, TrainingSpeed, TrainingTime, training_speed
from calc.training.recipe import RECIPES, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.step import Training
from calc.training.training_workload import Recompute, TrainingWorkload
from calc.units import GIB

DEGREES = (1, 2, 4, 8, 16)
"""Ranks that share a layer, stages, and spreads of experts that are tried."""
SAVINGS: tuple[Recompute, ...] = ("none", "alternate", "full")
ZERO = get_args(TrainingLayout.model_fields["zero"].annotation)


class TrainingNeeds(Frozen):
    """What is to be trained on how many GPUs."""

    tokens: float = Field(default=1e11, gt=0, le=1e18, description="Tokens to train on.")
    gpus: int = Field(default=8, ge=1, le=65_536, description="GPUs in all.")
    global_batch: int = Field(default=256, ge=1, le=2**24, description="Sequences of a step on all GPUs.")
    micro_batch: int | None = Field(
        default=None, ge=1, le=2**24, description="Sequences of a micro-batch; the largest that fits unless set."
    )


class TrainingPlan(Frozen):
    """One way to train it."""

    gpu: str
    layout: TrainingLayout
    recompute: Recompute
    micro_batch: int
    accumulation: int
    headroom_gib: float  # of the most loaded GPU, at the high end of the overhead
    time: TrainingTime
    campaign: Campaign


class TrainingPlanReport(Frozen):
    """The fastest plan of each GPU, the fewest days first; of the first of them, what else the same layout could be."""

    model: str
    needs: TrainingNeeds
    plans: tuple[TrainingPlan, ...]
    savings: tuple[TrainingPlan, ...]  # the same GPU and ranks under every ZeRO stage and recomputation that fits
    assumptions: tuple[Message, ...]


@dataclass(frozen=True)
class TrainingSearch:
    """A model, a recipe and what is to be done with them."""

    architecture: Architecture
    work: TrainingWorkload
    recipe: Recipe
    needs: TrainingNeeds
    node: int = 8
    prices: Mapping[str, float] | None = None
    edits: Edits | None = None
    demands: dict[tuple[int, int], RankDemands] = field(default_factory=dict)

    def layouts(self) -> Iterator[TrainingLayout]:
        """Tensor parallelism inside a node, pipeline stages, experts over replicas; the rest are replicas, of which
        every ZeRO stage is tried that is of use."""
        needs = self.needs
        sparse = any(isinstance(block.ffn, MoE) for block in self.architecture.blocks)
        for tp in (n for n in DEGREES if n <= self.node):
            for pp in (n for n in DEGREES if n <= self.architecture.num_layers):
                dp, over = divmod(needs.gpus, tp * pp)
                if over or not dp or needs.global_batch % dp:
                    continue
                for ep in (n for n in (*DEGREES, 32, 64) if n == 1 or (sparse and n <= dp)):
                    # pipelines gather sharded weights anew for each micro-batch: stage 3 is for those without
                    for zero in ((1,) if pp > 1 else (1, 3)) if dp > 1 else (0,):
                        layout = TrainingLayout(tp=tp, pp=pp, dp=dp, ep=ep, zero=zero)
                        if accepted(layout, self.architecture):
                            yield layout

    def memory(self, layout: TrainingLayout, work: TrainingWorkload) -> int:
        """Bytes of one GPU at the high end of the overhead."""
        training = Training(self.architecture, work, self.recipe, layout, Overhead(), Precision())
        return training.memory().high

    def micro_batches(self, layout: TrainingLayout) -> list[int]:
        """Those that divide a replica's share of the step, from small to large."""
        share = self.needs.global_batch // layout.dp
        return [n for n in range(1, share + 1) if share % n == 0 and self.needs.micro_batch in (None, n)]

    def works(self, layout: TrainingLayout, recompute: Recompute) -> list[TrainingWorkload]:
        share = self.needs.global_batch // layout.dp
        return [
            self.work.model_copy(update={"micro_batch": n, "accumulation": share // n, "recompute": recompute})
            for n in self.micro_batches(layout)
        ]

    def candidates(
        self, gpus: Sequence[GPU], layouts: Iterable[TrainingLayout], savings: Sequence[Recompute] = SAVINGS
    ) -> Iterator["Candidate"]:
        """The largest micro-batch of each layout and recomputation on each GPU."""
        for layout in layouts:
            for recompute in savings:
                yield from self.largest_of_each(gpus, layout, self.works(layout, recompute))

    def largest_of_each(
        self, gpus: Sequence[GPU], layout: TrainingLayout, works: Sequence[TrainingWorkload]
    ) -> Iterator["Candidate"]:
        """The last of some steps, of ever larger micro-batches, that fits each GPU."""

        @cache
        def needed(n: int) -> int:
            return self.memory(layout, works[n - 1])

        for gpu in gpus:

            def fits(n: int, usable: int = gpu.usable_bytes) -> bool:
                return needed(n) <= usable

            n = largest(fits, len(works)) if works else 0
            if n:
                speed = self.speed(gpu, layout, works[n - 1])
                yield Candidate(gpu, speed, gpu.usable_bytes - needed(n), speed.seconds("expected"))

    def speed(self, gpu: GPU, layout: TrainingLayout, work: TrainingWorkload) -> TrainingSpeed:
        key = layout.tp, layout.pp
        if key not in self.demands:
            self.demands[key] = RankDemands.of(self.architecture, layout)
        return training_speed(
            self.architecture,
            work,
            self.recipe,
            layout,
            gpu,
            edits=self.edits,
            node=self.node,
            demands=self.demands[key],
        )

    def plan(self, found: "Candidate") -> TrainingPlan:
        """With its ranges."""
        gpu, speed = found.gpu, found.speed
        price = (self.prices or {}).get(gpu.id, price_of(gpu.id))
        return TrainingPlan(
            gpu=gpu.id,
            layout=speed.layout,
            recompute=speed.work.recompute,
            micro_batch=speed.work.micro_batch,
            accumulation=speed.work.accumulation,
            headroom_gib=found.spare / GIB,
            time=speed.time(),
            campaign=speed.campaign(self.needs.tokens, gpu.tdp_w, price),
        )


@dataclass(frozen=True)
class Candidate:
    """A way to train that fits, and how long its step takes, as expected. Steps of all have the same tokens."""

    gpu: GPU
    speed: TrainingSpeed
    spare: int
    seconds: float


def accepted(layout: TrainingLayout, architecture: Architecture) -> bool:
    try:
        layout.check(architecture)
    except ConfigError:
        return False
    return True


def training_plan_report(
    config: Mapping[str, Any],
    needs: TrainingNeeds,
    *,
    gpus: Sequence[GPU],
    model: str | None = None,
    work: TrainingWorkload | None = None,
    recipe: Recipe | None = None,
    node: int = 8,
    prices: Mapping[str, float] | None = None,
    edits: Edits | None = None,
) -> TrainingPlanReport:
    """Plans that train every weight of a config's model. Raises ConfigError with a sentence for people."""
    architecture = Architecture.from_config(config)
    recipe = recipe or RECIPES["master"]
    search = TrainingSearch(architecture, work or TrainingWorkload(), recipe, needs, node, prices, edits)
    layouts = list(search.layouts())
    if not layouts:
        raise ConfigError(
            Message(
                "No layout divides {gpus:,} GPUs and {batch:,} sequences of a step evenly.",
                gpus=needs.gpus,
                batch=needs.global_batch,
            ),
            "gpus",
            [2 ** (needs.gpus.bit_length() - 1)],
        )
    best: dict[str, Candidate] = {}
    for one in sorted(search.candidates(gpus, layouts), key=lambda one: one.seconds):
        best.setdefault(one.gpu.id, one)
    plans = tuple(search.plan(one) for one in best.values())
    return TrainingPlanReport(
        model=model or architecture.model_type,
        needs=needs,
        plans=plans,
        savings=tuple(savings(search, gpus, plans[0])) if plans else (),
        assumptions=tuple(assumptions(search)),
    )


def savings(search: TrainingSearch, gpus: Sequence[GPU], best: TrainingPlan) -> Iterator[TrainingPlan]:
    """The same ranks under every ZeRO stage and recomputation."""
    (gpu,) = (gpu for gpu in gpus if gpu.id == best.gpu)
    stages = ZERO if best.layout.replicas > 1 else (0,)
    layouts = [best.layout.model_copy(update={"zero": zero}) for zero in stages]
    yield from map(search.plan, search.candidates([gpu], layouts))


def assumptions(search: TrainingSearch) -> Iterable[Message]:
    """What the plans take for granted."""
    yield Message(
        "A plan fits even at the high end of the overhead, with the largest micro-batch that divides a replica's share "
        "of the {n:,} sequences of a step.",
        n=search.needs.global_batch,
    )
    yield Message("Energy is the board power of the GPUs alone, as printed; hosts, links and cooling come on top.")
    yield Message("Days are those of steps alone: no failures, evaluations or checkpoints.")
