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
from calc.serving.engines.cache import Pool
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import GPUAtStart, Limits
from calc.serving.memory import Allocation, Serving
from calc.serving.weighing import LayerBytes
from calc.serving.workload import Workload

MOST_GPUS = 1024
UNBOUNDED = 2**62
"""Stages, where no number of them would do."""
FIRST, NOWHERE = (0.0,), (inf,)
"""Places in the order of layouts: before all, and behind them."""
TWO = Layout(tp=2), Layout(pp=2)


def fewest_gpus(gpu: GPU, serving: Serving, workload: Workload) -> Layout | None:
    """The layout on the fewest equal GPUs on which it fits; of equal numbers, the one with fewer copies and stages, and
    with whole experts. Each number of stages is tried, since more may fit worse: layers do not divide evenly, and each
    stage has a step in flight. What cannot hold its weights and cache is not laid out, nor what did not do for fewer or
    shorter sequences. Where flags state the share of each GPU, there are as many as shares."""
    serving = serving.for_gpu(gpu)
    if (stated := serving.engine.stated_gpus) is not None:
        there = serving.with_layout(Layout(pp=stated))
        return there.layout if there.on(gpu, workload).surely_fits else None
    alone = serving.with_layout(Layout())
    if alone.on(gpu, workload).surely_fits:
        return alone.layout
    if unjoined(gpu, 2) is not None:
        return None
    places = alone.known_fewest.setdefault(alone.engine.reads_of(gpu), {})
    if workload not in places:
        first = max((place for less, place in places.items() if asks_less(less, workload)), default=FIRST)
        places[workload] = NOWHERE if first == NOWHERE else search(gpu, serving, alone, workload, first)
    if places[workload] == NOWHERE:
        return None
    *_, number, stages = map(int, places[workload])
    return alone.least_stored[-number][0].model_copy(update={"pp": stages})


def asks_less(workload: Workload, other: Workload) -> bool:
    """Whether it has no more and no longer sequences than the other, and is the same in all else."""
    alike = workload.model_copy(update={"batch": other.batch, "context": other.context}) == other
    return alike and workload.batch <= other.batch and workload.context <= other.context


