"""The fewest equal GPUs on which a model fits, and its layout there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from operator import add, sub

from calc.hardware.gpu import GPU
from calc.hardware.mig import unjoined
from calc.hardware.overhead import HIGH, LOW, MIDDLE, OverheadItem, OverheadSizes, at_end
from calc.hardware.parallel import Layout
from calc.remembered import remembered
from calc.serving.engines.cache import Pool
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import GPUAtStart, Limits
from calc.serving.memory import Allocation, Serving
from calc.serving.weighing import LayerBytes
from calc.serving.workload import Workload

MOST_GPUS = 1024
UNBOUNDED = 2**62
"""Stages, where no number of them would do."""
FIRST_PLACE, NO_PLACE = (0.0,), (inf,)
"""Places in the order in which layouts are tried: before the first, and after the last."""
ON_TWO_GPUS = Layout(tp=2), Layout(pp=2)


def fewest_gpus(gpu: GPU, serving: Serving, workload: Workload) -> Layout | None:
    """The layout on the fewest equal GPUs on which it fits; of equal numbers, the one with fewer copies and stages, and
    with whole experts. Each number of stages is tried, since more may fit worse: layers do not divide evenly, and each
    stage has a step in flight. What cannot hold its weights and cache is not laid out, nor what did not do for fewer or
    shorter sequences. Where flags state the share of each GPU, there are as many as shares."""
    serving = serving.for_gpu(gpu)
    if (stated := serving.engine.stated_gpus) is not None:
        there = serving.with_layout(Layout(pp=stated))
        return there.layout if there.on(gpu, workload).surely_fits else None
    single_gpu = serving.with_layout(Layout())
    if single_gpu.on(gpu, workload).surely_fits:
        return single_gpu.layout
    if unjoined(gpu, 2) is not None:
        return None
    places = single_gpu.known_fewest.setdefault(single_gpu.engine.memory_key(gpu), {})
    if workload not in places:
        first = max((place for less, place in places.items() if is_no_larger(less, workload)), default=FIRST_PLACE)
        places[workload] = NO_PLACE if first == NO_PLACE else first_fit(gpu, serving, single_gpu, workload, first)
    if places[workload] == NO_PLACE:
        return None
    *_, number, stages = map(int, places[workload])
    return single_gpu.least_stored[-number][0].model_copy(update={"pp": stages})


def is_no_larger(workload: Workload, reference: Workload) -> bool:
    """Whether a workload has no more and no longer sequences than a reference that equals it in all else."""
    alike = workload.model_copy(update={"batch": reference.batch, "context": reference.context}) == reference
    return alike and workload.batch <= reference.batch and workload.context <= reference.context


def first_fit(
    gpu: GPU, serving: Serving, single_gpu: Serving, workload: Workload, first: tuple[float, ...]
) -> tuple[float, ...]:
    """Place of the first layout that fits, from a place on: its GPUs, copies, ranks and stages."""
    bounds = MultiGPUBounds(gpu, single_gpu, workload)
    if bounds.never_start:
        return NO_PLACE
    shapes = [StagedShape(bounds, serving, layout, stored) for layout, stored in single_gpu.least_stored]
    most_stages = bounds.most_stages if single_gpu.accepts(ON_TWO_GPUS[1]) else 1  # a draft may not go with stages
    queue: list[tuple[int, int, int, int, int]] = []  # the best before the others

    def enqueue(number: int, stages: int) -> None:
        layout, most = shapes[number].layout, min(most_stages, MOST_GPUS // shapes[number].layout.gpus)
        while stages <= most and shapes[number].is_known_not_to_fit(stages):
            stages += 1
        if stages <= most:
            heappush(queue, (layout.gpus * stages, layout.dp, -layout.tp, -number, stages))

    for number, shape in enumerate(shapes):
        enqueue(number, bounds.least_stages(shape.stored))
    while queue:
        *_, negative, stages = place = heappop(queue)
        if place >= first and shapes[-negative].fits(stages):
            return place
        enqueue(-negative, max(stages + 1, shapes[-negative].known_minimum))
    return NO_PLACE


class StagedShape:
    """Division of every layer over ranks, with what is learned about it as numbers of stages are tried, few first."""

    def __init__(self, bounds: "MultiGPUBounds", serving: Serving, layout: Layout, stored: LayerBytes) -> None:
        self.bounds, self.serving, self.layout, self.stored = bounds, serving, layout, stored
        self.known_minimum = 1  # stages below which it is known not to fit
        self.too_large_kinds: set[tuple[int, ...]] = set()  # layers of a stage

    @cached_property
    def workload(self) -> Workload:
        """Requests of one data-parallel copy."""
        return self.bounds.workload.of_copy(self.layout.dp)

    @cached_property
    def on_one_stage(self) -> Serving:
        """The model with all layers of a copy on one pipeline stage."""
        return self.serving.with_accepted_layout(self.layout)

    @cached_property
    def least_working(self) -> int | None:
        """Bytes of working memory of the layer that takes least, as the engine profiles it on a rank; None where it
        does not start with such a rank: it looks at attention, not at experts."""
        bounds, engine = self.bounds, self.serving.engine
        weighing, limits = bounds.single_gpu.ranks.of(self.layout), bounds.starts[0][0]
        if any(engine.refusals(Question(laid_out=weighing.without_weights, gpu=bounds.gpu))):
            return None
        return 0 if limits.share is None else weighing.least_working(engine, limits)

    @cached_property
    def least_stages(self) -> int:
        """Fewest pipeline stages that hold the weights and the cache; `UNBOUNDED` if no number does: a layer's working
        memory has no room, flags state too few blocks, or the engine refuses the request. Bytes that flags state for
        the cache are set aside on each, and those of all stages hold all layers' part of the requests."""
        bounds, (stage,) = self.bounds, self.on_one_stage.laid_out.stages
        on_one_stage, work = self.on_one_stage.on(bounds.gpu, bounds.workload), self.workload
        cached, each, least = 0, 0, 1
        pool = on_one_stage.requirements.pool
        if on_one_stage.request_refusal is not None:
            return UNBOUNDED
        if bounds.starts[0][0].share is None:
            peak = on_one_stage.requirements.stage(0, work).memory
            cached = peak.kv_cache
            if peak.activations > bounds.room(HIGH):
                return UNBOUNDED
        if pool is not None:
            cached, each = pool.least_bytes(0, work.batch, work.context), pool.fixed_bytes_per_stage()
            stated, to_start = pool.stated_blocks, pool.least_blocks(on_one_stage.limits.sequences)
            if stated is not None and (
                pool.concurrency(stated, work.context) < work.batch
                or pool.usable_blocks(stated) < pool.request_blocks(work.context)
                or stated < to_start
            ):
                return UNBOUNDED
            if stated is None and (budget := pool.stated_bytes(0)) is not None:
                least, cached, each = -(-max(cached, pool.block_bytes_on(0, to_start)) // budget), budget, budget
        if (room := bounds.room(MIDDLE) - each) <= 0:
            return UNBOUNDED
        return max(least, -(-(stage.weights + stage.vision + cached - each) // room))

    def kinds_of(self, stages: int) -> list[tuple[int, ...]]:
        """Kinds of the layers of each stage: layers that weigh the same on one GPU do on a rank of any shape."""
        single_gpu = self.bounds.single_gpu
        return single_gpu.weighing.kinds_of(single_gpu.ranks.ranges_of(stages))

    def is_known_not_to_fit(self, stages: int) -> bool:
        """Whether one of the stages was found too large when fewer stages were tried."""
        return bool(self.too_large_kinds) and not self.too_large_kinds.isdisjoint(self.kinds_of(stages))

    def fits(self, stages: int) -> bool:
        """Whether it fits on so many pipeline stages."""
        for crowded in self.crowded(stages, self.serving.ranks.ranges_of(stages)):
            if crowded is not None:
                kinds = self.kinds_of(stages)
                self.too_large_kinds.update(kinds[stage] for stage in crowded)
                return False
        return True

    def crowded(self, stages: int, ranges: Sequence[range]) -> Iterator[Sequence[int] | None]:
        """Pipeline stages, of so many, that do not fit whatever the number of other stages: empty where only all of
        them together do not fit, None where they do. The cheapest checks come first."""
        bounds, layout = self.bounds, self.layout.model_copy(update={"pp": stages})
        limits = self.serving.engine.limits(self.workload, bounds.gpu, self.serving.architecture, layout)
        if limits.share is not None and limits.share <= 0:  # SGLang sets more aside for each GPU of a pipeline
            self.known_minimum = UNBOUNDED if stages > 1 else 2
            yield ()
        yield bounds.crowded(self.stored, ranges)
        if (taken := self.least_working) is None:
            self.known_minimum = UNBOUNDED
            yield ()
            return
        yield bounds.crowded(self.stored, ranges, taken)
        self.known_minimum = self.least_stages
        if self.known_minimum > stages:
            yield ()
        if limits.share is not None:
            yield self.crowded_by_cache(layout, limits, ranges)
        laid_out = self.serving.with_accepted_layout(layout).on(bounds.gpu, bounds.workload)
        if not laid_out.surely_fits:
            yield self.crowded_at_peak(laid_out) or ()

    def crowded_by_cache(self, layout: Layout, limits: Limits, stages: Sequence[range]) -> list[int] | None:
        """Stages whose weights, working memory and share of the cache do not fit, where that is known before they are
        laid out; None where all fit. Only of the longest is it known that they do not fit next to more other stages
        either: an engine may take more on each GPU, the more layers are on one."""
        bounds, engine, weighing, work = self.bounds, self.serving.engine, self.on_one_stage.weighing, self.workload
        laid_out = replace(self.on_one_stage.laid_out, stages=(), ranges=tuple(stages), layout=layout)
        pool = engine.cache(laid_out, bounds.gpu, limits) if engine.plans_by_ranges else None
        is_additive, caches = True, [(HIGH, [0] * len(stages))]
        if isinstance(pool, Pool):
            request, numbers = pool.request_blocks(work.context), range(len(stages))
            is_additive = pool.is_additive
            to_start = max(pool.least_blocks(limits.sequences), request)
            if bounds.states_cache:  # whatever there is room for
                stated = [pool.stated_bytes(stage) or 0 for stage in numbers]
                if pool.blocks(stated) < max(to_start, work.batch * request):
                    return []
                caches = [(HIGH, stated)]
            else:
                counts = (HIGH, to_start), (MIDDLE, work.batch * request)
                caches = [(end, [pool.block_bytes_on(stage, blocks) for stage in numbers]) for end, blocks in counts]
        overhead = self.serving.overhead.sizes(engine.overhead_on(bounds.gpu, laid_out, limits), 0)
        weights = bytes_by_stage(weighing.loaded, stages)
        working = weighing.working_bytes(engine, limits, stages)
        longest = max(map(len, stages))
        for end, cache in caches:
            outside = at_end(overhead, end)
            needs = [*zip(map(add, weights, cache), working, strict=True)]
            left = {taken: bounds.bytes_left(taken, limits, outside) for taken in set(working)}
            lacking = {need for need in set(needs) if need[0] > left[need[1]][0]}
            if lacking and is_additive:
                return [i for i, need in enumerate(needs) if need in lacking and len(stages[i]) == longest]
            if lacking or not all(starts for _, starts in left.values()):
                return []
        return None

    def crowded_at_peak(self, laid_out: Allocation) -> list[int] | None:
        """Middle stages that do not fit a GPU, where an engine takes memory as it goes: such a stage takes as much
        whatever the number of others. None where none is known."""
        usable, middle = self.bounds.gpu.usable_bytes, range(1, len(laid_out.serving.laid_out.stages) - 1)
        if not middle or laid_out.sets_aside or laid_out.refusal is not None or laid_out.least_memory(HIGH) > usable:
            return None
        return [stage for stage in middle if laid_out.stages[stage].memory.high > usable] or None


class MultiGPUBounds:
    """Upper bounds of the bytes that one GPU has room for in any layout over two or more GPUs of its kind."""

    def __init__(self, gpu: GPU, single_gpu: Serving, workload: Workload) -> None:
        self.gpu, self.single_gpu, self.workload = gpu, single_gpu, workload
        engine, architecture = single_gpu.engine, single_gpu.architecture
        self.starts: list[tuple[Limits, OverheadSizes]] = [
            (
                engine.limits(workload, gpu, architecture, layout),
                single_gpu.overhead.sizes(engine.overhead(layout.gpus), 0),
            )
            for layout in ON_TWO_GPUS
        ]
        """Limits and overhead on each of two GPUs: no engine leaves more on each of more than two."""
        limits = self.starts[0][0]
        peak = None if limits.share is None else single_gpu.weighing.peaks_of(engine, limits, last=True).behind
        self.sampling = 0 if peak is None else int(peak.bytes)
        """Bytes of working memory after the last layer, as the engine profiles it."""
        pool = single_gpu.on(gpu, workload).requirements.pool
        self.states_cache = pool is not None and pool.stated_bytes(0) is not None
        """Whether flags say how large the cache is, whatever the GPU has left."""

    @property
    def never_start(self) -> bool:
        """Whether the engine starts on no number of GPUs, even with nothing on them and no CUDA graphs: outside of its
        share of each, which does not depend on their number, too little is left."""
        limits = [limits for limits, _ in self.starts]
        engine, single_gpu = self.single_gpu.engine, self.single_gpu
        more = engine.limits(self.workload, self.gpu, single_gpu.architecture, Layout(pp=3))
        if more.share is None or self.states_cache or any(more.share != each.share for each in limits):
            return False
        bare = [replace(each, tables=0) for each in limits]
        ends = [{**at_end(overhead, HIGH), "cuda_graphs": 0} for _, overhead in self.starts]
        usable = self.gpu.usable_bytes
        starts = zip(bare, ends, strict=True)
        return all(engine.budget(least, GPUAtStart(usable, 0, 0, None, end)).shortage for least, end in starts)

    @property
    def most_stages(self) -> int:
        """Pipeline stages that hold something: one more is empty, as where flags leave most layers on the host."""
        stages = self.single_gpu.ranks.ranges_of(self.single_gpu.architecture.num_layers)
        return sum(len(stage) > 0 or stage.start > 0 for stage in stages)  # the output alone is behind the last layer

    @remembered
    def room(self, end: int, working: int = 0) -> int:
        """Upper bound of the bytes for weights and cache, by working memory and end of the overhead's range."""
        return max(
            self.bytes_left(working, limits, at_end(overhead, end if limits.share is None else LOW))[0]
            for limits, overhead in self.starts  # each layout has a range of its own
        )

    def bytes_left(self, working: int, limits: Limits, overhead: Mapping[OverheadItem, int]) -> tuple[int, bool]:
        """Upper bound of the bytes for weights and cache with this share of the GPU or a smaller one, as SGLang takes
        for more GPUs, and whether the engine starts with this one."""
        usable, engine = self.gpu.usable_bytes, self.single_gpu.engine
        if limits.share is None:
            return usable - sum(overhead.values()), True
        if self.states_cache:
            return usable - working - sum(overhead.values()), True
        budget = engine.budget(limits, GPUAtStart(usable, 0, working, None, overhead))
        return int((budget.cache - budget.shortage) / engine.cache_share), not budget.shortage

    def least_stages(self, stored: LayerBytes) -> int:
        """Fewest pipeline stages that hold all layers."""
        room = self.room(HIGH)
        return max(1, -(-stored.layers[-1] // room)) if room > 0 else UNBOUNDED

    def crowded(self, layer_bytes: LayerBytes, stages: Sequence[range], working: int = 0) -> list[int] | None:
        """Stages on which the weights and so much working memory do not fit; None where all fit."""
        last = self.room(HIGH, max(working, self.sampling))
        rooms = [*[self.room(HIGH, working)] * (len(stages) - 1), last]
        needs = enumerate(zip(bytes_by_stage(layer_bytes, stages), rooms, strict=True))
        return [stage for stage, (need, room) in needs if need > room] or None


def bytes_by_stage(layer_bytes: LayerBytes, stages: Sequence[range]) -> list[int]:
    """Bytes of each stage: its layers, and what stands outside them."""
    upto = [layer_bytes.layers[stage.stop] for stage in stages]
    return [*map(add, map(sub, upto, [0, *upto]), layer_bytes.outside.of_stages(len(stages)))]
