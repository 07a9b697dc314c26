"""What GPUs hold of a laid-out model beside its weights, and what their memory leaves for its cache."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from calc.budget import spend
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range, at_end, bounds, sizes
from calc.model.named import Peak
from calc.serving.engines.cache import Cache, Pool
from calc.serving.engines.engine import Engine
from calc.serving.engines.question import Question
from calc.serving.engines.sizes import Budget, GPUAtStart, LaidOut, Limits, StagePeak
from calc.serving.gpu_memory import Memory, StageMemory
from calc.serving.weighing import Weighing
from calc.serving.workload import Workload


class CacheRoom(NamedTuple):
    """What an engine sets aside at start, at one end of the overhead's range, whatever is asked of it later."""

    budgets: Sequence[Budget]
    """How the GPU of each stage is divided."""
    available: list[int]
    """Bytes for the cache on each stage."""
    blocks: int
    """Blocks of the cache, as many as every stage has room for."""
    usable_blocks: int
    """Those of them that the check at start counts on."""
    planned: bool
    """Whether it comes to plan a cache: no GPU has too little for what it takes."""


class StageAtStart(NamedTuple):
    """What an engine finds on a pipeline stage when it starts."""

    loaded: int
    """Bytes of the weights as they are loaded."""
    working: Peak
    """What a pass takes."""
    stated: int | None
    """Bytes of the cache, where flags say so."""


class Requirements:
    """What a laid-out model needs on all GPUs for which the engine sets the same limits and takes the same kernels,
    however much memory they have."""

    def __init__(
        self,
        engine: Engine,
        laid_out: LaidOut,
        weighing: Weighing,
        overhead: Mapping[OverheadItem, Range],
        limits: Limits,
        gpu: GPU,
    ) -> None:
        spend()
        self.engine, self.laid_out, self.weighing, self.overhead = engine, laid_out, weighing, overhead
        self.limits, self.gpu = limits, gpu  # one of them
        self.cache: Cache | None = engine.cache(laid_out, gpu, limits)
        """How the engine keeps the cache."""
        self.pool = self.cache if isinstance(self.cache, Pool) else None
        """The cache where it is set aside at start."""
        self.rooms = dict[tuple[int, int], CacheRoom]()

    @cached_property
    def refused(self) -> bool:
        """Whether the engine does not run it on these GPUs, whatever memory they have."""
        return any(self.engine.refusals(Question(laid_out=self.laid_out, gpu=self.gpu)))

    @cached_property
    def at_start(self) -> tuple[StageAtStart, ...]:
        """What an engine finds on each stage when it starts, whatever the workload."""
        stages, engine, pool = self.laid_out.stages, self.engine, self.pool

        def of(index: int) -> StageAtStart:
            loaded = stages[index].weights + stages[index].vision + engine.loading(stages[index])
            working = self.weighing.working(engine, self.limits, self.laid_out, index)
            return StageAtStart(loaded, working, None if pool is None else pool.stated_bytes(index))

        return self.laid_out.of_each_stage(of)

    def stages(self, workload: Workload) -> tuple[StageMemory, ...]:
        """One GPU of each stage, at its peak."""
        return self.laid_out.of_each_stage(lambda index: self.stage(index, workload))

    def stage(self, index: int, workload: Workload) -> StageMemory:
        spend()
        stage, peak = self.laid_out.stages[index], self.peak(index, workload)
        working = int(peak.working.bytes)
        base = stage.weights + stage.vision + peak.cache + working
        overhead = sizes(self.overhead, base, self.engine.loading(stage))
        low, high = bounds(overhead)
        memory = Memory(
            weights=stage.weights,
            vision=stage.vision,
            kv_cache=peak.cache,
            activations=working,
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=base + (low + high) // 2,
        )
        return StageMemory(memory, peak.working, overhead)

    def cache_at_peak(self, index: int, workload: Workload) -> int:
        """Bytes of cache that a stage holds when it holds most."""
        at_start = self.limits.share is not None
        return self.cache_bytes(index, workload) if at_start else self.peak(index, workload).cache

    def peak(self, index: int, workload: Workload) -> StagePeak:
        """Memory of a stage at its highest. A cache that is set aside is there all the time."""
        if self.limits.share is not None:
            return StagePeak(self.cache_bytes(index, workload), self.at_start[index].working)
        peaks = self.engine.stage_peaks(self.laid_out, index, self.cache, self.limits, workload)
        return max(peaks, key=lambda peak: peak.bytes)

    def cache_bytes(self, index: int, workload: Workload) -> int:
        """What all sequences take on a stage."""
        return 0 if self.cache is None else self.cache.required_bytes(index, workload.batch, workload.context)

    def room(self, usable_bytes: int, end: int) -> CacheRoom:
        """What there is for a cache that is set aside on GPUs with so many bytes."""
        key = usable_bytes, end
        if key not in self.rooms:
            overhead = at_end(sizes(self.overhead, 0), end)
            at_start, gap = self.at_start, overhead.get("peak_gap", 0)

            def budget(index: int) -> Budget:
                loaded, working, stated = at_start[index]
                start = GPUAtStart(usable_bytes, loaded, int(working.bytes) + gap, stated, overhead)
                return self.engine.budget(self.limits, start)

            budgets = self.laid_out.of_each_stage(budget)
            self.rooms[key] = cache_room(budgets, self.pool)
        return self.rooms[key]


def cache_room(budgets: Sequence[Budget], pool: Pool | None) -> CacheRoom:
    """What the blocks of a pool, if it is one, find on GPUs that are divided so."""
    available = [budget.cache for budget in budgets]
    least = min(available)
    planned = least >= 0 and not any(budget.shortage for budget in budgets)
    if pool is None:
        return CacheRoom(budgets, available, 0, 0, planned)
    blocks = pool.blocks(available)
    return CacheRoom(budgets, available, blocks if least > 0 else 0, pool.usable_blocks(blocks), planned)
