"""Layouts that an engine accepts; what a rank of each holds and does, in several formats at once; and the room for
cache that they have on many GPUs at once: what an engine sets aside there, and what a sequence takes of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import HIGH, MIDDLE, OverheadItem, at_end, sizes
from calc.hardware.parallel import Layout, shapes
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.remembered import remembered
from calc.serving.engines.cache import Pool
from calc.serving.engines.engine import Engine
from calc.serving.engines.loading import vision_share
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import GPUAtStart, LaidOut, Limits, Stage
from calc.serving.weighing import ENDS, OutsideLayers, RankWeights, Weighing
from calc.serving.workload import Workload
from calc.time.arrays import Array, Flags, Indices, first_equal
from calc.time.operations import Demand, Routing, computed, demand, routing, unrolled

STAGES = (1, 2, 3, 4, 6, 8, 16)
"""Pipeline stages that are tried."""
NO_ROOM = (-np.inf, -np.inf)
"""The budget of a GPU that is too small for the weights alone."""

# Layouts


def accepted_formats(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision]
) -> tuple[Precision, ...]:
    """Formats in which the engine takes the model, each pair of weights and cache once. Raises ConfigError if there is
    none."""
    formats: dict[tuple[WeightFormat, CacheFormat], Precision] = {}
    for precision in precisions:
        if not any(engine.refusals(Question(architecture, precision, Layout()))):
            formats.setdefault((precision.weights, precision.kv), precision)
    if precisions and not formats:
        engine.check(Question(architecture, precisions[0], Layout()))
    return tuple(formats.values())


def layouts_by_format(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision], most: int, node: int
) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    """Layouts that the engine accepts on up to `most` GPUs in nodes of so many, ways to share a layer and pipeline
    stages of them, each with the numbers of its formats."""

    def takes(layout: Layout, precision: Precision) -> bool:
        return not any(engine.refusals(Question(architecture, precision, layout)))

    def token_shares(shape: Layout, precision: Precision) -> Iterator[Layout]:
        """The shape, and the shape with as many of its ranks as may sharing cached tokens, for the fewest copies."""
        yield shape
        degrees = (n for n in range(shape.tp, 1, -1) if shape.tp % n == 0)
        shared = (shape.model_copy(update={"dcp": dcp}) for dcp in degrees)
        yield from islice((layout for layout in shared if takes(layout, precision)), 1)

    staged = takes(Layout(pp=2), precisions[0]) if precisions and architecture.num_layers > 1 else False
    for plain in shapes(architecture, node):
        if plain.gpus > most:
            continue
        formats = tuple(number for number, precision in enumerate(precisions) if takes(plain, precision))
        for shape in token_shares(plain, precisions[formats[0]]) if formats else ():
            for stages in STAGES if staged and shape.dp == shape.ep == 1 else (1,):
                if shape.gpus * stages <= most and stages <= architecture.num_layers:
                    yield shape.model_copy(update={"pp": stages}), formats


# Ranks


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
        rank = self.weighing.rank
        stages = tuple(
            Stage(tuple(blocks_within(rank, stage)), first=stage.start == 0, last=stage.stop == rank.num_layers)
            for stage in ranges
        )
        return LaidOut(self.weighing.whole, rank, stages, ranges, self.layout, self.precisions[0])


class Weighed(NamedTuple):
    """A tensor-parallel rank with a slice of all experts, as stored in each format: [formats] and [formats, layers]."""

    routed: Array  # bytes of each layer's routed experts
    others: Array  # of each layer except them
    outside: OutsideLayers[Array]  # of what stands outside the layers
    demand: Demand


class Shards:
    """The shards of layouts; each degree of tensor parallelism, with the groups that share dense layers, and each
    number of slices is weighed once."""

    def __init__(self, architecture: Architecture, engine: Engine, precisions: Sequence[Precision]) -> None:
        self.engine, self.precisions = engine, precisions
        self.weights = list[RankWeights]()
        for precision in precisions:
            sibling = self.weights[0] if self.weights else None
            self.weights.append(RankWeights(architecture, engine, precision, sibling))

    @remembered
    def shard(self, layout: Layout, formats: tuple[int, ...]) -> Shard:
        """A rank in some of the formats, with its share of the attention, and of the slices of routed experts: without
        expert parallelism the copies of the attention cut each into one for every rank of theirs (vLLM `docs/serving/
        data_parallel_deployment.md`; SGLang `distributed/parallel_state.py`, `moe_tp_size`)."""
        first, chosen = self.weights[0], list(formats)
        groups = self.engine.groups(first.whole, layout)
        divided = Layout(tp=layout.tp, dp=layout.dp if groups else 1)
        if self.engine.groups(first.whole, divided) != groups:
            divided = layout.model_copy(update={"dcp": 1})
        own = self.weighed(divided)
        alike = divided.ep == 1 and layout.slices == divided.slices
        experts = own if alike else self.weighed(Layout(dp=layout.slices))
        route = routing(first.whole, layout)
        share = 1.0 if route is None else -(-route.experts // layout.ep) / route.experts
        ranges = first.ranges_of(layout.pp)
        by_layer = own.others[chosen] + experts.routed[chosen] * share
        outside = np.stack(own.outside.of_stages(layout.pp))[:, chosen]
        stage_bytes = outside + [by_layer[:, stage.start : stage.stop].sum(axis=1) for stage in ranges]
        does = replace(own.demand, routing=route, dcp=layout.dcp, longest_stage=max(map(len, ranges)), stages=layout.pp)
        if route is not None:
            shares = {"flops": 1, "elements": 1, "weights": share}
            routed = {name: getattr(experts.demand, name)["experts_routed"] * part for name, part in shares.items()}
            does = replace(does, **{name: getattr(does, name) | {"experts_routed": routed[name]} for name in shares})
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

    @remembered
    def weighed(self, layout: Layout) -> Weighed:
        """A rank with a slice of every expert; a draft layer and a vision encoder count where the engine loads them."""
        weighings = [ranks.of(layout) for ranks in self.weights]
        whole, rank, layers = weighings[0].whole, weighings[0].rank, range(weighings[0].rank.num_layers)
        ends = range(-len(ENDS), 0)
        sizes = [[each.experts_and_rest[kind] for kind in (*each.places.kinds, *ends)] for each in weighings]
        table = np.array(sizes, dtype=np.float64).transpose(2, 0, 1)  # [2, formats, layers + 4]
        routed, others = table[:, :, : len(layers)]
        only, first, between, last = table[:, :, len(layers) :].sum(axis=0).T
        if self.engine.loads_vision:
            vision = sum(vision_share(tensor, layout) for tensor in rank.tensors() if tensor.excluded_as == "vision")
            only, first = only + vision, first + vision
        states = partial(self.engine.state_bytes, whole)
        does = computed(unrolled(whole), unrolled(rank), layout, layers, states=states)
        demands = [
            demand(whole, rank, weighing.precision, layout, layers, file=weighing.read, sibling=does)
            for weighing in weighings
        ]
        return Weighed(routed, others, OutsideLayers(only, first, between, last), mapped_over(demands, np.array))


def mapped_over(figures: Sequence[Any], of: Callable[[Sequence[Any]], Any]) -> Any:
    """Demands, or other figures, that `of` makes of all of them."""
    first = figures[0]
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for figure in figures for key in figure)  # a GGUF file has other products
        return {key: mapped_over([figure.get(key, False) for figure in figures], of) for key in keys}
    if isinstance(first, Demand | Routing):
        names = [field.name for field in fields(first)]
        return replace(first, **{name: mapped_over([getattr(each, name) for each in figures], of) for name in names})
    return None if first is None else of(figures)


def stacked(figures: Sequence[Any]) -> Any:
    """Figures of several ranks, each one or [formats], as one array; one figure where all are alike."""
    table = np.array(figures)
    return table.flat[0].item() if (table == table.flat[0]).all() else table


# Rows


@dataclass(frozen=True)
class FittingRows:
    """Layouts, each with the formats and GPUs that it fits with: arrays [rows]."""

    shards: tuple[Shard, ...]  # of all layouts
    shard: Indices  # of these
    form: Indices  # of those of the search
    kind: Indices  # of GPU
    number: Indices  # of the row, whatever others are left out
    capacity: Array  # sequences that there is room for
    least_replicas: Array  # that are in time, once it is known; infinite: no number is
    demands: Demand  # of the shards, stacked

    @classmethod
    def of(cls, shards: Sequence[Shard], room: "KVRoom", formats: int) -> "FittingRows":
        """All of some layouts, in so many formats, on all kinds of GPUs."""
        capacity = np.zeros((len(shards), formats, len(room.gpus)))
        for number, here in enumerate(shards):
            capacity[number, here.formats] = room.capacity(here)
        shard, form, kind = np.nonzero(capacity >= 1)
        demands = mapped_over([here.demand for here in shards], stacked)
        room_of_rows, ones = capacity[shard, form, kind], np.ones(shard.size)
        return cls(tuple(shards), shard, form, kind, np.arange(shard.size), room_of_rows, ones, demands)

    def selected(self, which: Flags | Indices) -> "FittingRows":
        """The chosen rows."""
        places = self.shard[which], self.form[which], self.kind[which], self.number[which]
        return FittingRows(self.shards, *places, self.capacity[which], self.least_replicas[which], self.demands)

    def corrected(self, capacities: Mapping[int, int], least_replicas: Mapping[int, float]) -> "FittingRows":
        """The rows where some, by number, hold other numbers of sequences or need more replicas; those that hold no
        sequence are left out."""
        capacity, replicas = self.capacity.copy(), self.least_replicas.copy()
        for column, corrections in ((capacity, capacities), (replicas, least_replicas)):
            for number, value in corrections.items():
                column[self.number == number] = value
        return replace(self, capacity=capacity, least_replicas=replicas).selected(capacity >= 1)

    def layout_of(self, row: int) -> Layout:
        return self.shards[int(self.shard[row])].layout

    @cached_property
    def layout(self) -> Layout:
        """Degrees of all layouts, [rows, 1] each."""
        layouts = [shard.layout for shard in self.shards]
        degrees = {name: np.array([getattr(each, name) for each in layouts]) for name in Layout.model_fields}
        return Layout().model_copy(update={name: each[self.shard, None] for name, each in degrees.items()})

    @property
    def gpus(self) -> Array:
        return np.ravel(self.layout.gpus).astype(np.float64)

    @property
    def demand(self) -> Demand:
        """Demand of a rank in its format, all stages together: [rows, 1]."""

        def chosen(figures: Sequence[Any]) -> Any:
            (figure,) = figures
            if not isinstance(figure, np.ndarray):
                return figure
            return figure[self.shard, None] if figure.ndim == 1 else figure[self.shard, self.form, None]

        by_row: Demand = mapped_over([self.demands], chosen)
        return by_row


# Room


class StartedGPUs:
    """GPUs with the limits that an engine sets on each, by what decides: for each the number of the first alike."""

    def __init__(self, limits: tuple[Limits, ...], gpus: Sequence[GPU]) -> None:
        each = list(zip(gpus, limits, strict=True))
        self.limits = limits
        self.by_limits = first_equal(limits)
        self.by_links = first_equal((at, gpu.platform, gpu.form, gpu.topology, gpu.memory) for gpu, at in each)
        self.by_kernels = first_equal((at, gpu.platform, gpu.capability) for gpu, at in each)
        by_size = first_equal(zip((gpu.usable_bytes for gpu in gpus), self.by_links, strict=True))
        self.sizes, self.by_size = np.unique(by_size, return_inverse=True)
        self.totals = [gpus[gpu].usable_bytes for gpu in self.sizes.tolist()]
        self.overheads = dict[tuple[int, tuple[int, int]], list[dict[OverheadItem, int]]]()
        self.budgets = dict[tuple[int, int, tuple[int, int]], tuple[float, ...]]()


class KVRoom:
    """Room for the cache of GPUs under an engine that serves a model in sequences of one length."""

    def __init__(
        self, engine: Engine, architecture: Architecture, gpus: Sequence[GPU], length: int, base: "KVRoom | None" = None
    ) -> None:
        """`base` is the room for sequences of another length."""
        self.engine, self.architecture, self.gpus = engine, architecture, gpus
        self.workload = Workload(batch=1, context=length)
        self.by_kernels = first_equal((gpu.platform, gpu.capability, gpu.slice is None) for gpu in gpus)
        self.largest = max((gpu.usable_bytes for gpu in gpus), default=0)
        self.runs: dict[tuple[int, int, Precision], Flags] = {} if base is None else base.runs
        self.started: dict[tuple[Limits, ...], StartedGPUs] = {} if base is None else base.started
        self.by_degrees = dict[tuple[int, ...], StartedGPUs]()
        self.sequences = dict[tuple[StartedGPUs, int, int, tuple[range, ...], CacheFormat], Array]()
        self.kernels = dict[tuple[StartedGPUs, int, int, CacheFormat], tuple[Indices, Indices]]()

    def limits(self, layout: Layout) -> tuple[Limits, ...]:
        return tuple(self.engine.limits(self.workload, gpu, self.architecture, layout) for gpu in self.gpus)

    def on(self, layout: Layout) -> StartedGPUs:
        """The GPUs with their limits for a layout; layouts with the same ones share them."""
        degrees = tuple(getattr(layout, degree) for degree in self.engine.limits_by)
        if degrees not in self.by_degrees:
            limits = self.limits(layout)
            if limits not in self.started:
                self.started[limits] = StartedGPUs(limits, self.gpus)
            self.by_degrees[degrees] = self.started[limits]
        return self.by_degrees[degrees]

    def capacity(self, shard: Shard) -> Array:
        """Sequences of all copies that there is surely room for, as many as in the middle of the overhead: [formats,
        GPUs]."""
        if shard.stage_bytes.max(axis=0).min() >= self.largest:
            return np.zeros((len(shard.formats), len(self.gpus)))
        on = self.on(shard.layout)
        caches = [self.sequence(on, shard, precision.kv) for precision in shard.precisions]
        fixed, each, stated = np.stack(caches, axis=2)
        free = self.free(on, shard, bool(np.isfinite(stated).any()))
        free = np.where(np.isinf(stated), free, np.where(free >= stated, stated, -np.inf))
        middle, high = (free - fixed) / each
        fits = (high.min(axis=0) > 1) & self.served(shard)
        return np.where(fits, np.floor(np.maximum(middle.min(axis=0), 0)) * shard.layout.dp, 0)

    def served(self, shard: Shard) -> Flags:
        """Whether the engine runs such ranks, whatever memory there is, [formats, GPUs]: what it refuses depends on a
        GPU's kernels and on no limit."""
        keys = [(shard.layout.tp, shard.layout.dcp, precision) for precision in shard.precisions]
        for key in keys:
            if key not in self.runs:
                rank = replace(shard.laid_out, precision=key[-1])
                refused = {
                    first: any(self.engine.refusals(Question(laid_out=rank, gpu=self.gpus[first])))
                    for first in set(self.by_kernels)
                }
                self.runs[key] = np.array([not refused[first] for first in self.by_kernels])
        return np.array([self.runs[key] for key in keys])

    def free(self, on: StartedGPUs, shard: Shard, states_cache: bool) -> Array:
        """Bytes for the cache on each stage, in the middle and at the high end of the overhead, [2, stages, formats,
        GPUs]: the engine's budget less what weights take of it, or all that the GPU has beside them for a cache whose
        size flags state. What loading adds to weights (padding, tables) is left out."""
        depth = shard.layout.gpus, max(map(len, shard.ranges))
        works = {
            first: shard.passing.working_bytes(self.engine, on.limits[first], shard.ranges)
            for first in set(on.by_limits)
        }
        budgets = np.array(
            [
                [
                    self.budget(on, gpu, works[on.by_limits[gpu]][stage], depth, shard, states_cache)
                    if total > least
                    else NO_ROOM
                    for gpu, total in zip(on.sizes.tolist(), on.totals, strict=True)
                ]
                for stage, least in enumerate(shard.stage_bytes.min(axis=1).tolist())
            ]
        )
        ends = np.moveaxis(budgets[:, on.by_size], 2, 0)
        return np.asarray(ends[:, :, None] - self.engine.cache_share * shard.stage_bytes[:, :, None])

    def budget(
        self, on: StartedGPUs, gpu: int, working: int, depth: tuple[int, int], shard: Shard, states_cache: bool
    ) -> tuple[float, ...]:
        """Bytes that the engine would set aside for its cache on a GPU without weights, with a pass of `working` bytes,
        in the middle and at the high end of the overhead, which `depth` decides: how many GPUs work together, and the
        most layers of a stage; none where the engine does not start, which weights can only make worse."""
        key = gpu, working, depth
        if key not in on.budgets:
            links = on.by_links[gpu]
            if (links, depth) not in on.overheads:
                ranges = self.engine.overhead_on(self.gpus[links], shard.laid_out, on.limits[links])
                on.overheads[links, depth] = [at_end(sizes(ranges, 0), end) for end in (MIDDLE, HIGH)]
            total, stated = self.gpus[gpu].usable_bytes, 0 if states_cache else None
            starts = (GPUAtStart(total, 0, working, stated, ends) for ends in on.overheads[links, depth])
            budgets = [self.engine.budget(on.limits[gpu], start) for start in starts]
            on.budgets[key] = tuple(
                -np.inf
                if budget.shortage
                else float(total - budget.requested - budget.outside if states_cache else budget.cache)
                for budget in budgets
            )
        return on.budgets[key]

    def sequence(self, on: StartedGPUs, shard: Shard, kv: CacheFormat) -> Array:
        """Bytes of cache of all sequences together, of each, and those that flags state for it (else infinite), as an
        engine keeps it by a GPU's kernels: [3, stages, GPUs]."""
        key = on, shard.layout.tp, shard.layout.dcp, shard.ranges, kv
        if key not in self.sequences:
            laid_out = replace(shard.laid_out, precision=Precision(kv=kv))
            unlike, which = self.distinct_gpus(on, shard, kv)
            sizes = [self.sequence_bytes(on, laid_out, gpu) for gpu in unlike.tolist()]
            self.sequences[key] = np.array(sizes, dtype=np.float64).T[..., which]
        return self.sequences[key]

    def distinct_gpus(self, on: StartedGPUs, shard: Shard, kv: CacheFormat) -> tuple[Indices, Indices]:
        """The first of the GPUs that keep as many bytes, all layers on one stage, and which of these each is like."""
        key = on, shard.layout.tp, shard.layout.dcp, kv
        if key not in self.kernels:
            whole = replace(shard.cut((range(shard.ranges[-1].stop),)), precision=Precision(kv=kv))
            sizes = {first: tuple(self.sequence_bytes(on, whole, first)) for first in set(on.by_kernels)}
            alike = first_equal(sizes[first] for first in on.by_kernels)
            self.kernels[key] = np.unique(alike, return_inverse=True)
        return self.kernels[key]

    def sequence_bytes(self, on: StartedGPUs, laid_out: LaidOut, gpu: int) -> list[tuple[float, ...]]:
        """Bytes of cache on each stage of all sequences together, of each, and those that flags state for it, as the
        engine keeps windows and states on a kind of GPU."""
        cache, stages = self.engine.cache(laid_out, self.gpus[gpu], on.limits[gpu]), range(len(laid_out.ranges))
        if cache is None:
            return [(0, 1, np.inf) for _ in stages]
        of_stages: list[tuple[float, ...]] = []
        for stage in stages:
            first, both = (cache.required_bytes(stage, batch, self.workload.context) for batch in (1, 2))
            stated = cache.stated_bytes(stage) if isinstance(cache, Pool) else None
            of_stages.append((2 * first - both, max(1, both - first), np.inf if stated is None else stated))
        return of_stages
