"""Memory to serve: what each GPU of a laid-out model holds, by one allocation that every number is read off.

A `Serving` is a model on its ranks, with its weights; its `Requirements` are what all GPUs hold besides them for which
the engine sets the same limits; an `Allocation` lays these against the memory of one kind of GPU.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from pydantic import Field

from calc.budget import spend
from calc.errors import Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.overhead import (
    HIGH,
    LOW,
    MIDDLE,
    Overhead,
    OverheadItem,
    OverheadSizes,
    Range,
    at_end,
    bounds,
    sizes,
)
from calc.hardware.parallel import Layout, shapes
from calc.model.architecture import Architecture
from calc.model.named import Peak
from calc.remembered import remembered
from calc.serving.engines.cache import Cache, Pool, Setup
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import Budget, GPUAtStart, HostCache, LaidOut, Limits, StagePeak
from calc.serving.weighing import LayerBytes, RankWeights, Weighing
from calc.serving.workload import Workload


class Memory(Frozen):
    """Bytes on the GPU with the most memory in use. `overhead` is the middle of its range, which `total` counts."""

    weights: int
    vision: int = Field(default=0, exclude_if=lambda size: size == 0)  # weights of a vision encoder that is loaded
    kv_cache: int
    activations: int
    overhead: int
    overhead_low: int
    overhead_high: int
    total: int

    @property
    def low(self) -> int:
        return self.total - self.overhead + self.overhead_low

    @property
    def high(self) -> int:
        return self.total - self.overhead + self.overhead_high

    @property
    def parts(self) -> dict[Message, int]:
        """Bytes besides overhead, by the words of sentences."""
        return {
            Message("weights"): self.weights + self.vision,
            Message("KV cache"): self.kv_cache,
            Message("activations"): self.activations,
        }


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one GPU of a stage: its parts, and the peak that decides."""

    memory: Memory
    working: Peak
    sizes: OverheadSizes


class KVBudget(Frozen):
    """Bytes that an engine sets aside for its cache on a GPU, and what they hold. They are those of the most loaded
    GPU; `bytes` counts the middle of the ranges that are not closed."""

    gpu: str
    gpu_memory_utilization: float  # the share of vLLM's flag, or of the one that another engine has instead
    max_num_seqs: int
    max_num_batched_tokens: int
    requested: int
    weights: int  # as loaded: with tables, padding and rounding
    profile: int
    bytes: int
    bytes_low: int
    bytes_high: int
    block_size: int
    blocks: int
    tokens: int
    concurrency: float
    """Requests of the whole context that fit at once."""
    concurrency_low: float
    concurrency_high: float
    max_model_len: int
    """The longest request that the engine accepts; 0 where it stops before it plans a cache."""
    outside_low: int  # overhead that lies outside of what it takes: a CUDA context
    outside_high: int

    @property
    def driver_bytes(self) -> int:
        """Bytes that the driver shows as used on this GPU once the engine has worked at its peak: what it takes, and
        what lies outside."""
        return self.requested + (self.outside_low + self.outside_high) // 2


class HostMemory(Frozen):
    """Memory of the host that a server takes, in bytes; what its processes themselves take is not counted."""

    gpu: str
    reading: int
    """Files of the weights in the page cache of each machine, mapped while they are loaded; the kernel takes it back
    where memory is short."""
    adapters: int
    """LoRA adapters of all ranks that wait for their turn, pinned."""
    cache: HostCache | None
    """KV cache in the host's memory, pinned."""


class CacheRoom(NamedTuple):
    """Memory that an engine sets aside at start, at one end of the overhead's range, whatever is asked of it later."""

    budgets: Sequence[Budget]
    """Division of the GPU of each stage."""
    available: list[int]
    """Bytes for the cache on each stage."""
    blocks: int
    """Blocks of the cache, as many as every stage has room for."""
    usable_blocks: int
    """Blocks that the check at start counts on."""
    planned: bool
    """Whether it comes to plan a cache: no GPU has too little for what it takes."""


class StageAtStart(NamedTuple):
    """Memory on a pipeline stage when an engine starts."""

    loaded: int
    """Bytes of the weights as they are loaded."""
    working: Peak
    """Peak of a pass."""
    stated: int | None
    """Bytes of the cache, where flags say so."""


