"""Memory to serve: what each GPU of a laid-out model holds, by one allocation that every number is read off."""

from collections.abc import Callable
from copy import copy
from functools import cached_property
from math import inf
from typing import TypeVar

from calc.errors import ConfigError
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead, OverheadItem, OverheadSizes, Range, bounds, sizes
from calc.hardware.parallel import Layout, shapes
from calc.model.architecture import Architecture
from calc.model.named import Peak, largest
from calc.serving.engines.cache import Cache, Pool
from calc.serving.engines.engine import Budget, Engine, LaidOut, Limits, Moment
from calc.serving.gpu_memory import Memory, SetAside, StageMemory
from calc.serving.kv_budget import KVBudget
from calc.serving.weighing import Weighing
from calc.serving.workload import Workload

MOST_TOKENS = 2**30
"""Beyond this, memory is not what limits."""
LOW, MIDDLE, HIGH = 0, 1, 2
"""Ends of the overhead's range."""
Of = TypeVar("Of")
Ends = tuple[float, float, float]
"""A figure at the low end of the overhead's range, in its middle and at the high end."""
Key = tuple[str, int, Limits]
"""A GPU, by id and memory, and what the engine sets for it."""


class Serving:
    """A model laid out for an engine, ready to be weighed on any GPU; its weights are weighed once."""

    def __init__(
        self,
        architecture: Architecture,
        engine: Engine,
        precision: Precision,
        layout: Layout,
        overhead: Overhead,
    ) -> None:
        engine.check(architecture, precision, layout)
        self.architecture, self.engine, self.precision = architecture, engine, precision
        self.overhead = overhead
        self.layouts = dict[Layout, Serving]()
        self.weighings = dict[Layout, Weighing]()
        self.cuts = dict[int, tuple[range, ...]]()
        self._lay_out(layout)

    def _lay_out(self, layout: Layout) -> None:
        self.layout, self.layouts[layout] = layout, self
        self.weighing = weighing = self.weighing_of(layout.model_copy(update={"pp": 1}))
        ranges = self.ranges_of(layout.pp)
        self.laid_out = LaidOut(weighing.whole, weighing.rank, weighing.stages(ranges), ranges, layout, self.precision)
        self._know_nothing()

    def weighing_of(self, shape: Layout) -> Weighing:
        """A rank of one pipeline stage."""
        if shape not in self.weighings:
            self.weighings[shape] = Weighing(self.engine, self.architecture, self.precision, shape)
        return self.weighings[shape]

    def ranges_of(self, stages: int) -> tuple[range, ...]:
        """Layers of each of so many pipeline stages."""
        if stages not in self.cuts:
            self.cuts[stages] = tuple(self.engine.stages(self.architecture.num_layers, stages))
        return self.cuts[stages]

    def _know_nothing(self) -> None:
        self.ranges: dict[OverheadItem, Range] = self.overhead.ranges(self.engine.overhead(self.layout.gpus))
        self.working = dict[tuple[Limits, int], Peak]()
        self.set_aside = dict[Key, tuple[SetAside, ...]]()
        self.caches = dict[Key, Cache | None]()

    @property
    def weights(self) -> int:
        """Bytes of weights on a rank, of all stages."""
        return sum(stage.weights for stage in self.laid_out.stages)

    def with_layout(self, layout: Layout) -> "Serving":
        """The same model on other GPUs. Raises ConfigError where the engine does not accept it."""
        if layout not in self.layouts:
            self.engine.check_layout(self.architecture, self.precision, layout)
        return self.spread(layout)

    def spread(self, layout: Layout) -> "Serving":
        """The same on other GPUs, in a way that the engine is known to take; laid out once."""
        if layout not in self.layouts:
            copy(self)._lay_out(layout)
        return self.layouts[layout]

    def accepted(self, layout: Layout) -> "Serving | None":
        """The model laid out so; None where the engine does not take it."""
        return self.spread(layout) if layout in self.layouts or self.accepts(layout) else None

    def accepts(self, layout: Layout) -> bool:
        """Whether the engine takes the model laid out so."""
        if self.engine.layout_refusal(self.architecture, self.precision, layout) is not None:
            return False
        try:
            layout.check(self.architecture)
        except ConfigError:
            return False
        return True

    @cached_property
    def shapes(self) -> list[Layout]:
        """The ways to share every layer that the engine takes."""
        return [shape for shape in shapes(self.architecture) if self.accepts(shape)]

    def found_working(self, index: int, limits: Limits) -> Peak:
        """What an engine finds at start that a pass takes on a stage; the same for all workloads with the same
        limits."""
        key = limits, id(self.laid_out.stages[index])
        if key not in self.working:
            self.working[key] = largest(self.engine.peaks(self.laid_out, index, limits))
        return self.working[key]

    def with_engine(self, engine: Engine) -> "Serving":
        """The same under other flags. Raises ConfigError where they do not go together."""
        if not self.engine.holds_alike(engine):
            return Serving(self.architecture, engine, self.precision, self.layout, self.overhead)
        other = copy(self)
        other.engine, other.layouts = engine, {self.layout: other}
        other._know_nothing()
        return other

    def on(self, gpu: GPU, workload: Workload) -> "Allocation":
        """What a GPU of this kind holds, of the data-parallel copy with the most sequences."""
        share = workload
        if self.layout.dp > 1:
            share = workload.model_copy(update={"batch": -(-workload.batch // self.layout.dp)})
        engine = self.engine.settled(self.laid_out, gpu, share, self.overhead_high)
        return Allocation(self if engine is self.engine else self.with_engine(engine), gpu, share)

    @property
    def overhead_high(self) -> int:
        """Bytes of overhead on a GPU at the high end, what hangs on the rest apart."""
        return bounds(sizes(self.ranges, 0))[1]


class Allocation:
    """What one kind of GPU holds of a laid-out model at a workload."""

    def __init__(self, serving: Serving, gpu: GPU, workload: Workload) -> None:
        self.serving, self.gpu, self.workload = serving, gpu, workload
        self.limits: Limits = serving.engine.limits(workload, gpu, serving.architecture, serving.layout)
        self.key: Key = gpu.id, gpu.usable_bytes, self.limits

    def at(self, **change: int) -> "Allocation":
        """The same with another batch or context."""
        return Allocation(self.serving, self.gpu, self.workload.model_copy(update=change))

    def under(self, engine: Engine) -> "Allocation":
        """The same under other flags."""
        return Allocation(self.serving.with_engine(engine), self.gpu, self.workload)

    @property
    def sets_aside(self) -> bool:
        """Whether the engine sets its cache aside at start."""
        return self.limits.share is not None

    @cached_property
    def cache(self) -> Cache | None:
        """How the engine keeps the cache; made once for all workloads with the same limits."""
        serving = self.serving
        if self.key not in serving.caches:
            serving.caches[self.key] = serving.engine.cache(serving.laid_out, self.gpu, self.limits)
        return serving.caches[self.key]

    @cached_property
    def set_aside(self) -> tuple[SetAside, ...]:
        """What the engine sets aside on each stage; weighed once for all workloads with the same limits."""
        known = self.serving.set_aside
        if self.key not in known:
            known[self.key] = self.of_each_stage(self.stage_set_aside)
        return known[self.key]

    def of_each_stage(self, of: Callable[[int], Of]) -> tuple[Of, ...]:
        """Something of every stage, computed once for those that are alike."""
        found: dict[int, Of] = {}
        stages = self.serving.laid_out.stages
        for index, stage in enumerate(stages):
            if id(stage) not in found:
                found[id(stage)] = of(index)
        return tuple(found[id(stage)] for stage in stages)

    def stage_set_aside(self, index: int) -> SetAside:
        serving, stage = self.serving, self.serving.laid_out.stages[index]
        working = serving.found_working(index, self.limits)
        items, loaded = self.sizes(0).items(), stage.weights + stage.vision + serving.engine.loading(stage)
        stated = self.cache.stated_bytes(index) if isinstance(self.cache, Pool) else None

        def budget(end: int) -> Budget:
            overhead = {item: (low, (low + high) // 2, high)[end] for item, (low, high) in items}
            total, held = self.gpu.usable_bytes, int(working.bytes)
            return serving.engine.budget(total, self.limits, loaded, held, overhead, stated)

        return SetAside(working, (budget(LOW), budget(MIDDLE), budget(HIGH)))

    def sizes(self, held: int, loading: int = 0) -> OverheadSizes:
        """Bytes of each item of the overhead on a GPU that holds so many, from low to high."""
        return sizes(self.serving.ranges, held, loading)

    @cached_property
    def stages(self) -> tuple[StageMemory, ...]:
        """One GPU of each stage, at its peak."""
        return self.of_each_stage(self.stage)

    def stage(self, index: int) -> StageMemory:
        serving, stage = self.serving, self.serving.laid_out.stages[index]
        moment = self.peak_moment(index)
        working = int(moment.working.bytes)
        held = stage.weights + stage.vision + moment.cache + working
        sizes = self.sizes(held, serving.engine.loading(stage))
        low, high = bounds(sizes)
        memory = Memory(
            weights=stage.weights,
            vision=stage.vision,
            kv_cache=moment.cache,
            activations=working,
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=held + (low + high) // 2,
        )
        return StageMemory(memory, moment.working, sizes)

    def peak_moment(self, index: int) -> Moment:
        """A cache that is set aside is there all the time."""
        serving, cache, workload = self.serving, self.cache, self.workload
        if self.sets_aside:
            held = 0 if cache is None else cache.required_bytes(index, workload.batch, workload.context)
            return Moment(held, serving.found_working(index, self.limits))
        moments = serving.engine.moments(serving.laid_out, index, cache, self.limits, workload)
        return max(moments, key=lambda moment: moment.bytes)

    @cached_property
    def most_loaded(self) -> int:
        """Number of the stage whose GPUs have the least to spare."""
        return min(range(len(self.stages)), key=self.spare_of)

    def spare_of(self, index: int) -> int:
        """Bytes that stay free on a stage beside what is required."""
        memory = self.stages[index].memory
        if self.sets_aside:
            budget = self.set_aside[index].budgets[MIDDLE]
            left = budget.cache - memory.kv_cache
            return min(left, -budget.missing) if budget.missing else left
        return self.gpu.usable_bytes - memory.total

    @property
    def spare(self) -> int:
        return self.spare_of(self.most_loaded)

    @property
    def memory(self) -> Memory:
        return self.stages[self.most_loaded].memory

    @property
    def usable(self) -> int:
        """Bytes that the engine may take: what is required and what stays free."""
        return self.memory.total + self.spare

    def fits(self, end: int) -> bool:
        """Whether it starts and holds every sequence, at an end of the overhead's range."""
        if self.serving.engine.refused(self.workload, self.limits) is not None:
            return False
        if self.sets_aside:
            return self.starts(end) and self.concurrency(end) >= self.workload.batch
        usable = self.gpu.usable_bytes
        if self.held(most=False)[end] > usable:
            return False
        if self.held(most=True)[end] <= usable:
            return True
        totals = ((stage.memory.low, stage.memory.total, stage.memory.high)[end] for stage in self.stages)
        return max(totals) <= usable

    @property
    def surely_fits(self) -> bool:
        """A cache that the engine sets aside holds the sequences that it prints, in the middle of the range; whether it
        starts at all must be sure."""
        if not self.sets_aside:
            return self.fits(HIGH)
        return self.starts(HIGH) and self.fits(MIDDLE)

    def held(self, *, most: bool) -> Ends:
        """Bytes that the most loaded stage holds at most, or at least, before a pass is planned; at each end of the
        overhead's range."""
        batch, context, cache = self.workload.batch, self.workload.context, self.cache

        def of_stage(index: int) -> Ends:
            stage = self.serving.laid_out.stages[index]
            if cache is None:
                held = None if most else 0
            else:
                held = (cache.most_bytes if most else cache.least_bytes)(index, batch, context)
            if held is None:
                return inf, inf, inf
            return self.with_overhead(stage.weights + stage.vision + held, self.serving.engine.loading(stage))

        low, middle, high = map(max, zip(*self.of_each_stage(of_stage), strict=True))
        return low, middle, high

    def with_overhead(self, held: int, loading: int) -> Ends:
        """What a GPU holds, and its overhead."""
        low, high = bounds(self.sizes(held, loading))
        return held + low, held + (low + high) // 2, held + high

    def starts(self, end: int) -> bool:
        """Whether the engine starts and accepts a request of the whole context."""
        if any(budget.missing or budget.cache < 0 for budget in self.budgets(end)):
            return False
        cache = self.cache
        if not isinstance(cache, Pool):
            return True
        return cache.refusal is None and cache.starts(self.available(end), self.workload.context)

    def concurrency(self, end: int) -> float:
        """Requests of the whole context that the cache holds at once."""
        if not isinstance(self.cache, Pool):
            return inf
        return self.cache.concurrency(self.blocks(end), self.workload.context)

    def blocks(self, end: int) -> int:
        """Blocks of the cache, as many as every stage has room for."""
        available = self.available(end)
        return self.cache.blocks(available) if isinstance(self.cache, Pool) and min(available) > 0 else 0

    def budgets(self, end: int) -> list[Budget]:
        """How each stage's GPU is divided."""
        return [stage.budgets[end] for stage in self.set_aside]

    def available(self, end: int) -> list[int]:
        """Bytes for the cache on each stage."""
        return [budget.cache for budget in self.budgets(end)]

    def longest(self, most: int) -> int:
        """The longest request, up to so many tokens, that the engine accepts; 0 where it does not come to plan a cache:
        one of stated bytes is planned before it is clear that there is room for it."""
        cache = self.cache
        if not isinstance(cache, Pool) or cache.refusal is not None or not self.blocks(MIDDLE):
            return 0
        if cache.stated_bytes(0) is None and any(budget.missing for budget in self.budgets(MIDDLE)):
            return 0
        return cache.held_length(cache.usable_blocks(self.available(MIDDLE)), most)

    def held_context(self) -> int:
        """The longest context of which the cache has room for every sequence, with limits as they are; a cache that is
        not set aside grows from the context that is asked for."""
        cache = self.cache
        if not isinstance(cache, Pool):
            return self.workload.context
        each = self.blocks(MIDDLE) // self.workload.batch
        return cache.held_length(min(each, cache.usable_blocks(self.available(HIGH))), MOST_TOKENS)

    @property
    def kv_budget(self) -> KVBudget | None:
        """What is set aside for the cache; None where nothing is."""
        cache, share = self.cache, self.limits.share
        if share is None or not isinstance(cache, Pool):
            return None
        context, aside, blocks = self.workload.context, self.set_aside[self.most_loaded], self.blocks(MIDDLE)
        roomy, between, tight = aside.budgets
        return KVBudget(
            gpu=self.gpu.id,
            gpu_memory_utilization=share,
            max_num_seqs=self.limits.sequences,
            max_num_batched_tokens=self.limits.step_tokens,
            requested=between.requested,
            weights=self.serving.laid_out.stages[self.most_loaded].loaded.total,
            profile=int(aside.working.bytes),
            bytes=between.cache,
            bytes_low=tight.cache,
            bytes_high=roomy.cache,
            block_size=cache.block_size(context),
            blocks=blocks,
            tokens=cache.tokens(blocks, context),
            concurrency=cache.concurrency(blocks, context),
            concurrency_low=self.concurrency(HIGH),
            concurrency_high=self.concurrency(LOW),
            max_model_len=self.longest(self.serving.architecture.max_positions or MOST_TOKENS),
            outside_low=roomy.outside,
            outside_high=tight.outside,
        )
