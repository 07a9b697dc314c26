"""Layouts that an engine accepts, and the room for cache that they have on many GPUs at once: what an engine sets aside
there, and what a sequence takes of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem
from calc.hardware.parallel import Layout, shapes
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import GPUAtStart, LaidOut, Limits
from calc.serving.workload import Workload
from calc.time.arrays import Alike, Array, Flags, Indices
from calc.time.time_operations import Demand
from calc.time.time_shards import Shard, combined, of_rows, stacked
from calc.units import GIB

STAGES = (1, 2, 3, 4, 6, 8, 16)
"""Pipeline stages that are tried."""


def accepted_formats(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision]
) -> tuple[Precision, ...]:
    """Those in which the engine takes the model, each pair of weights and cache once. Raises ConfigError where it takes
    it in none."""
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
    """What the engine accepts on up to `most` GPUs in nodes of so many, ways to share a layer and pipeline stages of
    them, each with the numbers of the formats that it accepts there."""
    for plain in shapes(architecture, node):
        if plain.gpus > most:
            continue
        refused = [any(engine.refusals(Question(architecture, precision, plain))) for precision in precisions]
        formats = tuple(number for number, is_refused in enumerate(refused) if not is_refused)
        for shape in token_shares(architecture, engine, precisions[formats[0]], plain) if formats else ():
            for stages in STAGES if shape.dp == shape.ep == 1 else (1,):
                if shape.gpus * stages <= most and stages <= architecture.num_layers:
                    yield shape.model_copy(update={"pp": stages}), formats


def token_shares(architecture: Architecture, engine: Engine, precision: Precision, shape: Layout) -> Iterator[Layout]:
    """The shape, and the shape with as many of its ranks as may sharing cached tokens, for the fewest copies."""
    yield shape
    degrees = (n for n in range(shape.tp, 1, -1) if shape.tp % n == 0)
    shared = (shape.model_copy(update={"dcp": dcp}) for dcp in degrees)
    taken = (layout for layout in shared if not any(engine.refusals(Question(architecture, precision, layout))))
    yield from islice(taken, 1)


@dataclass(frozen=True)
class FittingRows:
    """Layouts, each with the formats and GPUs that it fits with: arrays [rows]."""

    shards: tuple[Shard, ...]  # of all layouts
    shard: Indices  # of these
    form: Indices  # of those of the search
    kind: Indices  # of GPU
    number: Indices  # of the row, whatever others are left out
    capacity: Array  # sequences that there is room for
    demands: Demand  # of the shards, stacked

    @classmethod
    def of(cls, shards: Sequence[Shard], rooms: "Rooms", formats: int) -> "FittingRows":
        """All of some layouts, in so many formats, on all kinds of GPUs."""
        capacity = np.zeros((len(shards), formats, len(rooms.gpus)))
        for number, here in enumerate(shards):
            capacity[number, here.formats] = rooms.of(here.layout).capacity(here)
        shard, form, kind = np.nonzero(capacity >= 1)
        demands = combined([here.demand for here in shards], stacked)
        return cls(tuple(shards), shard, form, kind, np.arange(shard.size), capacity[shard, form, kind], demands)

    def some(self, which: Flags | Indices) -> "FittingRows":
        """Those of the rows that are chosen."""
        places = self.shard[which], self.form[which], self.kind[which], self.number[which]
        return FittingRows(self.shards, *places, self.capacity[which], self.demands)

    def holding(self, capacities: Mapping[int, int]) -> "FittingRows":
        """The rows where some, by number, hold other numbers of sequences; those that hold none are left out."""
        capacity = self.capacity.copy()
        for number, row_capacities in capacities.items():
            capacity[self.number == number] = row_capacities
        return replace(self, capacity=capacity).some(capacity >= 1)

    def layout_of(self, row: int) -> Layout:
        """The layout of a row."""
        return self.shards[int(self.shard[row])].layout

    @cached_property
    def layout(self) -> Layout:
        """Degrees of all layouts, [rows, 1] each."""
        layouts = [shard.layout for shard in self.shards]
        degrees = {name: np.array([getattr(each, name) for each in layouts]) for name in Layout.model_fields}
        return Layout().model_copy(update={name: each[self.shard, None] for name, each in degrees.items()})

    @property
    def gpus(self) -> Array:
        """GPUs of one replica."""
        return np.ravel(self.layout.gpus).astype(np.float64)

    @property
    def demand(self) -> Demand:
        """What a rank does, all stages together: [rows, 1]."""
        return of_rows(self.demands, self.shard, self.form)


class Room:
    """Room for the cache of GPUs under an engine, each with its limits, for sequences of one length."""

    def __init__(
        self,
        engine: Engine,
        gpus: Sequence[GPU],
        limits: Sequence[Limits],
        length: int,
        served: Callable[[Shard], Flags],
    ) -> None:
        self.engine, self.gpus, self.limits, self.length, self.served = engine, gpus, limits, length, served
        each = list(zip(gpus, limits, strict=True))
        self.by_limits = Alike.of(limits)
        self.by_links = Alike.of((at, gpu.platform, gpu.form, gpu.topology, gpu.memory) for gpu, at in each)
        self.by_size = Alike.of(zip((gpu.usable_bytes for gpu in gpus), self.by_links.which, strict=True))
        self.by_kernels = Alike.of((at, gpu.platform, gpu.capability) for gpu, at in each)
        self.largest = max((gpu.usable_bytes for gpu in gpus), default=0)
        self.known_budgets = dict[tuple[int, int, tuple[int, int]], tuple[float, ...]]()
        self.overheads = dict[tuple[int, int], list[list[dict[OverheadItem, int]]]]()
        self.by_format = dict[tuple[int, int, tuple[range, ...], CacheFormat], Array]()
        self.kernels = dict[tuple[int, int, CacheFormat], list[int]]()

    def capacity(self, shard: Shard) -> Array:
        """Sequences of all copies that there is surely room for, as many as in the middle of the overhead: [formats,
        GPUs]."""
        if shard.stage_bytes.max(axis=0).min() >= self.largest:
            return np.zeros((len(shard.formats), len(self.gpus)))
        fixed, each = np.stack([self.sequence(shard, precision.kv) for precision in shard.precisions], axis=2)
        middle, high = (self.free(shard) - fixed) / each
        fits = (high.min(axis=0) > 1) & self.served(shard)
        return np.where(fits, np.floor(np.maximum(middle.min(axis=0), 0)) * shard.layout.dp, 0)

    def free(self, shard: Shard) -> Array:
        """Bytes for the cache on each stage, in the middle and at the high end of the overhead, [2, stages, formats,
        GPUs]: the engine's budget less what weights take of it. What loading adds to weights (padding, tables) is left
        out."""
        works = zip(*(shard.working_bytes(self.engine, at) for at in self.by_limits.kinds), strict=True)
        least = shard.stage_bytes.min(axis=1).tolist()
        depth = shard.layout.gpus, max(map(len, shard.ranges))
        if depth not in self.overheads:
            self.overheads[depth] = [self.overhead(first, shard.laid_out) for first in self.by_links.first]
        rooms = np.array([self.budgets(work, depth, weights) for work, weights in zip(works, least, strict=True)])
        budgets = np.moveaxis(rooms[:, self.by_size.which], 2, 0)
        return np.asarray(budgets[:, :, None] - self.engine.cache_share * shard.stage_bytes[:, :, None])

    def budgets(self, working: Sequence[int], depth: tuple[int, int], least: float) -> list[tuple[float, ...]]:
        """What the engine would set aside for its cache on each unlike GPU without weights, in the middle and at the
        high end of the overhead: nothing where it is too small for so many bytes of weights. `working` is that of GPUs
        with unlike limits; `depth`: how many GPUs work together, and the most layers of a stage."""
        rooms = list[tuple[float, ...]]()
        for first, (total, links) in zip(self.by_size.first, self.by_size.kinds, strict=True):
            taken = working[self.by_limits.which[first]]
            key = first, taken, depth
            if total <= least:
                rooms.append((-np.inf, -np.inf))
                continue
            if key not in self.known_budgets:
                starts = (GPUAtStart(total, 0, taken, None, ends) for ends in self.overheads[depth][links])
                caches = (self.engine.budget(self.limits[first], start).cache for start in starts)
                self.known_budgets[key] = tuple(map(float, caches))
            rooms.append(self.known_budgets[key])
        return rooms

    def overhead(self, gpu: int, stages: LaidOut) -> list[dict[OverheadItem, int]]:
        """Bytes of each item of the overhead on a kind of GPU, in the middle of its range and at its high end."""
        spans = self.engine.overhead_on(self.gpus[gpu], stages, self.limits[gpu])
        middle = {item: round((span.low + span.high) / 2 * GIB) for item, span in spans.items()}
        return [middle, {item: round(span.high * GIB) for item, span in spans.items()}]

    def sequence(self, shard: Shard, kv: CacheFormat) -> Array:
        """Bytes of cache of all sequences together and of each, as an engine keeps it by a GPU's kernels: [2, stages,
        GPUs]."""
        key = shard.layout.tp, shard.layout.dcp, shard.ranges, kv
        if key not in self.by_format:
            alike, laid_out = self.alike(shard, kv), replace(shard.laid_out, precision=Precision(kv=kv))
            sizes = {at: self.sequence_bytes(laid_out, at) for at in set(alike)}
            self.by_format[key] = np.array([sizes[at] for at in alike], dtype=np.float64).T[..., self.by_kernels.which]
        return self.by_format[key]

    def alike(self, shard: Shard, kv: CacheFormat) -> list[int]:
        """For GPUs of each kind of kernels the first that keeps as many bytes, all layers on one stage."""
        key = shard.layout.tp, shard.layout.dcp, kv
        if key not in self.kernels:
            whole = replace(shard.cut((range(shard.ranges[-1].stop),)), precision=Precision(kv=kv))
            sizes = [self.sequence_bytes(whole, at) for at in self.by_kernels.first]
            self.kernels[key] = [self.by_kernels.first[sizes.index(size)] for size in sizes]
        return self.kernels[key]

    def sequence_bytes(self, laid_out: LaidOut, gpu: int) -> list[tuple[int, int]]:
        """Bytes of cache on each stage of all sequences together, and of each, as the engine keeps windows and states
        on a kind of GPU."""
        cache, stages = self.engine.cache(laid_out, self.gpus[gpu], self.limits[gpu]), range(len(laid_out.ranges))
        if cache is None:
            return [(0, 1) for _ in stages]
        sizes = []
        for stage in stages:
            first, both = (cache.required_bytes(stage, batch, self.length) for batch in (1, 2))
            sizes.append((2 * first - both, max(1, both - first)))
        return sizes


class Rooms:
    """Room for the cache of GPUs under an engine that serves a model in sequences of one length, by layout."""

    def __init__(self, engine: Engine, architecture: Architecture, gpus: Sequence[GPU], length: int) -> None:
        self.engine, self.architecture, self.gpus = engine, architecture, gpus
        self.workload = Workload(batch=1, context=length)
        self.by_kernels = Alike.of((gpu.platform, gpu.capability) for gpu in gpus)
        self.runs = dict[tuple[int, int, Precision], Flags]()
        self.rooms = dict[tuple[Limits, ...], Room]()
        self.by_degrees = dict[tuple[int, ...], Room]()

    def limits(self, layout: Layout) -> tuple[Limits, ...]:
        """What the engine sets on each GPU for a layout."""
        return tuple(self.engine.limits(self.workload, gpu, self.architecture, layout) for gpu in self.gpus)

    def of(self, layout: Layout) -> Room:
        """Layouts with the same limits share one."""
        degrees = tuple(getattr(layout, degree) for degree in self.engine.limits_by)
        if degrees not in self.by_degrees:
            limits = self.limits(layout)
            if limits not in self.rooms:
                self.rooms[limits] = Room(self.engine, self.gpus, limits, self.workload.context, self.served)
            self.by_degrees[degrees] = self.rooms[limits]
        return self.by_degrees[degrees]

    def served(self, shard: Shard) -> Flags:
        """Whether the engine runs such ranks, whatever memory there is, [formats, GPUs]: what it refuses depends on a
        GPU's kernels and on no limit."""
        for precision in shard.precisions:
            key = shard.layout.tp, shard.layout.dcp, precision
            if key not in self.runs:
                rank = replace(shard.laid_out, precision=precision)
                on_each = (Question(laid_out=rank, gpu=self.gpus[first]) for first in self.by_kernels.first)
                refused = [any(self.engine.refusals(question)) for question in on_each]
                self.runs[key] = ~np.array(refused)[self.by_kernels.which]
        return np.array([self.runs[shard.layout.tp, shard.layout.dcp, precision] for precision in shard.precisions])