class Requirements:
    """Needs of a laid-out model on all GPUs for which the engine sets the same limits and takes the same kernels,
    however much memory they have."""

    def __init__(
        self,
        engine: Engine,
        laid_out: LaidOut,
        weighing: Weighing,
        cache: Cache | None,
        overhead: Mapping[OverheadItem, Range],
        limits: Limits,
        gpu: GPU,
    ) -> None:
        spend()
        self.engine, self.laid_out, self.weighing, self.overhead = engine, laid_out, weighing, overhead
        self.limits, self.gpu = limits, gpu  # one of them
        self.cache = cache
        """Layout of the cache in the engine."""
        self.pool = cache if isinstance(cache, Pool) else None
        """The cache where it is set aside at start."""
        self.setup = Setup(laid_out, limits, self.cache)
        self.sizes = sizes(overhead, 0)
        """Bytes of the overhead where no share of it follows from what is held."""

    @cached_property
    def refused(self) -> bool:
        """Whether the engine does not run it on these GPUs, whatever memory they have."""
        return any(self.engine.refusals(Question(laid_out=self.laid_out, gpu=self.gpu)))

    @cached_property
    def at_start(self) -> tuple[StageAtStart, ...]:
        """Memory on each stage when an engine starts; it does not depend on the workload."""
        stages, engine, pool = self.laid_out.stages, self.engine, self.pool

        def of(index: int) -> StageAtStart:
            loaded = stages[index].weights + stages[index].vision + engine.loading(stages[index])
            working = self.weighing.working(engine, self.limits, self.laid_out.ranges[index])
            return StageAtStart(loaded, working, None if pool is None else pool.stated_bytes(index))

        return self.laid_out.of_each_stage(of)

    @remembered
    def stage(self, index: int, workload: Workload) -> StageMemory:
        """Memory of one GPU of a stage at its peak; searches of what fits ask for equal lengths."""
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

    def peak(self, index: int, workload: Workload) -> StagePeak:
        """Memory of a stage at its highest. A cache that is set aside is there all the time."""
        if self.limits.share is not None:
            required = 0 if self.cache is None else self.cache.required_bytes(index, workload.batch, workload.context)
            return StagePeak(required, self.at_start[index].working)
        return max(self.engine.stage_peaks(self.setup, index, workload), key=lambda peak: peak.bytes)

    @remembered
    def room(self, usable_bytes: int, end: int) -> CacheRoom:
        """Room for a cache that is set aside on GPUs with so many bytes."""
        overhead = at_end(self.sizes, end)
        at_start, gap = self.at_start, overhead.get("peak_gap", 0)

        def budget(index: int) -> Budget:
            loaded, working, stated = at_start[index]
            start = GPUAtStart(usable_bytes, loaded, int(working.bytes) + gap, stated, overhead)
            return self.engine.budget(self.limits, start)

        budgets, pool = self.laid_out.of_each_stage(budget), self.pool
        available = [budget.cache for budget in budgets]
        planned = min(available) >= 0 and not any(budget.shortage for budget in budgets)
        blocks = 0 if pool is None else pool.blocks(available)
        usable = 0 if pool is None else pool.usable_blocks(blocks)
        return CacheRoom(budgets, available, blocks if min(available) > 0 else 0, usable, planned)


MOST_TOKENS = 2**30
"""Beyond this, memory is not what limits."""


