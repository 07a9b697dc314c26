"""Memory of a training step, on one GPU: weights and what belongs to them, activations, logits, overhead."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from math import sqrt

from calc.errors import Message
from calc.formats import FORMATS, Precision
from calc.formats.stored import stored
from calc.hardware.overhead import CUDA_CONTEXT, FRAGMENTATION, Overhead, OverheadItem, Range, bounds, libraries, sizes
from calc.hardware.shards import blocks_within, layer_kinds
from calc.hardware.solver import largest_near
from calc.model.architecture import Architecture
from calc.serving.gpu_memory import Memory
from calc.training.autograd import Bytes
from calc.training.course import Course
from calc.training.modules import Settings
from calc.training.moments import Phase, StepMoment, TrainingComponent
from calc.training.parts import Line, Part, dot, lines_of, parts_of
from calc.training.passes import Passes, settings_of
from calc.training.peft import trained_of
from calc.training.recipe import Recipe
from calc.training.sharding import TrainingLayout
from calc.training.stage import TrainingStage
from calc.training.states import StageWeights, States, stage_weights, states_of
from calc.training.training_workload import TrainingWorkload

PHASES: tuple[Phase, ...] = ("after_init", "forward", "loss", "backward", "optimizer", "after_step")


def usual_overhead(gpus: int) -> dict[OverheadItem, Range]:
    """GiB of what no formula closes, and per cent for fragmentation."""
    return {"cuda_context": CUDA_CONTEXT, "libraries": libraries(gpus), "fragmentation": FRAGMENTATION}


class TrainingMemory(Memory):
    """Bytes on the most loaded GPU, at the peak of a step, whose parts add up to `total`."""

    kv_cache: int = 0
    master_weights: int
    gradients: int
    optimizer: int
    logits: int  # with the loss and their gradients
    temporaries: int  # of the optimizer, and gradients that are added to others at once
    moment: Phase

    @property
    def parts(self) -> dict[Message, int]:
        """The same of a step."""
        return {
            Message("weights"): self.weights,
            Message("master weights"): self.master_weights,
            Message("gradients"): self.gradients,
            Message("optimizer states"): self.optimizer,
            Message("activations"): self.activations,
            Message("logits"): self.logits,
            Message("temporaries"): self.temporaries,
        }


class Shared:
    """The steps of one model that were asked about, and what they have in common."""

    def __init__(self) -> None:
        self.steps = dict[tuple[TrainingWorkload, Recipe, TrainingLayout, Precision], Training]()
        self.passes = dict[tuple[int, TrainingWorkload, Settings], Passes]()
        self.rooms = dict[tuple[int, int], int]()
        self.courses = dict[tuple[object, ...], Course]()
        self.kinds = dict[tuple[int, int, Precision], list[tuple[object, ...]]]()
        self.weights = dict[tuple[range, int, int, bool, Precision, TrainingWorkload], StageWeights]()


class Training:
    """A model, a step and how both are laid out, ready to be weighed at any micro-batch and sequence."""

    def __init__(
        self,
        architecture: Architecture,
        work: TrainingWorkload,
        recipe: Recipe,
        layout: TrainingLayout,
        overhead: Overhead,
        frozen: Precision,
        shared: "Shared | None" = None,
    ) -> None:
        layout.check(architecture)
        self.architecture = architecture
        self.work, self.recipe, self.layout, self.overhead, self.frozen = work, recipe, layout, overhead, frozen
        self.rank = architecture.rank(layout.tp)
        self.stages = list(layout.stages(architecture.num_layers))
        self.shared = shared or Shared()
        self.shared.steps[work, recipe, layout, frozen] = self
        self.built = dict[tuple[int, bool], TrainingStage]()
        self.described = dict[StepMoment, tuple[list[Line], dict[TrainingComponent, Bytes]]]()
        same_weights = layout.tp, layout.pp, frozen
        if same_weights not in self.shared.kinds:
            self.shared.kinds[same_weights] = self._kinds()
        kinds = self.shared.kinds[same_weights]
        self.alike = [kinds.index(kind) for kind in kinds]  # the first stage that weighs the same but for what waits
        self.states: dict[int, States] = {index: self._states(self.stages[index]) for index in set(self.alike)}

    def _kinds(self) -> list[tuple[object, ...]]:
        """What stands in each stage; equal where stages weigh the same but for the micro-batches in flight."""
        layers, weights = self.rank.num_layers, (piece.tensor for piece in stored(self.rank, self.frozen))
        places = [block.runs_in for block in self.rank.all_blocks]
        places += [tensor.layers for tensor in weights if tensor.excluded_as is None]
        kinds = layer_kinds(layers, places)
        return [
            (stage.start == 0, stage.stop == layers, *sorted(kinds[stage.start : stage.stop])) for stage in self.stages
        ]

    def _states(self, stage: range) -> States:
        layout = self.layout
        key = stage, layout.tp, layout.ep, layout.separate_embedding, self.frozen, self.work
        if key not in self.shared.weights:
            self.shared.weights[key] = stage_weights(self.rank, stage, self.layout, self.frozen, self.work)
        return states_of(self.shared.weights[key], self.work, self.recipe, self.layout)

    def _passes(self, *, single: bool) -> Passes:
        bits = FORMATS[self.frozen.weights].bits if self.frozen.weights in FORMATS else 8
        settings = settings_of(self.rank, self.work, self.recipe, self.layout, bits, single=single)
        key = self.layout.tp, self.work, settings
        if key not in self.shared.passes:
            self.shared.passes[key] = Passes(self.rank, self.work, settings)
        return self.shared.passes[key]

    def stage(self, index: int, *, single: bool) -> TrainingStage:
        """One rank of a stage, for one sequence or for several. With 1F1B, stage i holds min(micro-batches, p - i) of
        them in flight (arXiv:2104.04473 section 2.2)."""
        if (index, single) not in self.built:
            states = self.states[self.alike[index]]
            course = self._course(self.stages[index], states, self._passes(single=single))
            flight = min(self.work.accumulation, self.layout.pp - index)
            step = self.work, self.recipe, self.layout
            self.built[index, single] = TrainingStage(self.rank, course, states, *step, flight)
        return self.built[index, single]

    def _course(self, stage: range, states: States, passes: Passes) -> Course:
        """A micro-batch's, the same however weights are divided over replicas, unless FSDP gathers them."""
        layout = self.layout
        spread = layout if layout.gathered_by_fsdp(self.recipe) else (layout.ep, layout.separate_embedding)
        key = passes, stage, self.frozen, self.recipe, spread
        if key not in self.shared.courses:
            self.shared.courses[key] = Course(
                self.rank,
                passes,
                blocks_within(self.rank, stage),
                states.units,
                states.gradient_width,
                self.work,
                self.recipe,
                layout,
                first=stage.start == 0,
                last=stage.stop == self.rank.num_layers,
            )
        return self.shared.courses[key]

    def changed(
        self,
        work: TrainingWorkload | None = None,
        recipe: Recipe | None = None,
        layout: TrainingLayout | None = None,
        frozen: Precision | None = None,
    ) -> "Training":
        """The same model in another step, or on other GPUs; made once for all that are asked about. Raises ConfigError
        where it can't be laid out so."""
        key = work or self.work, recipe or self.recipe, layout or self.layout, frozen or self.frozen
        if key not in self.shared.steps:
            work, recipe, layout, frozen = key
            Training(self.architecture, work, recipe, layout, self.overhead, frozen, self.shared)
        return self.shared.steps[key]

    def trained_parameters(self) -> int:
        """Weights that the step updates, on however many GPUs."""
        tensors = [tensor for tensor in self.architecture.tensors() if tensor.excluded_as is None]
        return sum(one.parameters for tensor in tensors for one in trained_of(self.architecture, tensor, self.work))

    def units(self, micro_batch: int, sequence: int) -> Bytes:
        """How many there are of what sizes are counted by."""
        positions = -(-sequence // self.layout.cp)
        tokens = micro_batch * positions
        shards = self.layout.tp if self.layout.sequence_parallel else 1
        return 1, positions, tokens, -(-tokens // shards), tokens * sequence

    def memory(self, **change: int) -> TrainingMemory:
        """Bytes on the most loaded GPU, with another `micro_batch` or `sequence` where they are given. Of equal stages
        the first is the most loaded, for it holds most micro-batches."""
        return max((self._memory(index, **change) for index in self.firsts), key=lambda memory: memory.total)

    def held(self, *, single: bool) -> list[Bytes]:
        """Bytes by units of every moment at which some GPU may peak, for one sequence or for several."""
        return [
            moment.bytes
            for index in self.firsts
            for moments in self.stage(index, single=single).moments.values()
            for moment in moments
        ]

    def room(self, usable: int) -> int:
        """The most bytes that may be held beside the overhead at the high end of its range; below zero where that alone
        is too much."""
        key = self.layout.gpus, usable
        if key not in self.shared.rooms:
            self.shared.rooms[key] = room(self.overhead, *key)
        return self.shared.rooms[key]

    def most_sequences(self, usable: int, most: int) -> int:
        """The largest micro-batch of this length, up to `most`, that fits even at the high end of the overhead."""
        room, sequence = self.room(usable), self.work.sequence
        several = least_of(self.held(single=False), lambda n: self.units(n, sequence), room, most)
        if several == most:
            return most
        units = self.units(1, sequence)
        return max(1, several) if all(dot(one, units) <= room for one in self.held(single=True)) else 0

    def most_tokens(self, usable: int, most: int) -> int:
        """The same of the tokens of a sequence, at this micro-batch."""
        batch = self.work.micro_batch
        moments = self.held(single=batch == 1)
        return least_of(moments, lambda n: self.units(batch, n), self.room(usable), most)

    def fits(self, usable: int) -> bool:
        """Whether it does as it is, even at the high end of the overhead."""
        units = self.units(self.work.micro_batch, self.work.sequence)
        return max(stage.peak_bytes(units) for stage in self.different) <= self.room(usable)

    @property
    def different(self) -> list[TrainingStage]:
        """The stages that do not weigh the same, for this micro-batch."""
        return [self.stage(index, single=self.work.micro_batch == 1) for index in self.firsts]

    def least_replicas(self, usable: int, many: "Training") -> int:
        """Replicas that must be where this one does not fit and as many as those do: more divide what belongs to the
        weights, and hold no more beside it than those."""
        units, room = self.units(self.work.micro_batch, self.work.sequence), many.room(usable)
        stages = zip(self.different, many.different, strict=True)
        return max(-(-one.divided // max(1, room - other.passing(units) + other.divided)) for one, other in stages)

    @cached_property
    def firsts(self) -> list[int]:
        return sorted(set(self.alike))

    def by_stage(self) -> list[TrainingMemory]:
        """The same on a GPU of each pipeline stage."""
        return [self._memory(index) for index in range(len(self.stages))]

    def phases(self, units: Bytes | None = None) -> dict[Phase, tuple[Part, ...]]:
        """What is alive on the most loaded GPU at the peak of each phase, by name. `units` are those of the
        batch, where they are traced."""
        units = units or self.units(self.work.micro_batch, self.work.sequence)
        return {phase: parts_of(self._lines(moment)[0], units) for phase, moment in self._peak_moments(units).items()}

    def by_phase(self) -> dict[Phase, TrainingMemory]:
        """Bytes on the most loaded GPU at the peak of each phase."""
        units = self.units(self.work.micro_batch, self.work.sequence)
        return {phase: self._weighed(moment, units) for phase, moment in self._peak_moments(units).items()}

    def _peak_moments(self, units: Bytes) -> dict[Phase, StepMoment]:
        """The peak of each phase on the most loaded GPU."""
        index = max(self.firsts, key=lambda index: self._memory(index).total)
        moments = self.stage(index, single=self.work.micro_batch == 1).moments
        return {
            phase: max(moments[phase], key=lambda one: dot(one.bytes, units)) for phase in PHASES if phase in moments
        }

    def _memory(self, index: int, micro_batch: int | None = None, sequence: int | None = None) -> TrainingMemory:
        """The peak of one stage."""
        micro_batch, sequence = micro_batch or self.work.micro_batch, sequence or self.work.sequence
        units = self.units(micro_batch, sequence)
        moments = chain.from_iterable(self.stage(index, single=micro_batch == 1).moments.values())
        return self._weighed(max(moments, key=lambda moment: dot(moment.bytes, units)), units)

    def _weighed(self, moment: StepMoment, units: Bytes) -> TrainingMemory:
        """What is there at a moment, with the overhead."""
        held = dot(moment.bytes, units)
        components = {name: dot(nbytes, units) for name, nbytes in self._lines(moment)[1].items()}
        low, high = bounds(self.overhead.sizes(usual_overhead(self.layout.gpus), held))
        return TrainingMemory(
            weights=components.get("weights", 0),
            master_weights=components.get("master_weights", 0),
            gradients=components.get("gradients", 0),
            optimizer=components.get("optimizer", 0),
            activations=components.get("activations", 0),
            logits=components.get("logits", 0),
            temporaries=components.get("temporaries", 0),
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=held + (low + high) // 2,
            moment=moment.phase,
        )

    def _lines(self, moment: StepMoment) -> tuple[list[Line], dict[TrainingComponent, Bytes]]:
        """What is alive at a moment, and how much of each component."""
        if moment not in self.described:
            lines = lines_of(moment)
            components: dict[TrainingComponent, Bytes] = {}
            for line in lines:
                so_far = components.get(line.component, (0,) * len(line.bytes))
                components[line.component] = tuple(a + b for a, b in zip(so_far, line.bytes, strict=True))
            self.described[moment] = lines, components
        return self.described[moment]


def room(overhead: Overhead, gpus: int, usable: int) -> int:
    """The most bytes that a GPU, one of so many, may hold beside its overhead at the high end of its range; below zero
    where that alone is too much."""
    ranges = overhead.ranges(usual_overhead(gpus))

    def high(held: int) -> int:
        return held + bounds(sizes(ranges, held))[1]

    alone = high(0)
    if alone > usable:
        return -1
    share = (high(usable) - alone) / usable
    return largest_near(lambda held: high(held) <= usable, usable, int((usable - alone) / share))


def least_of(moments: Sequence[Bytes], units: Callable[[int], Bytes], room: int, most: int) -> int:
    """The largest size, up to `most`, at which no moment holds more than there is room for. None holds less at a larger
    size, so the peak at a size that is too large says which is the largest for itself, and so on."""
    while most:
        there = units(most)
        peak = max(moments, key=lambda moment: dot(moment, there))
        if dot(peak, there) <= room:
            break

        def held(size: int, moment: Bytes = peak) -> int:
            return dot(moment, units(size))

        most = largest_near(lambda size: held(size) <= room, most, near(held, room, most))
    return most


def near(held: Callable[[int], int], room: int, most: int) -> int:
    """About where a size without ceilings would hold as much as there is room for."""
    wide = 2**20
    start, half, end = held(0), held(wide // 2), held(wide)
    square = 2 * (end - 2 * half + start) / wide**2
    slope = (end - start) / wide - square * wide
    if square <= 0:
        size = (room - start) / slope if slope > 0 else most
    else:
        size = (sqrt(max(0, slope**2 + 4 * square * (room - start))) - slope) / (2 * square)
    return min(max(1, int(size)), most)
