"""The fewest equal GPUs on which a model fits, and its layout there."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush

from calc.hardware.gpu import GPU
from calc.hardware.overhead import HIGH, MIDDLE, at_end
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within
from calc.serving.engines.engine import LoadedWeights, Stage
from calc.serving.memory import Serving
from calc.serving.weighing import LayerBytes
from calc.serving.workload import Workload

MOST_GPUS = 1024
UNBOUNDED = 2**62
"""Stages, where no number of them would do."""


def fewest_gpus(gpu: GPU, serving: Serving, workload: Workload) -> Layout | None:
    """The layout on the fewest equal GPUs on which it fits; of equal numbers, the one with fewer copies and stages, and
    with whole experts. Each number of stages is tried, since more may fit worse: layers do not divide evenly, and each
    stage has a step in flight. What cannot hold its weights is not laid out."""
    alone = serving.with_layout(Layout())
    if alone.on(gpu, workload).surely_fits:
        return alone.layout
    several, layers = Several(gpu, alone, workload), serving.architecture.num_layers
    known: dict[Layout, tuple[int, int]] = {}  # of a shape, the least stages and the least working memory
    waiting: list[tuple[int, int, int, int, int]] = []  # the best before the others

    def wait(number: int, stages: int) -> None:
        shape = serving.shapes[number]
        if stages <= min(layers, MOST_GPUS // shape.gpus):
            heappush(waiting, (shape.gpus * stages, shape.dp, -shape.tp, -number, stages))

    for number, shape in enumerate(serving.shapes):
        wait(number, several.least_stages(alone.weighing.divided(shape)))
    while waiting:
        *_, negative, stages = heappop(waiting)
        shape, ranges = serving.shapes[-negative], serving.ranges_of(stages)
        if several.hold(alone.weighing.divided(shape), ranges):
            if several.refuse(shape):
                continue
            if several.hold(alone.weighing_of(shape).stored, ranges):
                whole = serving.spread(shape)
                if shape not in known:
                    known[shape] = several.least_stages_with_cache(whole), several.working(whole)
                first, working = known[shape]
                if first > stages:
                    wait(-negative, first)
                    continue
                if several.hold(whole.weighing.loaded, ranges, working):
                    laid_out = serving.spread(shape.model_copy(update={"pp": stages}))
                    if laid_out.on(gpu, workload).surely_fits:
                        return laid_out.layout
        wait(-negative, stages + 1)
    return None


class Several:
    """What each of several GPUs of a kind has room for at most."""

    def __init__(self, gpu: GPU, alone: Serving, workload: Workload) -> None:
        self.gpu, self.alone, self.workload = gpu, alone, workload
        self.found = dict[int, int]()

    def room(self, end: int, working: int = 0) -> int:
        """Bytes for weights and cache, beside so much working memory and this end of the overhead: no engine leaves
        more on each of more than two GPUs."""
        engine, gpu, found = self.alone.engine, self.gpu, []
        for layout in (Layout(tp=2), Layout(pp=2)):
            limits = engine.limits(self.workload, gpu, self.alone.architecture, layout)
            taken = at_end(self.alone.overhead.sizes(engine.overhead(layout.gpus), 0), end)
            if limits.share is None:
                found.append(gpu.usable_bytes - sum(taken.values()))
            else:
                found.append(engine.budget(gpu.usable_bytes, limits, 0, working, taken, None).cache)
        return max(found)

    def surely(self, working: int) -> int:
        """Room in a stage beside so much working memory."""
        if working not in self.found:
            self.found[working] = self.room(HIGH, working)
        return self.found[working]

    @cached_property
    def sampling(self) -> int:
        """Bytes that the engine finds to be taken behind the layers."""
        behind = Stage((), 0, 0, first=False, last=True, loaded=LoadedWeights())
        return self.most_working(self.alone, behind)

    def working(self, whole: Serving) -> int:
        """Bytes that the engine finds a layer to take, of those that take least."""
        layers = (blocks_within(whole.laid_out.rank, layer) for _, layer in whole.weighing.of_kind)
        alone = (Stage(tuple(blocks), 0, 0, first=False, last=False, loaded=LoadedWeights()) for blocks in layers)
        return min(self.most_working(whole, stage) for stage in alone)

    def most_working(self, serving: Serving, stage: Stage) -> int:
        found = serving.on(self.gpu, self.workload)
        if not found.sets_aside:
            return 0
        peaks = serving.engine.peaks(replace(serving.laid_out, stages=(stage,)), 0, found.limits)
        return max((int(peak.bytes) for peak in peaks), default=0)

    @cached_property
    def usually(self) -> int:
        return self.room(MIDDLE)

    def least_stages(self, stored: LayerBytes) -> int:
        """Pipeline stages that must be for all layers to be held."""
        return max(1, -(-stored.layers[-1] // self.surely(0))) if self.surely(0) > 0 else UNBOUNDED

    def refuse(self, shape: Layout) -> bool:
        """Whether the engine does not start on them with such a rank."""
        alone, rank = self.alone, self.alone.weighing_of(shape).rank
        return alone.engine.refused_on(self.gpu, rank, alone.precision, shape) is not None

    def least_stages_with_cache(self, serving: Serving) -> int:
        """Pipeline stages that must be for all weights and the cache to be held."""
        whole, (stage,) = serving.on(self.gpu, self.workload), serving.laid_out.stages
        held = stage.weights + stage.vision + whole.needs.peak(0, whole.workload).cache
        return max(1, -(-held // self.usually))

    def hold(self, stored: LayerBytes, stages: Sequence[range], working: int = 0) -> bool:
        """Whether they have room for the weights of so many pipeline stages, beside so much working memory on each."""
        within = [stored.layers[stage.stop] - stored.layers[stage.start] for stage in stages]
        last = within[-1] + stored.behind + stored.beside
        other = max(*within, within[0] + stored.before) + stored.beside
        return other <= self.surely(working) and last <= self.surely(max(working, self.sampling))