class Serving:
    """A model laid out for an engine, ready to be weighed on any GPU; its weights are weighed once."""

    def __init__(
        self,
        ranks: RankWeights,
        engine: Engine,
        layout: Layout,
        overhead: Overhead,
        layouts: "dict[Layout, Serving] | None" = None,
    ) -> None:
        """`layout` is one that the engine accepts; `layouts` are other layouts of the model under these flags."""
        self.ranks, self.engine, self.layout, self.overhead = ranks, engine, layout, overhead
        self.architecture, self.precision = ranks.architecture, ranks.precision
        self.weighing = ranks.of(layout)
        self.layouts = {} if layouts is None else layouts
        self.known_requirements: dict[tuple[Hashable, ...], Requirements] = {}
        self.remembered_answers: dict[tuple[tuple[Hashable, ...], Hashable], Any] = {}
        """The largest context or batch that a GPU holds, whatever is asked of it, and the least change with which it
        holds a workload, by what the engine reads of it."""
        self.known_fewest: dict[tuple[Hashable, ...], dict[Workload, tuple[float, ...]]] = {}
        """Place of the layout on the fewest GPUs that hold a workload among all layouts, by what is read of a GPU."""
        self.known_demands: tuple[Any, ...] | None = None
        """Work of each stage's ranks, on any GPU, once its time was asked for."""

    @classmethod
    def of(
        cls,
        architecture: Architecture,
        engine: Engine,
        precision: Precision,
        layout: Layout,
        overhead: Overhead,
        sibling: "Serving | None" = None,
    ) -> "Serving":
        """The model laid out; `sibling` has it in other formats under this engine, and shares ranks and passes. Raises
        ConfigError where the engine does not take the model so."""
        engine.check(Question(architecture, precision, layout))
        ranks = RankWeights(architecture, engine, precision, None if sibling is None else sibling.ranks)
        return cls(ranks, engine, layout, overhead)

    @cached_property
    def laid_out(self) -> LaidOut:
        """A rank of each pipeline stage, weighed."""
        return self.ranks.laid_out(self.layout)

    @property
    def weights(self) -> int:
        """Bytes of weights on a rank, of all stages."""
        return sum(stage.weights for stage in self.laid_out.stages)

    def outweighs(self, gpu: GPU) -> bool:
        """Whether weights alone, as stored, are more than the GPUs of all stages have: no engine loads fewer bytes of
        what it does not leave on the host."""
        usable = self.layout.pp * self.engine.usable_gpu(gpu).usable_bytes
        return not self.engine.offloads and self.weighing.stored > usable

    def with_layout(self, layout: Layout) -> "Serving":
        """The model in another layout. Raises ConfigError where the engine does not accept it."""
        if layout != self.layout and layout not in self.layouts:
            self.engine.check(Question(self.architecture, self.precision, layout))
        return self.with_accepted_layout(layout)

    def with_accepted_layout(self, layout: Layout) -> "Serving":
        """The model in another layout that the engine is known to accept; laid out once."""
        if layout == self.layout:
            return self
        self.layouts.setdefault(self.layout, self)
        if layout not in self.layouts:
            self.layouts[layout] = Serving(self.ranks, self.engine, layout, self.overhead, self.layouts)
        return self.layouts[layout]

    def accepts(self, layout: Layout) -> bool:
        """Whether the engine takes the model laid out so."""
        known = layout == self.layout or layout in self.layouts
        return known or not any(self.engine.refusals(Question(self.architecture, self.precision, layout)))

    @cached_property
    def least_stored(self) -> list[tuple[Layout, LayerBytes]]:
        """Divisions of every layer over ranks that the engine accepts, with the least bytes stored on a rank."""
        accepted = [shape for shape in shapes(self.architecture) if self.accepts(shape)]
        return [(shape, self.weighing.least_stored_bytes(shape)) for shape in accepted]

    def with_engine(self, engine: Engine) -> "Serving":
        """The model under other flags. Raises ConfigError where they do not go together."""
        ranks = self.ranks
        if not self.engine.loads_same_weights(engine):
            engine.check(Question(self.architecture, self.precision, self.layout))
            ranks = ranks.reloaded(engine)
        return Serving(ranks, engine, self.layout, self.overhead)

    def for_gpu(self, gpu: GPU) -> "Serving":
        """The model with the weights that the engine holds on this kind of GPU."""
        engine = self.engine.for_gpu(gpu, self.architecture)
        return self if engine is self.engine else self.with_engine(engine)

    def on(self, gpu: GPU, workload: Workload) -> "Allocation":
        """Allocation on a GPU of this kind, of the data-parallel copy with the most sequences."""
        gpu = self.engine.usable_gpu(gpu)
        return Allocation(self.for_gpu(gpu), gpu, workload.of_copy(self.layout.dp))

    def requirements_on(self, gpu: GPU, limits: Limits) -> Requirements:
        """Needs on GPUs with the kernels and links of this one, under these limits."""
        key = *self.engine.kernel_key(gpu), limits
        if (known := self.known_requirements.get(key)) is not None:
            return known
        cache, usual = self.ranks.start(self.engine, self.layout, gpu, limits)
        ranges = self.overhead.of_server(usual)
        known = Requirements(self.engine, self.laid_out, self.weighing, cache, ranges, limits, gpu)
        return self.known_requirements.setdefault(key, known)