def search(
    gpu: GPU, serving: Serving, alone: Serving, workload: Workload, first: tuple[float, ...]
) -> tuple[float, ...]:
    """The place of the first layout that fits, from a place on: its GPUs, copies, ranks and stages."""
    several = Several(gpu, alone, workload)
    if several.never_start:
        return NOWHERE
    shapes = [StagedShape(several, serving, layout, stored) for layout, stored in alone.least_stored]
    most_stages = several.most_stages if alone.accepts(TWO[1]) else 1  # a draft may not go with stages
    waiting: list[tuple[int, int, int, int, int]] = []  # the best before the others

    def wait(number: int, stages: int) -> None:
        layout, most = shapes[number].layout, min(most_stages, MOST_GPUS // shapes[number].layout.gpus)
        while stages <= most and shapes[number].is_known_not_to_fit(stages):
            stages += 1
        if stages <= most:
            heappush(waiting, (layout.gpus * stages, layout.dp, -layout.tp, -number, stages))

    for number, shape in enumerate(shapes):
        wait(number, several.least_stages(shape.stored))
    while waiting:
        *_, negative, stages = place = heappop(waiting)
        if place >= first and shapes[-negative].fits(stages):
            return place
        wait(-negative, max(stages + 1, shapes[-negative].least))
    return NOWHERE


class StagedShape:
    """A way to share every layer over ranks, and what is found of it as its stages are tried, few before many."""

    def __init__(self, several: "Several", serving: Serving, layout: Layout, stored: LayerBytes) -> None:
        self.several, self.serving, self.layout, self.stored = several, serving, layout, stored
        self.least = 1  # stages below which it is known not to fit
        self.too_large = set[tuple[int, ...]]()  # layers of a stage

    @cached_property
    def workload(self) -> Workload:
        """Requests of one of its copies."""
        return self.several.workload.of_copy(self.layout.dp)

    @cached_property
    def whole(self) -> Serving:
        """One with all layers of a copy on one stage."""
        return self.serving.spread(self.layout)

    @cached_property
    def working(self) -> int | None:
        """Bytes that the engine finds a layer to take on a rank, of those that take least; None where it does not start
        with such a rank: it looks at attention, not at experts."""
        several, engine = self.several, self.serving.engine
        weighing, limits = several.alone.ranks.of(self.layout), several.starts[0][0]
        if any(engine.refusals(Question(laid_out=weighing.unweighed, gpu=several.gpu))):
            return None
        return 0 if limits.share is None else weighing.least_working(engine, limits)

    @cached_property
    def least_stages(self) -> int:
        """Pipeline stages that must be for all weights and the cache to be held; with no number of them where a layer's
        working memory alone has no room, which some stage needs, flags state too few blocks, or the engine refuses the
        request, whose limits no number of stages changes. Bytes that flags state for the cache are set aside on each,
        and those of all stages hold all layers' part of the requests."""
        several, (stage,) = self.several, self.whole.laid_out.stages
        whole, work, cached, each, least = self.whole.on(several.gpu, several.workload), self.workload, 0, 0, 1
        pool = whole.requirements.pool
        if whole.request_refusal is not None:
            return UNBOUNDED
        if several.starts[0][0].share is None:
            peak = whole.requirements.stage(0, work).memory
            cached = peak.kv_cache
            if peak.activations > several.room(HIGH):
                return UNBOUNDED
        if pool is not None:
            cached, each = pool.least_bytes(0, work.batch, work.context), pool.on_each_stage()
            stated, to_start = pool.stated_blocks, pool.least_blocks(whole.limits.sequences)
            if stated is not None and (
                pool.concurrency(stated, work.context) < work.batch
                or pool.usable_blocks(stated) < pool.request_blocks(work.context)
                or stated < to_start
            ):
                return UNBOUNDED
            if stated is None and (budget := pool.stated_bytes(0)) is not None:
                least, cached, each = -(-max(cached, pool.bytes_of(0, to_start)) // budget), budget, budget
        if (room := several.room(MIDDLE) - each) <= 0:
            return UNBOUNDED
        return max(least, -(-(stage.weights + stage.vision + cached - each) // room))

    def kinds_of(self, stages: int) -> list[tuple[int, ...]]:
        """Kinds of the layers of each stage: layers that weigh the same on one GPU do on a rank of any shape."""
        alone = self.several.alone
        return alone.weighing.kinds_of(alone.ranks.ranges_of(stages))

    def is_known_not_to_fit(self, stages: int) -> bool:
        """Whether fewer stages had one that is too large and is there again."""
        return bool(self.too_large) and not self.too_large.isdisjoint(self.kinds_of(stages))

    def fits(self, stages: int) -> bool:
        """Whether it fits on so many pipeline stages."""
        for crowded in self.crowded(stages, self.serving.ranks.ranges_of(stages)):
            if crowded is not None:
                kinds = self.kinds_of(stages)
                self.too_large.update(kinds[stage] for stage in crowded)
                return False
        return True

    def crowded(self, stages: int, ranges: Sequence[range]) -> Iterator[Sequence[int] | None]:
        """Pipeline stages, of so many, that have no room, whatever number of others is beside them: none of them
        where all together do not fit, None where they do. What costs least to know is looked at first."""
        several, layout = self.several, self.layout.model_copy(update={"pp": stages})
        limits = self.serving.engine.limits(self.workload, several.gpu, self.serving.architecture, layout)
        if limits.share is not None and limits.share <= 0:  # SGLang sets more aside for each GPU of a pipeline
            self.least = UNBOUNDED if stages > 1 else 2
            yield ()
        yield several.crowded(self.stored, ranges)
        if (taken := self.working) is None:
            self.least = UNBOUNDED
            yield ()
            return
        yield several.crowded(self.stored, ranges, taken)
        self.least = self.least_stages
        if self.least > stages:
            yield ()
        if limits.share is not None:
            yield self.crowded_with_cache(layout, limits, ranges)
        laid_out = self.serving.spread(layout).on(several.gpu, several.workload)
        if not laid_out.surely_fits:
            yield self.crowded_at_start(laid_out, ranges) or self.crowded_at_peak(laid_out) or ()

    def crowded_with_cache(self, layout: Layout, limits: Limits, stages: Sequence[range]) -> list[int] | None:
        """Stages whose weights, working memory and share of the cache have no room, where that is known before the
        stages are laid out and set aside out of what is left; None where all have. Only of the longest it is known
        that they have none beside more others: an engine may take more on each GPU, the more layers are on one."""
        several, engine, weighing, work = self.several, self.serving.engine, self.whole.weighing, self.workload
        laid_out = replace(self.whole.laid_out, stages=(), ranges=tuple(stages), layout=layout)
        pool = engine.cache(laid_out, several.gpu, limits) if engine.plans_by_ranges else None
        adds_up, caches = True, [(HIGH, [0] * len(stages))]
        if isinstance(pool, Pool):
            request, numbers = pool.request_blocks(work.context), range(len(stages))
            adds_up = pool.adds_up
            to_start = max(pool.least_blocks(limits.sequences), request)
            if several.states_cache:  # whatever there is room for
                stated = [pool.stated_bytes(stage) or 0 for stage in numbers]
                if pool.blocks(stated) < max(to_start, work.batch * request):
                    return []
                caches = [(HIGH, stated)]
            else:
                counts = (HIGH, to_start), (MIDDLE, work.batch * request)
                caches = [(end, [pool.bytes_of(stage, blocks) for stage in numbers]) for end, blocks in counts]
        overhead = self.serving.overhead.sizes(engine.overhead_on(several.gpu, laid_out, limits), 0)
        weights = on_each(weighing.loaded, stages)
        working = weighing.working_each(engine, limits, stages)
        longest = max(map(len, stages))
        for end, cache in caches:
            outside = at_end(overhead, end)
            needs = [*zip(map(add, weights, cache), working, strict=True)]
            left = {taken: several.left(taken, limits, outside) for taken in set(working)}
            lacking = {need for need in set(needs) if need[0] > left[need[1]][0]}
            if lacking and adds_up:
                return [i for i, need in enumerate(needs) if need in lacking and len(stages[i]) == longest]
            if lacking or not all(starts for _, starts in left.values()):
                return []
        return None

    def crowded_at_start(self, laid_out: Allocation, stages: Sequence[range]) -> list[int] | None:
        """The longest stages whose share of the GPU leaves less than their part of the cache; more others leave no more
        (`crowded_with_cache`). None where none is known."""
        pool, work, longest = laid_out.requirements.pool, laid_out.workload, max(map(len, stages))
        if pool is None or not pool.adds_up or not laid_out.sets_aside or laid_out.refusal is not None:
            return None
        blocks, budgets = work.batch * pool.request_blocks(work.context), laid_out.room(MIDDLE).budgets
        return [
            i
            for i, (stage, budget) in enumerate(zip(stages, budgets, strict=True))
            if pool.bytes_of(i, blocks) > budget.cache and len(stage) == longest
        ] or None

    def crowded_at_peak(self, laid_out: Allocation) -> list[int] | None:
        """Stages in the middle that have no room on a GPU, where an engine takes memory as it goes: with any number of
        stages beside it such a one takes as much. None where none is known."""
        usable, middle = self.several.gpu.usable_bytes, range(1, len(laid_out.serving.laid_out.stages) - 1)
        if not middle or laid_out.sets_aside or laid_out.refusal is not None or laid_out.least_memory(HIGH) > usable:
            return None
        return [stage for stage in middle if laid_out.stages[stage].memory.high > usable] or None


class Several:
    """Most that each of several GPUs of a kind has room for."""

    def __init__(self, gpu: GPU, alone: Serving, workload: Workload) -> None:
        self.gpu, self.alone, self.workload = gpu, alone, workload
        self.rooms = dict[tuple[int, int], int]()
        engine, architecture = alone.engine, alone.architecture
        self.starts: list[tuple[Limits, OverheadSizes]] = [
            (
                engine.limits(workload, gpu, architecture, layout),
                alone.overhead.sizes(engine.overhead(layout.gpus), 0),
            )
            for layout in TWO
        ]
        """Limits and overhead on each of two GPUs: no engine leaves more on each of more than two."""
        limits = self.starts[0][0]
        peak = None if limits.share is None else alone.weighing.peaks_of(engine, limits, last=True).behind
        self.sampling = 0 if peak is None else int(peak.bytes)
        """Bytes that the engine finds to be taken behind the layers."""
        pool = alone.on(gpu, workload).requirements.pool
        self.states_cache = pool is not None and pool.stated_bytes(0) is not None
        """Whether flags say how large the cache is, whatever the GPU has left."""

    @property
    def never_start(self) -> bool:
        """Whether the engine starts on no number of GPUs, with nothing on them and no CUDA graphs: it lacks something
        beside a share of each that is as large whatever their number."""
        limits = [limits for limits, _ in self.starts]
        engine, alone = self.alone.engine, self.alone
        more = engine.limits(self.workload, self.gpu, alone.architecture, Layout(pp=3))
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
        stages = self.alone.ranks.ranges_of(self.alone.architecture.num_layers)
        return sum(len(stage) > 0 or stage.start > 0 for stage in stages)  # the output alone is behind the last layer

    def room(self, end: int, working: int = 0) -> int:
        """Bytes for weights and cache at most, given so much working memory and this end of the overhead."""
        if (end, working) not in self.rooms:
            self.rooms[end, working] = max(
                self.left(working, limits, at_end(overhead, end if limits.share is None else LOW))[0]
                for limits, overhead in self.starts  # each layout has a range of its own
            )
        return self.rooms[end, working]

    def left(self, working: int, limits: Limits, overhead: Mapping[OverheadItem, int]) -> tuple[int, bool]:
        """Bytes for weights and cache at most, whether the share of the GPU is this or a smaller one, and whether the
        engine starts with this one: what it lacks a smaller share leaves, and SGLang takes a smaller one the more GPUs
        there are."""
        usable, engine = self.gpu.usable_bytes, self.alone.engine
        if limits.share is None:
            return usable - sum(overhead.values()), True
        if self.states_cache:
            return usable - working - sum(overhead.values()), True
        budget = engine.budget(limits, GPUAtStart(usable, 0, working, None, overhead))
        return int((budget.cache - budget.shortage) / engine.cache_share), not budget.shortage

    def least_stages(self, stored: LayerBytes) -> int:
        """Pipeline stages that must be for all layers to be held."""
        room = self.room(HIGH)
        return max(1, -(-stored.layers[-1] // room)) if room > 0 else UNBOUNDED

    def crowded(self, layer_bytes: LayerBytes, stages: Sequence[range], working: int = 0) -> list[int] | None:
        """Stages whose weights, and so much working memory on each, have no room; None where all have."""
        last = self.room(HIGH, max(working, self.sampling))
        rooms = [*[self.room(HIGH, working)] * (len(stages) - 1), last]
        needs = enumerate(zip(on_each(layer_bytes, stages), rooms, strict=True))
        return [stage for stage, (need, room) in needs if need > room] or None


def on_each(layer_bytes: LayerBytes, stages: Sequence[range]) -> list[int]:
    """Bytes of each stage: of its layers, of what stands before or behind them, and else on each stage."""
    upto = [layer_bytes.layers[stage.stop] for stage in stages]
    each = [nbytes + layer_bytes.everywhere for nbytes in map(sub, upto, [0, *upto])]
    if len(each) == 1:  # a tied head is the embedding, once
        return [each[0] + max(layer_bytes.before, layer_bytes.behind)]
    each[0] += layer_bytes.before
    each[-1] += layer_bytes.behind
    return each
