"""The room for cache on many GPUs at once: what an engine sets aside there, and what a sequence takes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from calc.formats import CacheFormat, Precision
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import GPUAtStart, LaidOut, Limits
from calc.serving.workload import Workload
from calc.time.alike import Alike
from calc.time.sizes import Array, Flags, Indices
from calc.time.time_operations import Demand
from calc.time.time_shards import Shard, of_rows
from calc.units import GIB

OverheadEnds = tuple[Mapping[OverheadItem, int], Mapping[OverheadItem, int]]
"""Bytes of each item in the middle of its range, and at its high end."""


def overhead_key(stages: LaidOut) -> tuple[int, int]:
    """What the overhead depends on beside GPU and limits: how many GPUs work together, and the most layers of a
    stage."""
    return stages.layout.gpus, max(map(len, stages.ranges))


@dataclass(frozen=True)
class Fit:
    """A layout in some formats on all GPUs."""

    layout: Layout
    formats: tuple[int, ...]
    shard: Shard
    capacity: Array  # sequences of all copies that there is room for, [formats, GPUs]


@dataclass(frozen=True)
class FittingRows:
    """Layouts, each with the formats and GPUs that it fits with: arrays [rows]."""

    fits: tuple[Fit, ...]
    fit: Indices  # of these
    form: Indices  # of those of the search
    kind: Indices  # of GPU
    number: Indices  # of the row, whatever others are left out
    capacity: Array  # sequences that there is room for

    @classmethod
    def of(cls, fits: Sequence[Fit], formats: int, gpus: int) -> "FittingRows":
        """All of some layouts, in so many formats and on so many kinds of GPUs."""
        capacity = np.zeros((len(fits), formats, gpus))
        for number, fitting in enumerate(fits):
            capacity[number, fitting.formats] = fitting.capacity
        fit, form, kind = np.nonzero(capacity >= 1)
        return cls(tuple(fits), fit, form, kind, np.arange(fit.size), capacity[fit, form, kind])

    def some(self, which: Flags) -> "FittingRows":
        """Those of the rows that are chosen."""
        places = self.fit[which], self.form[which], self.kind[which], self.number[which]
        return FittingRows(self.fits, *places, self.capacity[which])

    def holding(self, capacities: Mapping[int, int]) -> "FittingRows":
        """The rows where some, by number, hold other numbers of sequences; those that hold none are left out."""
        capacity = self.capacity.copy()
        for number, row_capacities in capacities.items():
            capacity[self.number == number] = row_capacities
        return replace(self, capacity=capacity).some(capacity >= 1)

    @cached_property
    def layout(self) -> Layout:
        """Degrees of all layouts, [rows, 1] each."""
        degrees: dict[str, Any] = {
            name: np.array([getattr(fit.layout, name) for fit in self.fits])[self.fit, None]
            for name in Layout.model_fields
        }
        return Layout.model_construct(**degrees)

    @property
    def gpus(self) -> Array:
        """GPUs of one replica."""
        return np.ravel(self.layout.gpus).astype(np.float64)

    @property
    def demand(self) -> Demand:
        """What a rank does, all stages together: [rows, 1]."""
        by_row: Demand = of_rows([fit.shard.demand for fit in self.fits], self.fit, self.form)
        return by_row


class Served:
    """Which GPUs an engine runs a model's ranks on, whatever memory there is; what it refuses depends on a GPU's
    kernels and on no limit."""

    def __init__(self, engine: Engine, gpus: Sequence[GPU]) -> None:
        self.engine, self.gpus = engine, gpus
        self.by_kernels = Alike.of((gpu.platform, gpu.capability) for gpu in gpus)
        self.known = dict[tuple[int, int, Precision], Flags]()

    def __call__(self, shard: Shard) -> Flags:
        """Whether the engine runs such ranks, [formats, GPUs]."""
        return np.array([self.in_format(shard, precision) for precision in shard.precisions])

    def in_format(self, shard: Shard, precision: Precision) -> Flags:
        key = shard.layout.tp, shard.layout.dcp, precision
        if key not in self.known:
            rank = shard.without_weights(precision)
            on_each = (Question(laid_out=rank, gpu=self.gpus[first]) for first in self.by_kernels.first)
            refused = [any(self.engine.refusals(question)) for question in on_each]
            self.known[key] = ~np.array(refused)[self.by_kernels.which]
        return self.known[key]


class Room:
    """Room for the cache of GPUs under an engine, each with its limits, for sequences of one length."""

    def __init__(
        self, engine: Engine, gpus: Sequence[GPU], limits: Sequence[Limits], length: int, served: "Served"
    ) -> None:
        self.engine, self.gpus, self.limits, self.length, self.served = engine, gpus, limits, length, served
        each = list(zip(gpus, limits, strict=True))
        self.by_limits = Alike.of(limits)
        self.by_links = Alike.of((at, gpu.platform, gpu.form, gpu.topology, gpu.memory) for gpu, at in each)
        self.by_size = Alike.of(zip((gpu.usable_bytes for gpu in gpus), self.by_links.which, strict=True))
        self.by_kernels = Alike.of((at, gpu.platform, gpu.capability) for gpu, at in each)
        self.overheads = dict[tuple[int, int], list[OverheadEnds]]()
        self.budgets = dict[tuple[tuple[int, ...], int, int], Array]()
        self.by_format = dict[tuple[int, int, tuple[range, ...], CacheFormat], Array]()
        self.kernels = dict[tuple[int, int, CacheFormat], list[int]]()

    def fit(self, shard: Shard, layout: Layout, formats: tuple[int, ...]) -> Fit:
        """Sequences that there is surely room for, as many as in the middle of the overhead."""
        free, sure = self.free(shard, layout)
        each = np.broadcast_to(self.each(shard), free.shape)
        capacity = np.floor(np.maximum((free / each).min(axis=0), 0)) * layout.dp
        capacity = np.where(((sure / each).min(axis=0) > 1) & self.served(shard), capacity, 0)
        return Fit(layout, formats, shard, capacity)

    def free(self, shard: Shard, layout: Layout) -> tuple[Array, Array]:
        """Bytes for the cache on each stage, [stages, formats, GPUs], in the middle and at the high end of the
        overhead: the engine's budget less what weights take of it. What loading adds to weights (padding, tables) is
        left out."""
        works = zip(*(shard.working_bytes(self.engine, at) for at in self.by_limits.kinds), strict=True)
        budgets = np.stack([self.budget(work, shard.unlike_stages) for work in works], axis=1)
        middle, high = budgets[:, :, None] - self.engine.cache_share * shard.stage_bytes[:, :, None]
        return middle, high

    def budget(self, working: tuple[int, ...], stages: LaidOut) -> Array:
        """What the engine would set aside for its cache on each GPU without weights, in the middle and at the high end
        of the overhead: [2, GPUs]. `working` is that of GPUs with unlike limits."""
        key = working, *overhead_key(stages)
        if key not in self.budgets:
            rooms = []
            overhead = self.overhead(stages)
            for first, (total, links) in zip(self.by_size.first, self.by_size.kinds, strict=True):
                limits, taken = self.limits[first], working[self.by_limits.which[first]]
                starts = (GPUAtStart(total, 0, taken, None, ends) for ends in overhead[links])
                rooms.append([self.engine.budget(limits, start).cache for start in starts])
            self.budgets[key] = np.array(rooms, dtype=np.float64).T[:, self.by_size.which]
        return self.budgets[key]

    def overhead(self, stages: LaidOut) -> list[OverheadEnds]:
        """Bytes of the overhead in its middle and at its high end, on GPUs that are linked in each way."""
        key = overhead_key(stages)
        if key not in self.overheads:
            ranges = [
                self.engine.overhead_on(self.gpus[first], stages, self.limits[first]) for first in self.by_links.first
            ]
            self.overheads[key] = [
                (
                    {item: round((span.low + span.high) / 2 * GIB) for item, span in bounds.items()},
                    {item: round(span.high * GIB) for item, span in bounds.items()},
                )
                for bounds in ranges
            ]
        return self.overheads[key]

    def each(self, shard: Shard) -> Array:
        """Bytes of cache of a sequence on each stage, [stages, formats, GPUs]."""
        if shard.is_plain:
            return shard.plain_bytes(self.length)[:, :, None]
        return np.stack([self.of_format(shard, precision.kv) for precision in shard.precisions], axis=1)

    def of_format(self, shard: Shard, kv: CacheFormat) -> Array:
        """Bytes of cache of a sequence where an engine keeps windows and states in its own way, by a GPU's kernels:
        [stages, GPUs]."""
        key = shard.layout.tp, shard.layout.dcp, shard.ranges, kv
        if key not in self.by_format:
            alike, laid_out = self.alike(shard, kv), shard.without_weights(Precision(kv=kv))
            sizes = {at: self.sequence_bytes(laid_out, at) for at in set(alike)}
            self.by_format[key] = np.array([sizes[at] for at in alike], dtype=np.float64).T[:, self.by_kernels.which]
        return self.by_format[key]

    def alike(self, shard: Shard, kv: CacheFormat) -> list[int]:
        """For GPUs of each kind of kernels the first that keeps as many bytes, all layers on one stage."""
        key = shard.layout.tp, shard.layout.dcp, kv
        if key not in self.kernels:
            whole = shard.without_weights(Precision(kv=kv), (range(shard.rank.num_layers),))
            sizes = [self.sequence_bytes(whole, at)[0] for at in self.by_kernels.first]
            self.kernels[key] = [self.by_kernels.first[sizes.index(size)] for size in sizes]
        return self.kernels[key]

    def sequence_bytes(self, laid_out: LaidOut, gpu: int) -> list[float]:
        """Bytes of cache of a sequence on each stage, as the engine keeps windows and states on a kind of GPU."""
        cache = self.engine.cache(laid_out, self.gpus[gpu], self.limits[gpu])
        stages = range(len(laid_out.ranges))
        return [max(1.0, cache.required_bytes(stage, 1, self.length)) if cache else 1.0 for stage in stages]


class Rooms:
    """Room for the cache of GPUs under an engine that serves a model in sequences of one length, by layout."""

    def __init__(self, engine: Engine, architecture: Architecture, gpus: Sequence[GPU], length: int) -> None:
        self.engine, self.architecture, self.gpus = engine, architecture, gpus
        self.workload = Workload(batch=1, context=length)
        self.served = Served(engine, gpus)
        self.known = dict[tuple[Limits, ...], Room]()
        self.by_degrees = dict[tuple[int, ...], Room]()

    def limits(self, layout: Layout) -> tuple[Limits, ...]:
        """What the engine sets on each GPU for a layout."""
        return tuple(self.engine.limits(self.workload, gpu, self.architecture, layout) for gpu in self.gpus)

    def of(self, layout: Layout) -> Room:
        """Layouts with the same limits share one."""
        degrees = tuple(getattr(layout, degree) for degree in self.engine.limits_by)
        if degrees not in self.by_degrees:
            limits = self.limits(layout)
            if limits not in self.known:
                self.known[limits] = Room(self.engine, self.gpus, limits, self.workload.context, self.served)
            self.by_degrees[degrees] = self.known[limits]
        return self.by_degrees[degrees]