class Allocation:
    """Memory of a laid-out model on one kind of GPU at a workload."""

    def __init__(self, requested: Serving, gpu: GPU, workload: Workload) -> None:
        """`requested` is the model under its flags, before the engine decides for this workload what they leave to
        it."""
        self.requested, self.gpu, self.workload = requested, gpu, workload
        engine = requested.engine.with_own_options(requested.laid_out, gpu, workload, requested.overhead)
        self.serving = serving = requested if engine is requested.engine else requested.with_engine(engine)
        self.limits: Limits = engine.limits(workload, gpu, serving.architecture, serving.layout)
        self.requirements = serving.requirements_on(gpu, self.limits)

    @property
    def usual_overhead(self) -> Mapping[OverheadItem, Range]:
        """The ranges of this GPU and layout where none are stated."""
        return self.serving.engine.overhead_on(self.gpu, self.serving.laid_out, self.limits)

    def with_workload(self, **change: int) -> "Allocation":
        """The allocation for another batch or context."""
        return Allocation(self.requested, self.gpu, self.workload.model_copy(update=change))

    def with_engine(self, engine: Engine) -> "Allocation":
        return Allocation(self.serving.with_engine(engine), self.gpu, self.workload)

    @property
    def sets_aside(self) -> bool:
        """Whether the engine sets its cache aside at start."""
        return self.limits.share is not None

    @property
    def cache(self) -> Cache | None:
        """Layout of the cache in the engine."""
        return self.requirements.cache

    @property
    def refusal(self) -> Message | None:
        """Why the engine does not run this model on this GPU, whatever memory there is."""
        if not self.requirements.refused:
            return None
        return next(self.serving.engine.refusals(Question(laid_out=self.serving.laid_out, gpu=self.gpu))).message

    @property
    def request_refusal(self) -> Message | None:
        """Why what is set up at start does not take these sequences, whatever memory there is."""
        refusals = self.serving.engine.refusals(Question(workload=self.workload, limits=self.limits))
        return next((refusal.message for refusal in refusals), None)

    @property
    def accepted(self) -> bool:
        """Whether the engine runs this model on this GPU and takes these sequences, whatever memory there is."""
        return self.refusal is None and self.request_refusal is None

    @cached_property
    def stages(self) -> tuple[StageMemory, ...]:
        """One GPU of each stage, at its peak."""
        return self.serving.laid_out.of_each_stage(lambda index: self.requirements.stage(index, self.workload))

    @property
    def most_loaded(self) -> int:
        """Number of the pipeline stage with the least headroom."""
        return 0 if len(self.stages) == 1 else min(range(len(self.stages)), key=self.spare_on_stage)

    def spare_on_stage(self, index: int) -> int:
        """Headroom of a GPU of a stage in bytes; negative by how much it is short."""
        memory = self.stages[index].memory
        if self.sets_aside:
            budget = self.room(MIDDLE).budgets[index]
            left = budget.cache - memory.kv_cache
            return min(left, -budget.shortage) if budget.shortage else left
        return self.gpu.usable_bytes - memory.total

    @property
    def spare(self) -> int:
        return self.spare_on_stage(self.most_loaded)

    @property
    def memory(self) -> Memory:
        return self.stages[self.most_loaded].memory

    @property
    def usable(self) -> int:
        """Bytes that the engine may take: what is required and what stays free."""
        return self.memory.total + self.spare

    def fits(self, end: int) -> bool:
        """Whether the engine starts and holds every sequence, at an end of the overhead's range."""
        if not self.accepted:
            return False
        if self.sets_aside:
            return self.starts(end) and self.concurrency(end) >= self.workload.batch
        usable = self.gpu.usable_bytes
        if self.least_memory(end) > usable:
            return False
        totals = ((stage.memory.low, stage.memory.total, stage.memory.high)[end] for stage in self.stages)
        return max(totals) <= usable

    @property
    def surely_fits(self) -> bool:
        """Whether it fits at the high end of the overhead's range; with an engine that sets its cache aside, whether it
        starts there, and in the middle of the range its cache holds every sequence, as the engine prints it."""
        if not self.sets_aside:
            return self.fits(HIGH)
        return self.starts(HIGH) and self.accepted and self.concurrency(MIDDLE) >= self.workload.batch

    def least_memory(self, end: int) -> int:
        """Lower bound of the most loaded GPU's bytes without a pass, at an end of the overhead's range."""
        batch, context, cache, serving = self.workload.batch, self.workload.context, self.cache, self.serving

        def of_stage(index: int) -> int:
            stage = serving.laid_out.stages[index]
            cached = 0 if cache is None else cache.least_bytes(index, batch, context)
            nbytes = cached + stage.weights + stage.vision
            low, high = bounds(sizes(self.requirements.overhead, nbytes, serving.engine.loading(stage)))
            return nbytes + (low, (low + high) // 2, high)[end]

        return max(serving.laid_out.of_each_stage(of_stage))

    # of an engine that sets its cache aside at start

    def room(self, end: int) -> CacheRoom:
        """Room for the cache, at an end of the overhead's range."""
        return self.requirements.room(self.gpu.usable_bytes, end)

    def starts(self, end: int) -> bool:
        """Whether the engine starts and accepts a request of the whole context."""
        room, pool = self.room(end), self.requirements.pool
        if pool is None:
            return room.planned
        if not room.planned or self.refusal is not None:
            return False
        enough = pool.request_blocks(self.workload.context) <= room.usable_blocks
        return enough and pool.least_blocks(self.limits.sequences) <= room.blocks

    def concurrency(self, end: int) -> float:
        """Requests of the whole context that the cache holds at once."""
        room, pool = self.room(end), self.requirements.pool
        if pool is None:
            return inf
        return min(pool.concurrency(room.blocks, self.workload.context), pool.most_requests(room.available))

    def longest_request(self, most: int) -> int:
        """Tokens of the longest request, up to `most`, that the engine accepts; 0 where it does not come to plan a
        cache: one of stated bytes is planned before it is clear that there is room for it."""
        pool, room = self.requirements.pool, self.room(MIDDLE)
        if pool is None or self.refusal is not None or not room.blocks:
            return 0
        if pool.stated_bytes(0) is None and not room.planned:
            return 0
        return pool.cached_length(room.usable_blocks, most)

    def max_cached_context(self) -> int:
        """The longest context of which the cache has room for every sequence, with limits as they are; a cache that is
        not set aside grows from the context that is asked for."""
        pool = self.requirements.pool
        if pool is None:
            return self.workload.context
        each = self.room(MIDDLE).blocks // self.workload.batch
        return pool.cached_length(min(each, self.room(HIGH).usable_blocks), MOST_TOKENS)

    @property
    def host_cache(self) -> HostCache | None:
        """The cache in the host's memory, at the middle of the overhead's range."""
        pool, serving = self.requirements.pool, self.serving
        if pool is None or not self.sets_aside or self.refusal is not None:
            return None
        return serving.engine.host_cache(serving.laid_out, pool, self.room(MIDDLE).blocks, self.workload.context)

    def host_memory(self, files: int) -> HostMemory:
        """Host memory of a server whose files of weights are so many bytes."""
        serving, adapters = self.serving, 0
        slots, waiting = serving.engine.adapters
        if slots:
            (undivided,) = serving.with_accepted_layout(Layout()).laid_out.stages
            adapters = undivided.loaded.adapters // slots * waiting * serving.layout.gpus
        return HostMemory(gpu=self.gpu.id, reading=files, adapters=adapters, cache=self.host_cache)

    @property
    def kv_budget(self) -> KVBudget | None:
        """Memory set aside for the cache; None where nothing is."""
        pool, share = self.requirements.pool, self.limits.share
        if share is None or pool is None:
            return None
        context, index = self.workload.context, self.most_loaded
        roomy, between, tight = (self.room(end).budgets[index] for end in (LOW, MIDDLE, HIGH))
        profiled, blocks = pool.profiled_bytes(index), self.room(MIDDLE).blocks
        return KVBudget(
            gpu=self.gpu.id,
            gpu_memory_utilization=share,
            max_num_seqs=self.limits.sequences,
            max_num_batched_tokens=self.limits.step_tokens,
            requested=between.requested,
            weights=self.serving.laid_out.stages[index].loaded.total,
            profile=int(self.requirements.at_start[index].working.bytes) + profiled,
            bytes=between.cache - profiled,
            bytes_low=tight.cache - profiled,
            bytes_high=roomy.cache - profiled,
            block_size=pool.block_size(context),
            blocks=blocks,
            tokens=pool.tokens(blocks, context),
            concurrency=self.concurrency(MIDDLE),
            concurrency_low=self.concurrency(HIGH),
            concurrency_high=self.concurrency(LOW),
            max_model_len=self.longest_request(self.serving.architecture.max_positions or MOST_TOKENS),
            outside_low=roomy.outside,
            outside_high=tight.outside,
        )
