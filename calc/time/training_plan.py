"""Plans to train a model on so many GPUs of a kind: the layout, recomputation and ZeRO stage that take least time, the
largest micro-batch that fits, and what it comes to in days, energy and money."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from math import isqrt
from operator import itemgetter
from typing import Any, get_args

from pydantic import Field

from calc.budget import SECONDS_OF_PLANS, budget
from calc.errors import ConfigError, Frozen, Message
from calc.hardware.gpu import GPU
from calc.hardware.mig import unjoined
from calc.hardware.solver import largest
from calc.model.architecture import Architecture
from calc.remembered import remembered
from calc.time.cluster import USUAL, Cluster
from calc.time.training import Campaign, RankDemands, TrainingSpeed, TrainingTime, training_speed
from calc.training import (
    RECIPES,
    ROUNDS,
    Recipe,
    Recompute,
    Shared,
    Training,
    TrainingLayout,
    TrainingScenario,
    TrainingWorkload,
    check_modelled,
    interleaves,
)
from calc.units import GIB

DEGREES = (1, 2, 4, 8, 16)
"""Ranks that share a layer, stages, and spreads of experts that are tried."""
PIECES = (4, 2)
"""Pieces of the model on each stage that are tried besides one; more shorten the bubble by little."""
SAVINGS: tuple[Recompute, ...] = ("none", "alternate", "full")
ZERO = get_args(TrainingLayout.model_fields["zero"].annotation)


class TrainingNeeds(Frozen):
    """Training to plan, and its GPUs."""

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
    cluster: Cluster = USUAL
    shared: Shared = field(default_factory=Shared)  # what its steps have in common, memory and time

    def __post_init__(self) -> None:
        """Raises ConfigError for a model whose step is not computed."""
        check_modelled(self.architecture)

    def layouts(self) -> Iterator[TrainingLayout]:
        """Tensor parallelism inside a node, pipeline stages, experts over replicas; the rest are replicas, of which
        every ZeRO stage is tried that is of use."""
        needs = self.needs
        sparse = bool(self.architecture.experts)
        for tp in (n for n in DEGREES if n <= self.cluster.gpus_per_node):
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

    @remembered
    def interleaved(self, layout: TrainingLayout) -> list[TrainingLayout]:
        """Layouts with several pieces on each stage, the most first."""
        whole = layout.pp > 1 and self.share(layout) % layout.pp == 0 and interleaves(self.recipe)
        several = (layout.model_copy(update={"vp": vp}) for vp in PIECES if whole)
        return [other for other in several if accepted(other, self.architecture)]

    def training(self, layout: TrainingLayout, recompute: Recompute, accumulation: int) -> Training:
        """The memory of a step at any micro-batch; more micro-batches than a pipeline has in flight change nothing."""
        most = max(2, layout.pp) if layout.vp == 1 else ROUNDS * layout.pp
        counted = min(accumulation, most)

        def step() -> Training:
            work = self.work.model_copy(update={"micro_batch": 1, "accumulation": counted, "recompute": recompute})
            scenario = TrainingScenario(workload=work, recipe=self.recipe, layout=layout)
            return Training(self.architecture, scenario, self.shared)

        return self.shared.once(("training", layout, recompute, counted), step)

    def share(self, layout: TrainingLayout) -> int:
        """Sequences of a step that one replica sees."""
        return self.needs.global_batch // layout.dp

    def micro_batches(self, layout: TrainingLayout) -> list[int]:
        """Sizes that divide a replica's share of the step, from small to large; of interleaved stages into a multiple
        of these."""
        share, over = divmod(self.share(layout), layout.pp if layout.vp > 1 else 1)
        few = [n for n in range(1, isqrt(share) + 1) if share % n == 0 and not over]
        return sorted(n for n in {*few, *(share // n for n in few)} if self.needs.micro_batch in (None, n))

    def peak_bytes(self, layout: TrainingLayout, recompute: Recompute, n: int) -> int:
        """Bytes on the most loaded GPU at a micro-batch, overhead apart."""
        training = self.training(layout, recompute, self.share(layout) // n)
        return training.highest_peak(training.units(n, self.work.sequence), single=n == 1).size

    def candidate(self, gpu: GPU, layout: TrainingLayout, recompute: Recompute) -> "TimedStep | None":
        """The largest micro-batch of a layout and recomputation that fits a GPU; None where none does."""
        sizes = self.micro_batches(layout)
        if not sizes:
            return None
        room = self.training(layout, recompute, self.share(layout)).room(gpu.usable_bytes)
        if self.peak_bytes(layout, recompute, sizes[0]) > room:
            return None
        count = largest(lambda count: self.peak_bytes(layout, recompute, sizes[count - 1]) <= room, len(sizes))
        speed = self.speed(gpu, layout, recompute, sizes[count - 1])
        return speed.seconds("expected"), speed

    def fastest(self, gpu: GPU, ways: Sequence[tuple[TrainingLayout, Recompute]]) -> "TimedStep | None":
        """The way that fits whose step takes least; what can't be faster than another is not weighed."""
        best: TimedStep | None = None
        bounds = [self.least(gpu, layout, recompute) for layout, recompute in ways]
        for least, number in sorted(zip(bounds, range(len(ways)), strict=True)):
            if best is not None and least >= best[0]:
                break
            for candidate in self.candidates(gpu, *ways[number]):
                if best is None or candidate[0] < best[0]:
                    best = candidate
        return best

    def candidates(self, gpu: GPU, layout: TrainingLayout, recompute: Recompute) -> Iterator["TimedStep"]:
        """A layout; and where it fits, the same with the most pieces that do, for of equal layers these hold more."""
        plain = self.candidate(gpu, layout, recompute)
        if plain is not None:
            yield plain
            several = (self.candidate(gpu, other, recompute) for other in self.interleaved(layout))
            yield from islice((candidate for candidate in several if candidate is not None), 1)

    def least(self, gpu: GPU, layout: TrainingLayout, recompute: Recompute) -> float:
        """Seconds of a step that no micro-batch goes below: as if stages had the most pieces that are tried, and these
        sent nothing."""
        key, speed = ("arithmetic", gpu.id, layout.tp, layout.pp, recompute), self.speed(gpu, layout, recompute, 1)
        arithmetic = self.shared.once(key, lambda: speed.arithmetic_s("expected"))
        most = next(iter(self.interleaved(layout)), layout)
        return replace(speed, layout=most).least(arithmetic, "expected")

    def speed(self, gpu: GPU, layout: TrainingLayout, recompute: Recompute, n: int) -> TrainingSpeed:
        ranks = layout.tp, layout.pp, layout.vp
        changes = {"micro_batch": n, "accumulation": self.share(layout) // n, "recompute": recompute}
        work = self.work.model_copy(update=changes)

        def first() -> TrainingSpeed:
            """Speed of the first step of such ranks, of which others differ in workload and layout alone."""
            demands = self.shared.once(("demands", *ranks), lambda: RankDemands.of(self.architecture, layout))
            scenario = TrainingScenario(workload=work, recipe=self.recipe, layout=layout)
            return training_speed(self.architecture, scenario, gpu, self.cluster, demands=demands)

        return replace(self.shared.once(("speed", gpu.id, *ranks), first), work=work, layout=layout)

    def plan(self, speed: TrainingSpeed) -> TrainingPlan:
        """Plan with its ranges, and what stays free."""
        gpu, work, layout = speed.gpu, speed.work, speed.layout
        memory = self.training(layout, work.recompute, work.accumulation).memory(micro_batch=work.micro_batch)
        return TrainingPlan(
            gpu=gpu.id,
            layout=layout,
            recompute=work.recompute,
            micro_batch=work.micro_batch,
            accumulation=work.accumulation,
            headroom_gib=(gpu.usable_bytes - memory.high) / GIB,
            time=speed.time(),
            campaign=speed.campaign(self.needs.tokens, gpu.tdp_w, self.cluster.price(gpu.id)),
        )


TimedStep = tuple[float, TrainingSpeed]
"""A way to train that fits, behind the seconds of its step, as expected. Steps of all have the same tokens."""


def accepted(layout: TrainingLayout, architecture: Architecture) -> bool:
    try:
        layout.check(architecture)
    except ConfigError:
        return False
    return True


@budget(SECONDS_OF_PLANS)
def training_plan_report(
    config: Mapping[str, Any],
    needs: TrainingNeeds,
    *,
    gpus: Sequence[GPU],
    model: str | None = None,
    work: TrainingWorkload | None = None,
    recipe: Recipe | None = None,
    cluster: Cluster = USUAL,
) -> TrainingPlanReport:
    """Plans that train every weight of a config's model. Raises ConfigError with a sentence for people."""
    architecture = Architecture.from_config(config)
    recipe = recipe or RECIPES["master"]
    search = TrainingSearch(architecture, work or TrainingWorkload(), recipe, needs, cluster)
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
    ways = list(product(layouts, SAVINGS))
    joined = [gpu for gpu in gpus if unjoined(gpu, needs.gpus) is None]
    if gpus and not joined and (why := unjoined(gpus[0], needs.gpus)) is not None:
        raise ConfigError(why, "gpus", [1])
    fastest = [candidate for gpu in joined if (candidate := search.fastest(gpu, ways)) is not None]
    fastest.sort(key=itemgetter(0))
    return TrainingPlanReport(
        model=model or architecture.model_type,
        needs=needs,
        plans=tuple(search.plan(speed) for _, speed in fastest),
        savings=tuple(savings(search, fastest[0][1])) if fastest else (),
        assumptions=tuple(assumptions(search)),
    )


def savings(search: TrainingSearch, best: TrainingSpeed) -> Iterator[TrainingPlan]:
    """The layout's ranks under every ZeRO stage and recomputation."""
    ranks = best.layout
    stages = ZERO if ranks.replicas > 1 else (0,)
    layouts = [ranks.model_copy(update={"zero": zero}) for zero in stages]
    candidates = (search.candidate(best.gpu, layout, recompute) for layout, recompute in product(layouts, SAVINGS))
    yield from (search.plan(candidate[1]) for candidate in candidates if candidate is not None)


def assumptions(search: TrainingSearch) -> Iterable[Message]:
    yield Message(
        "A plan fits even at the high end of the overhead, with the largest micro-batch that divides a replica's share "
        "of the {n:,} sequences of a step.",
        n=search.needs.global_batch,
    )
    if interleaves(search.recipe):
        most, fewer = PIECES
        yield Message(
            "Pipeline stages are interleaved where that makes the step shorter: {most} pieces on each (VP), or {fewer} "
            "where no more fit; a replica's micro-batches are then a multiple of the stages.",
            most=most,
            fewer=fewer,
        )
    yield Message("Energy is the board power of the GPUs alone, as printed; hosts, links and cooling come on top.")
    yield Message("Days are those of steps alone: no failures, evaluations or checkpoints.")
