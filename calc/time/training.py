"""Times of a training step: products and attention forward and backward, elementwise kernels, communication and the
optimizer; and what that makes in tokens, MFU, days, energy and money."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from calc.errors import Frozen
from calc.formats import Precision, WeightFormat
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.hardware.shards import alike_pieces, alike_stages
from calc.model.architecture import Architecture
from calc.time.arrays import maximum
from calc.time.cluster import USUAL, Cluster
from calc.time.efficiency import (
    OF_TRAINING,
    Conditions,
    EfficiencyRow,
    Route,
    TrainingEfficiency,
    training_efficiency,
    training_rows,
)
from calc.time.estimate import ENDS, End, Estimate
from calc.time.operations import Demand, Forward, Operation, PassPart, What, demand, touched
from calc.time.roofline import UNKNOWN_RATE, Bound, Timed, Work, bus_gb_s, product_dtype
from calc.training import WIDTH, Recipe, Recompute, TrainingLayout, TrainingScenario, TrainingWorkload

MS = 1000
SECONDS_A_DAY = 86_400
RECOMPUTED: dict[Recompute, tuple[float, float]] = {
    "none": (0, 0),
    "selective": (0, 1),
    "alternate": (0.5, 0),
    "full": (1, 1),
}
"""Products and attention computed again, in forward passes."""
BACKWARD_ATTENTION = 2.5
"""Attention's backward pass, in forward passes: flash attention computes its scores again (arXiv:2307.08691 section
2.3)."""


class StepPasses(NamedTuple):
    """Passes of a kind of work in a step, in forward passes."""

    forward: float
    backward: float
    recomputed: float

    @property
    def all(self) -> float:
        return self.forward + self.backward + self.recomputed


class ReplicatedWeights(NamedTuple):
    """Weights of a rank that so many ranks hold alike, each so many ranks apart from the next."""

    elements: float
    replicas: int
    stride: int


def distinct(demands: Iterable[Demand]) -> Iterable[Demand]:
    """Numbers of the first of equal stages, which share one object."""
    return {id(demand): demand for demand in demands}.values()


@dataclass(frozen=True)
class RankDemands:
    """Demands of ranks of so many tensor-parallel ranks and pipeline stages, and of the whole model on one GPU."""

    rank: Architecture
    stages: tuple[tuple[range, ...], ...]  # the pieces of each
    demands: tuple[Demand, ...]  # of each
    whole: Demand

    @staticmethod
    def of(architecture: Architecture, layout: TrainingLayout) -> "RankDemands":
        ranks, stored = Layout(tp=layout.tp, ep=layout.tp // layout.slices), Precision()
        rank = architecture.rank(layout.tp, layout.slices)
        stages = tuple(layout.stages(architecture.num_layers))
        alike = alike_stages(alike_pieces(rank, layout.pieces(architecture.num_layers), rank.tensors()), layout.pp)
        demands: list[Demand] = []
        for stage, first in zip(stages, alike, strict=True):
            here = demands[first] if first < len(demands) else demand(architecture, rank, stored, ranks, *stage)
            demands.append(next((known for known in demands if known == here), here))
        whole = demand(architecture, architecture, stored, Layout(), range(architecture.num_layers))
        return RankDemands(rank, stages, tuple(demands), whole)


class TrainingTime(Frozen):
    """A step, and what it comes to."""

    step_s: Estimate
    tokens_per_s_per_gpu: Estimate
    tflops_per_gpu: Estimate
    """TFLOP/s of one GPU in products, forward and backward, and in the pairs of tokens that attend: half of all where
    attention is causal, as Megatron-LM prints it."""
    mfu: Estimate
    """Share of the peak of the products' type; FLOPs of products and of all query-key pairs, forward and twice that
    backward (once in products of frozen weights), nothing recomputed (PaLM appendix B, arXiv:2204.02311)."""


class Campaign(Frozen):
    """Training on so many tokens."""

    days: Estimate
    energy_mwh: Estimate | None
    cost: Estimate | None


@dataclass(frozen=True)
class TrainingSpeed(RankDemands):
    """A step on GPUs of one kind, ready to be timed."""

    trained: float  # share of the weights that are trained
    work: TrainingWorkload
    recipe: Recipe
    layout: TrainingLayout
    gpu: GPU
    dtype: Dtype  # that products are computed in
    rows: Mapping[str, EfficiencyRow]  # that decide, by the fields of the shares
    shares: TrainingEfficiency
    cluster: Cluster
    logits: int | None = None  # tokens of a micro-batch that the head reads; None: all
    tiled: bool = False  # the head works by tiles that are made again going back
    quiet: bool = False  # forward passes alone

    def usual_rows(self) -> dict[str, EfficiencyRow]:
        """The usual efficiencies of such GPUs, each with its source, by the names under which others are stated."""
        return {f"{OF_TRAINING}{name}": row for name, row in self.rows.items()}

    def forward(self) -> Forward:
        """The tokens of a micro-batch on one rank; context parallelism divides those of each sequence."""
        share = -(-self.work.sequence // self.layout.cp)
        logits = self.work.micro_batch * share if self.logits is None else self.logits
        return Forward((PassPart(self.work.micro_batch, share),), logits=logits)

    def without_gradients(self) -> "TrainingSpeed":
        """The forward passes of the same micro-batches."""
        work = self.work.model_copy(update={"method": "lora", "recompute": "none"})  # nothing of the model is trained
        return replace(self, quiet=True, trained=0.0, work=work)

    def peak(self, dtype: Dtype) -> float:
        return self.gpu.tflops.get(dtype, UNKNOWN_RATE) * 1e12

    def bandwidth(self, end: End) -> float:
        """Bytes/s of a GPU's memory, as they are reached."""
        return self.gpu.bandwidth_gb_s * 1e9 * self.shares.bandwidth.share(end)

    def link(self, over: Route, end: End) -> float:
        """Bytes/s of one direction of what connects GPUs, as they are reached."""
        if over == "network":
            return self.shares.inter_node_gb_s.share(end) * 1e9
        return bus_gb_s(self.gpu, over) * self.shares.link.share(end) * 1e9

    def passes(self, what: Work) -> StepPasses:
        """Backward computes two products for each, one where weights are not trained; collectives within layers are
        those of the forward pass once more (arXiv:1909.08053 section 3)."""
        products, attention = RECOMPUTED[self.work.recompute]
        if self.quiet:
            return StepPasses(1, 0, 0)
        if what == "scores":
            return StepPasses(1, BACKWARD_ATTENTION, attention)
        if what == "communication":
            return StepPasses(1, 1, products)
        if what == "experts_routed" and self.work.recompute == "alternate":
            products = 1  # grouped products are all computed again (torchtitan's `SelectiveAC`)
        again = 1 if self.tiled and what == "lm_head" else 0
        return StepPasses(1, 2 if self.work.trains_base else 1, products + again)

    def parts(self, demand: Demand, end: End) -> Iterator[Timed]:
        """One micro-batch on a stage, forward, backward and recomputed."""
        on_gpu = [self.timed(operation, end) for operation in demand.operations(self.forward())]
        memory = self.between_products(demand, end)
        on_gpu += [Timed("elementwise", memory, 0.0, memory), Timed("communication", self.within_layers(demand, end))]
        yield from on_gpu
        yield Timed("host", maximum(self.launches(demand, end) - sum(part.seconds for part in on_gpu), 0.0))

    def between_products(self, demand: Demand, end: End) -> float:
        """Seconds of the elementwise kernels, and of those that sort tokens by their experts and back."""
        shares, passes, tokens = self.shares, self.passes("elementwise").all, self.forward().tokens
        moved = shares.elementwise.duration(end) * tokens * demand.layers
        moved /= self.layout.tp if self.layout.sequence_parallel else 1
        if demand.routing is not None:
            moved += shares.routed.duration(end) * demand.routing.rows(tokens) * demand.moe_layers
        seconds: float = passes * moved * demand.hidden / 3
        return seconds / self.bandwidth(end)

    def launches(self, demand: Demand, end: End) -> float:
        """Seconds that the host takes to launch the kernels of a micro-batch, which it does while they run."""
        shares, passes = self.shares, self.passes("host").all
        each = demand.layers * shares.layer_us.duration(end) + demand.moe_layers * shares.sparse_us.duration(end)
        return passes * each / 3 * 1e-6

    def computing(self, what: What, flops: float, end: End) -> float:
        """Seconds of so many FLOPs of a forward pass, in all passes. Attention of a context-parallel rank: its share of
        all pairs."""
        shares, flops = self.shares, flops * self.passes(what).all
        share, peak = shares.matmul.share(end), self.peak(self.dtype)
        if what == "scores":
            share, peak = shares.attention.share(end), self.peak(product_dtype("bf16", self.gpu))
            flops *= self.layout.cp
        elif what == "experts_routed" and self.uneven:
            share *= shares.uneven.share(end)
        return flops / (peak * share)

    @property
    def uneven(self) -> bool:
        """Whether routed experts have a side that is no multiple of 128."""
        return self.whole.routing is not None and self.whole.routing.uneven

    def timed(self, operation: Operation, end: End) -> Timed:
        passes = self.passes(operation.what).all
        compute = self.computing(operation.what, operation.flops / self.routers(operation.what), end)
        weights = operation.weights / (self.layout.ep if operation.what == "experts_routed" else 1)
        activations = operation.activations / self.routers(operation.what)
        memory = passes * (weights + operation.cache + activations) / self.bandwidth(end)
        return Timed(operation.what, maximum(compute, memory), compute, memory)

    def routers(self, what: What) -> int:
        """Ranks over which the tokens of a router are divided: sequence parallelism leaves each its own (Megatron-LM,
        `core/transformer/moe/token_dispatcher.py`), torch's DTensor gathers those of all before."""
        divided = what == "router" and self.layout.sequence_parallel and self.recipe.buffers
        return self.layout.tp if divided else 1

    def within_layers(self, demand: Demand, end: End, *, latency: bool = True) -> float:
        """Seconds that do not hide behind compute. Tensor parallelism: two all-reduces a layer; tokens sent to their
        experts and back; keys and values passed round a ring of context-parallel ranks (arXiv:2310.01889)."""
        layout, tokens = self.layout, self.forward().tokens
        row = demand.hidden * WIDTH[self.recipe.compute]
        rounds = self.passes("communication").all
        seconds = 0.0
        if layout.tp > 1:
            seconds += 2 * rounds * demand.layers * self.ring(end, layout.tp, 2 * tokens * row, latency=latency)
        if layout.ep > 1 and demand.routing is not None:
            sent = self.to_experts(demand.routing.top_k, tokens * row, end, latency=latency)
            seconds += 2 * rounds * demand.moe_layers * sent
        if layout.cp > 1:
            cache = tokens * demand.written_bits / 8
            seconds += rounds * self.ring(end, layout.cp * layout.tp, layout.cp * cache, latency=latency)
        return seconds * (1 - self.shares.overlap_within.share(end))

    def to_experts(self, top_k: int, nbytes: float, end: End, *, latency: bool) -> float:
        """Seconds in which tokens of so many bytes are sent to their experts, or back: over links to each GPU that
        holds some of a token's experts, with all parts of an expert on ranks of its own; over the network to each other
        node that does, once, whose own links pass it on meanwhile (DeepEP and HybridEP,
        github.com/deepseek-ai/DeepEP)."""
        layout, reach = self.layout, self.cluster.reach(self.gpu)
        ranks, share = layout.ep * layout.slices, layout.slices / layout.tp
        within = min(ranks, reach)
        seconds = self.ring(end, within, share * nbytes * layout.ep * touched(layout.ep, 1, top_k), latency=latency)
        nodes = -(-ranks // reach)
        if nodes == 1:
            return seconds
        sent = share * nbytes * nodes * touched(nodes, 1, top_k) * (nodes - 1) / nodes
        longer: float = maximum(seconds, sent / self.link("network", end))
        return longer

    def ring(self, end: End, ranks: int, nbytes: float, *, latency: bool) -> float:
        """A collective in which each rank sends all but its own share of so many bytes."""
        start = self.shares.all_reduce_us.duration(end) * 1e-6 if latency else 0.0
        return start + (ranks - 1) / ranks * nbytes / self.link(self.cluster.path(self.gpu, ranks), end)

    def between_replicas(self, end: End) -> tuple[float, float]:
        """Seconds of a micro-batch and of a step in which replicas exchange weights and gradients: with ZeRO-3 weights
        are gathered forward and backward, gradients scattered; else gradients are scattered and gathered, or weights
        (arXiv:1910.02054 section 7)."""
        recipe = self.recipe
        weights = max(
            sum(part.elements * self.ring_s(part, end) for part in self.weights(demand))
            for demand in distinct(self.demands)
        )
        trained = weights * self.trained
        if self.layout.zero == 3:
            passes = 2 if self.work.trains_base else 1
            return passes * weights * WIDTH[recipe.compute] + trained * WIDTH[recipe.gradients], 0.0
        return 0.0, trained * (WIDTH[recipe.gradients] + WIDTH[recipe.weights])

    def between_stages(self, end: End) -> float:
        """Seconds of a micro-batch in which a stage hands on what its further pieces make, forward and back: with vp
        pieces it sends vp times as often (arXiv:2104.04473 section 2.2.2). What one piece sends is left out."""
        layout, vp = self.layout, self.layout.vp
        if vp == 1:
            return 0.0
        passed = self.forward().tokens * self.demands[0].hidden * WIDTH[self.recipe.compute]
        passed /= layout.tp if layout.sequence_parallel else 1
        over = self.cluster.path(self.gpu, layout.gpus)
        seconds: float = 2 * (vp - 1) * passed / self.link(over, end)
        return seconds

    def weights(self, demand: Demand) -> tuple[ReplicatedWeights, ReplicatedWeights]:
        """Parameters of a rank: routed experts, spread over ep ranks, and all else."""
        layout, elements = self.layout, {what: size / WIDTH["bf16"] for what, size in demand.weights.items()}
        routed = elements.pop("experts_routed", 0.0)
        return (
            ReplicatedWeights(routed / layout.ep, layout.expert_replicas, layout.slices * layout.ep),
            ReplicatedWeights(sum(elements.values()), layout.replicas, layout.tp),
        )

    def ring_s(self, part: ReplicatedWeights, end: End) -> float:
        """Seconds in which replicas pass each other a byte for each element. Between nodes there is a ring for each of
        the replicas within a node, each over an adapter of its own."""
        over, node = self.cluster.path(self.gpu, part.replicas * part.stride), self.cluster.gpus_per_node
        within = max(1, max(node, self.cluster.reach(self.gpu)) // part.stride) if over == "network" else 1
        return (part.replicas - 1) / part.replicas / (self.link(over, end) * within)

    def optimizer(self, end: End) -> float:
        """Seconds in which it reads and writes weights, their copies, gradients and states."""
        recipe, layout = self.recipe, self.layout
        each = WIDTH[recipe.weights] * 2 + WIDTH[recipe.gradients] + 2 * 2 * WIDTH[recipe.states] + 8 * recipe.master
        elements = max(
            sum(part.elements / (part.replicas if layout.zero else 1) for part in self.weights(demand))
            for demand in distinct(self.demands)
        )
        return elements * self.trained * each / self.bandwidth(end)

    def of_stage(self, demand: Demand, end: End) -> float:
        """Seconds of a micro-batch on a stage, without what replicas exchange."""
        seconds: float = sum(part.seconds for part in self.parts(demand, end))
        return seconds

    def slowest(self, end: End) -> int:
        """The number of the stage that takes longest."""
        times = [float(self.of_stage(demand, end)) for demand in self.demands]
        return times.index(max(times))

    def busy(self, end: End) -> float:
        """Seconds of a micro-batch on that stage."""
        return max(self.of_stage(demand, end) for demand in distinct(self.demands))

    def arithmetic_s(self, end: End) -> list[float]:
        """Seconds of products, attention and elementwise kernels of a micro-batch on each unlike stage, whatever they
        read."""
        return [
            sum(self.computing(operation.what, operation.flops, end) for operation in demand.operations(self.forward()))
            + self.between_products(demand, end)
            for demand in distinct(self.demands)
        ]

    def least(self, arithmetic: Iterable[float], end: End) -> float:
        """Seconds that no step of the same tokens goes below, however they are cut into micro-batches: those of
        arithmetic and of the bytes that pass within layers, with the shortest bubble; of what replicas exchange that
        which does not hide in the fewest micro-batches; and the update. This one's micro-batch is a sequence, and
        `arithmetic` its own."""
        stages = zip(distinct(self.demands), arithmetic, strict=True)
        busy = max(seconds + self.within_layers(demand, end, latency=False) for demand, seconds in stages)
        each, once = self.between_replicas(end)
        exchanged = (1 - self.shares.overlap.share(end)) * (self.layout.pp * each + once)
        return self.batches * busy + exchanged + self.optimizer(end)

    def exposed(self, exchange: float, busy: float, end: End) -> float:
        """Seconds of what replicas exchange, or further pieces send, that do not hide behind so many seconds of
        compute."""
        return exchange - self.shares.overlap.share(end) * min(exchange, busy)

    @property
    def bubble(self) -> float:
        """Micro-batches' time for which a stage waits in a step: pp - 1 with 1F1B, each of one piece only where stages
        take turns in vp pieces (arXiv:2104.04473 section 2.2)."""
        waited: float = self.layout.pp - 1
        return waited if self.layout.vp == 1 else waited / self.layout.vp

    @property
    def batches(self) -> float:
        """Micro-batches' time of a step, the bubble included."""
        return self.work.accumulation + self.bubble

    def step(self, busy: float, each: float, once: float, update: float, end: End) -> float:
        """Seconds of a step of such parts."""
        return self.batches * (busy + self.exposed(each, busy, end)) + self.exposed(once, busy, end) + update

    def seconds(self, end: End) -> float:
        """Seconds of a step."""
        each, once = self.between_replicas(end)
        return self.step(self.busy(end), each + self.between_stages(end), once, self.optimizer(end), end)

    @property
    def tokens(self) -> int:
        """Tokens of a step on all GPUs."""
        return self.layout.dp * self.work.accumulation * self.work.micro_batch * self.work.sequence

    def rate(self, seconds: float) -> float:
        """Tokens a second of one GPU, by the seconds of a step."""
        return self.tokens / seconds / self.layout.gpus

    def mfu(self, seconds: float, flops: float) -> float:
        """Share of the peak in a step, by the FLOPs of a token that count."""
        return self.rate(seconds) * flops / self.peak(self.dtype)

    def model_flops(self, *, causal: bool = False) -> float:
        """FLOPs of a token, forward and backward, nothing recomputed; of all pairs, or those that attend."""
        length = self.work.sequence
        part = PassPart(1, length, causal=causal)
        products = 3 if self.work.trains_base else 2  # frozen weights have no gradient
        passes = (
            (3 if operation.what == "scores" else products, operation)
            for operation in self.whole.operations(Forward((part,), logits=length))
        )
        return float(sum(each * operation.flops for each, operation in passes)) / length

    @cached_property
    def step_s(self) -> dict[End, float]:
        """Seconds of a step at each end of the range."""
        return {end: self.seconds(end) for end in ENDS}

    def time(self) -> TrainingTime:
        flops, causal = self.model_flops(), self.model_flops(causal=True)
        return TrainingTime(
            step_s=Estimate.over(self.step_s.__getitem__),
            tokens_per_s_per_gpu=Estimate.over(lambda end: self.rate(self.step_s[end])),
            tflops_per_gpu=Estimate.over(lambda end: self.rate(self.step_s[end]) * causal / 1e12),
            mfu=Estimate.over(lambda end: self.mfu(self.step_s[end], flops)),
        )

    def campaign(self, tokens: float, watts: float | None = None, usd_per_hour: float | None = None) -> Campaign:
        """Training on so many tokens; energy by the power of one GPU, cost by the price of its hour."""
        gpus = self.layout.gpus

        def days(end: End) -> float:
            return tokens / self.tokens * self.step_s[end] / SECONDS_A_DAY

        return Campaign(
            days=Estimate.over(days),
            energy_mwh=None if watts is None else Estimate.over(lambda end: days(end) * 24 * gpus * watts / 1e6),
            cost=None if usd_per_hour is None else Estimate.over(lambda end: days(end) * 24 * gpus * usd_per_hour),
        )


def training_speed(
    architecture: Architecture,
    scenario: TrainingScenario,
    gpu: GPU,
    cluster: Cluster = USUAL,
    *,
    framework: str = "any",
    trained: float = 1.0,
    demands: RankDemands | None = None,
) -> TrainingSpeed:
    """A step of a model as a trainer's release computes it; `trained` is the share of its weights that are (of LoRA,
    its adapters)."""
    work, recipe, layout = scenario.workload, scenario.recipe, scenario.layout
    layout.check(architecture)
    scenario.check_schedule()
    ranks = demands or RankDemands.of(architecture, layout)
    form: WeightFormat = recipe.compute if work.products == "compute" else work.products
    dtype = product_dtype(form, gpu)
    over = cluster.path(gpu, layout.tp)
    rows = training_rows(Conditions(framework, gpu.generation, layout.tp, over, form), dtype)
    return TrainingSpeed(
        **vars(ranks),
        trained=trained,
        work=work,
        recipe=recipe,
        layout=layout,
        gpu=gpu,
        dtype=dtype,
        rows=rows,
        shares=training_efficiency(rows, cluster.efficiencies),
        cluster=cluster,
    )


class StepOperation(Frozen):
    """One kind of work of a step, in milliseconds, as usual."""

    what: str
    ms: float
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    recomputed_ms: float = 0.0
    compute_ms: float = 0.0
    memory_ms: float = 0.0
    bound: Bound | None  # None: a stage waits for others


def step_operations(speed: TrainingSpeed) -> tuple[StepOperation, ...]:
    """All of a step, the longest first; their sum is its seconds."""
    each, once = speed.between_replicas("expected")
    busy, batches = speed.busy("expected"), speed.work.accumulation
    sends = speed.between_stages("expected")
    exposed = speed.exposed(each + sends, busy, "expected")
    sent = exposed * sends / (each + sends) if sends else 0.0
    exchange = batches * (exposed - sent) + speed.exposed(once, busy, "expected")
    update = MS * speed.optimizer("expected")
    operations = [
        StepOperation(what="bubble", ms=MS * speed.bubble * (busy + exposed), bound=None),
        StepOperation(what="exchange", ms=MS * exchange, bound="link"),
        StepOperation(what="sends", ms=MS * batches * sent, bound="link"),
        StepOperation(what="update", ms=update, memory_ms=update, bound="bandwidth"),
    ]
    for part in speed.parts(speed.demands[speed.slowest("expected")], "expected"):
        passes, whole = speed.passes(part.what), MS * batches * part.seconds
        operations.append(
            StepOperation(
                what=part.what,
                ms=whole,
                forward_ms=whole * passes.forward / passes.all,
                backward_ms=whole * passes.backward / passes.all,
                recomputed_ms=whole * passes.recomputed / passes.all,
                compute_ms=MS * batches * part.compute,
                memory_ms=MS * batches * part.memory,
                bound=part.bound,
            )
        )
    return tuple(sorted((operation for operation in operations if operation.ms), key=lambda operation: -operation.ms))
