"""Memory of a training step, on one GPU: weights and what belongs to them, activations, logits, overhead."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.formats.stored import stored
from calc.hardware.gpu import GPU
from calc.hardware.mig import slice_notes, unjoined
from calc.hardware.overhead import (
    CUDA_CONTEXT,
    FRAGMENTATION,
    OverheadItem,
    Range,
    bounds,
    left_for_overhead,
    libraries,
    sizes,
)
from calc.hardware.shards import alike_pieces, alike_stages
from calc.hardware.solver import largest_near
from calc.model.architecture import Architecture
from calc.model.tensor import Tensor
from calc.serving.fewest import MOST_GPUS
from calc.serving.memory import Memory
from calc.serving.verdict import VerdictWord
from calc.training.course import (
    Course,
    Part,
    Phase,
    QuietCourse,
    StepPeak,
    Tensors,
    TrainingComponent,
    TrainingStage,
    dot,
    fixed,
    parts_of,
)
from calc.training.decoder import Passes, Shared, check_modelled, quiet, settings_of
from calc.training.layout import TrainingLayout, TrainingScenario
from calc.training.losses import transformers_head
from calc.training.methods import METHODS, VALUE, TrainingMethod, check_teacher, resolved, scored_units
from calc.training.modules import Settings
from calc.training.states import OUTSIDE, StageWeights, plain_experts, stage_weights, states_of, trained_of
from calc.training.tape import Bytes, CountedBy
from calc.training.workload import WIDTH, TrainingWorkload
from calc.units import GIB

PHASES: tuple[Phase, ...] = ("after_init", "reference", "forward", "loss", "backward", "optimizer", "after_step")

PARTS: dict[TrainingComponent, Message] = {
    "weights": Message("weights"),
    "master_weights": Message("master weights"),
    "gradients": Message("gradients"),
    "optimizer": Message("optimizer states"),
    "activations": Message("activations"),
    "logits": Message("logits"),
    "temporaries": Message("temporaries"),
}


def usual_overhead(gpus: int) -> dict[OverheadItem, Range]:
    """GiB of what no formula closes, and per cent for fragmentation."""
    return {"cuda_context": CUDA_CONTEXT, "libraries": libraries(gpus), "fragmentation": FRAGMENTATION}


class TrainingMemory(Memory):
    """Bytes on the GPU with the most memory in use, at the peak of a step, whose parts add up to `total`."""

    kv_cache: int = 0
    master_weights: int
    gradients: int
    optimizer: int
    logits: int  # with the loss and their gradients
    temporaries: int  # of the optimizer, and gradients that are added to others at once
    moment: Phase

    @property
    def parts(self) -> dict[Message, int]:
        return {part: getattr(self, component) for component, part in PARTS.items()}


def highest_peak(peaks: list[StepPeak]) -> StepPeak:
    """The first peak with most bytes."""
    return max(peaks, key=lambda peak: peak.size)


class Required(NamedTuple):
    """Bytes on the most loaded GPU at the peak of a step, with the overhead over its range."""

    low: int
    total: int
    high: int


class Training:
    """A model, a step and how both are laid out, ready to be weighed at any micro-batch and sequence. Beside the
    policy a loss may train a value model, and run a teacher."""

    def __init__(
        self,
        architecture: Architecture,
        scenario: TrainingScenario,
        shared: Shared | None = None,
        *,
        role: Literal["policy", "value", "teacher"] = "policy",
    ) -> None:
        if shared is None:  # whose steps are all of one model
            check_modelled(architecture)
        self.base, objective = architecture, scenario.objective
        self.method: TrainingMethod | None = None
        work, recipe, layout = scenario.workload, scenario.recipe, scenario.layout
        if objective is not None:
            objective = resolved(objective, work, layout)
            check_teacher(objective, architecture)
            self.method = VALUE if role == "value" else METHODS[objective.method]
            architecture = self.method.model(architecture)
        layout.check(architecture)
        scenario.check_schedule()
        self.architecture, self.work, self.recipe, self.layout = architecture, work, recipe, layout
        self.overhead, self.frozen, self.objective = scenario.overhead, scenario.frozen, objective
        self.scenario = scenario.model_copy(update={"objective": objective, "colocation": None})
        trains_value = self.method is not None and self.method.values
        self.value = Training(self.base, self.scenario, role="value") if trains_value else None
        """The value model's own step, where one is trained with the policy."""
        self.teacher = self._teacher() if role == "policy" else None
        if shared is None:
            shared = Shared()
            shared.once(("step", self.scenario), lambda: self)
        self.shared = shared
        cut = layout.tp, layout.slices
        self.rank = self.shared.once(("rank", *cut), lambda: architecture.rank(*cut))
        self.chunk = self.shared.once(("chunk", *cut), lambda: self.rank.chunk)
        self.built = dict[tuple[int, bool], TrainingStage]()
        self.alike_pieces = self.shared.once(("alike", *cut, layout.pp, layout.vp, self.frozen), self._alike_pieces)
        """First equal piece, for each piece of the model."""
        self.alike = alike_stages(self.alike_pieces, layout.pp)
        """First equal stage, for each stage, but for the micro-batches in flight."""
        self.unlike = sorted(set(self.alike))
        """The stages that do not weigh the same; of equal ones the first, for it holds most micro-batches."""
        self.size = self.units(work.micro_batch, work.sequence)
        """The batch by units."""
        self.overhead_ranges = self.overhead.ranges(usual_overhead(layout.gpus))
        self.fixed_overhead = bounds(sizes(self.overhead_ranges, 0))[1]
        """Bytes of overhead at the high end of its range, whatever is allocated."""

    def _teacher(self) -> "Training | None":
        """A step of the model whose distribution is learned, of which the passes without gradients run."""
        if self.objective is None or self.method is None or not self.method.teacher:
            return None
        work, recipe = self.work, self.recipe
        step = work if work.trains_base else TrainingWorkload(sequence=work.sequence, micro_batch=work.micro_batch)
        stored = recipe.model_copy(update={"weights": self.method.teacher_type or recipe.weights})
        scenario = self.scenario.model_copy(update={"workload": step, "recipe": stored, "frozen": Precision()})
        return Training(self.objective.teacher or self.base, scenario, role="teacher")

    # The stages of the pipeline

    def _alike_pieces(self) -> list[int]:
        pieces = self.layout.pieces(self.rank.num_layers)
        if len(pieces) == 1:
            return [0]
        return alike_pieces(self.rank, pieces, (piece.tensor for piece in stored(self.rank, self.frozen)))

    @property
    def laid_out_alike(self) -> bool:
        """Whether several sequences lie in memory as one does: flash attention copies none, recurrent layers do."""
        return self.work.attention == "flash" and not self.rank.recurrent

    def is_single(self, micro_batch: int) -> bool:
        """Whether a forward pass has one sequence; a pair has two."""
        return micro_batch * (1 if self.method is None else self.method.sequences) == 1

    def stage(self, index: int, *, single: bool) -> TrainingStage:
        """One rank of a stage, for one sequence or for several."""
        single = single or self.laid_out_alike
        if (index, single) not in self.built:
            weights = self._weights(self.alike[index])
            states = states_of(weights, self.scenario)
            if self.layout.cpu_offload:
                states = states.offloaded(self.recipe)
            kinds, passes = self.alike_pieces[index :: self.layout.pp], self._passes(self._settings(single=single))
            courses = tuple(self._course(weights, weights.pieces[kinds.index(kind)], passes) for kind in kinds)
            other = self.teacher or self
            passed = weights if other is self else other._weights(other.alike[index])
            quiet = tuple(other._quiet_courses(passed, single=single))
            reference = other._reference(passed)
            value = None if self.value is None else self.value.stage(index, single=single)
            if value is not None:
                nbytes = value.states.weights + value.states.frozen
                reference.append(Tensors(fixed(nbytes), "weights of the reward model", "weights"))
            self.built[index, single] = TrainingStage(
                courses, states, self.work, self.layout, index, self.shared, quiet, reference, value
            )
        return self.built[index, single]

    # What a method adds

    def _quiet_courses(self, weights: StageWeights, *, single: bool) -> Iterator[QuietCourse]:
        objective = self.objective
        if objective is None or self.method is None:
            return
        for by_policy, when, _ in self.method.passes(objective):
            passes = self._passes(quiet(self._settings(single=single), policy=by_policy))
            frozen = not by_policy and objective.reference == "model"
            own = frozen and self.layout.gathered_by_fsdp(self.recipe)
            if own:
                sharded, piece = objective.shards_reference, weights.pieces[0]
                layout = self.layout if sharded else TrainingLayout()
                course = Course(passes, weights, piece, self.work, self.recipe, layout, root_stays=sharded)
                yield QuietCourse(course, when, 0 if sharded else weights.gathered(self.recipe))
            else:
                ahead = 0
                if frozen and self.layout.fully_sharded and self.recipe.reuse:
                    # DeepSpeed's ZeRO-3 of a model that only runs forward: nothing of it is needed twice
                    columns = self.rank.d_embedding or self.rank.hidden
                    ahead = WIDTH[self.recipe.compute] * (self.rank.vocab * columns + self.recipe.prefetch)
                yield QuietCourse(self._course(weights, weights.pieces[0], passes), when, ahead=ahead)

    def _reference(self, weights: StageWeights) -> list[Tensors]:
        """A frozen copy of the model in the type of the policy's weights, sharded as those are. FSDP2 leaves the root
        of a model that is only run forward gathered."""
        objective = self.objective
        if objective is None or self.method is VALUE or objective.reference != "model":
            return []
        states = states_of(weights, self.scenario)
        copy = states.weights if self.work.trains_base else states.frozen
        whole = [Tensors(fixed(copy), "weights of the reference", "weights")]
        if self.layout.gathered_by_fsdp(self.recipe) and objective.shards_reference:
            root = WIDTH[self.recipe.compute] * weights.units()[OUTSIDE].gathered
            whole.append(Tensors(fixed(root), "gathered weights of the reference", "weights"))
        return whole

    def _weights(self, index: int) -> StageWeights:
        """Weights of a stage, equal for any number of replicas."""
        layout, work = self.layout, self.work
        adapters = None if work.trains_base else (work.lora_rank, work.lora_targets)
        plain = plain_experts(work, self.frozen)
        stage = layout.tp, layout.slices, layout.pp, layout.vp, index, layout.ep
        key = *stage, layout.separate_embedding, self.frozen, plain, adapters
        return self.shared.once(
            ("weights", *key),
            lambda: stage_weights(self.rank, layout.stages(self.rank.num_layers)[index], layout, self.frozen, work),
        )

    def _settings(self, *, single: bool) -> Settings:
        settings = settings_of(self.rank, self.scenario, single=single)
        reads_table = self.method is None or self.method.reads_table
        return settings if reads_table else replace(settings, reads_table=False)

    def _passes(self, settings: Settings) -> Passes:
        cut, objective = (self.layout.tp, self.layout.slices), self.objective
        loss = transformers_head if self.method is None else self.method.head
        return self.shared.once(
            ("passes", cut, settings, objective),
            lambda: Passes(self.rank, settings, loss, self.shared, cut, objective),
        )

    def _course(self, weights: StageWeights, piece: range, passes: Passes) -> Course:
        """A micro-batch's, the same however weights are divided over replicas, unless FSDP gathers them."""
        work, layout = self.work, self.layout
        gathered = (layout, work.accumulation) if layout.gathered_by_fsdp(self.recipe) else None
        key = "course", passes, weights, piece, self.recipe, work.recompute, work.offload_activations, gathered
        return self.shared.once(key, lambda: Course(passes, weights, piece, work, self.recipe, layout))

    def changed(self, **parts: Any) -> "Training":
        """A step of this model with other parts of the scenario, made once. Raises ConfigError where it can't be laid
        out so."""
        scenario = self.scenario.model_copy(update=parts)
        before, after = self.objective, scenario.objective
        if before is not None and after is not None and before.method != after.method:
            return Training(self.base, scenario)
        return self.shared.once(("step", scenario), lambda: Training(self.base, scenario, self.shared))

    @cached_property
    def trained(self) -> list[Tensor]:
        """Tensors that the step updates, on however many GPUs."""
        model, work = self.architecture, self.work
        tensors = [tensor for tensor in model.tensors() if tensor.excluded_as is None]
        return tensors if work.trains_base else [part for each in tensors for part in trained_of(model, each, work)]

    @cached_property
    def parameters(self) -> int:
        """Elements of those, each once."""
        if self.work.trains_base:
            return self.architecture.parameters().total
        return sum(tensor.parameters for tensor in self.trained)

    def trained_parameters(self) -> int:
        """Weights that the step updates; those of a value model too."""
        return self.parameters + (0 if self.value is None else self.value.parameters)

    def units(self, micro_batch: int, sequence: int) -> Bytes:
        """Numbers of what sizes are counted by, up to the last that anything is: chunks where layers are recurrent,
        and scored tokens where the loss is a trainer's."""
        objective, scored = self.objective, tuple[int, ...]()
        if objective is not None and self.method is not None:
            micro_batch *= self.method.sequences
            scored = scored_units(objective, micro_batch, sequence)
        positions = -(-sequence // self.layout.cp)
        tokens = micro_batch * positions
        shards = self.layout.tp if self.layout.sequence_parallel else 1
        chunks = micro_batch * -(-positions // self.chunk)
        stream, scores = -(-tokens // shards), tokens * sequence
        scanned = (chunks, chunks - micro_batch, micro_batch) if scored or self.rank.recurrent else ()
        return 1, positions, tokens, stream, scores, *scanned, *scored

    @property
    def offloaded_bytes(self) -> int:
        """Bytes that all GPUs together have in CPU memory, at least: weights and what belongs to them."""
        if not self.layout.cpu_offload:
            return 0
        stages = (states_of(self._weights(i), self.scenario) for i in range(self.layout.pp))
        moved = sum(of.standing + of.gradients for of in stages)
        return moved * (self.layout.gpus // self.layout.pp)

    # The peak

    def memory(self, micro_batch: int | None = None, sequence: int | None = None) -> TrainingMemory:
        """Bytes on the most loaded GPU, with another micro-batch or sequence where they are given."""
        if micro_batch is None and sequence is None:
            return self.by_stage[self.most_loaded]
        size = micro_batch or self.work.micro_batch, sequence or self.work.sequence
        return max((self._memory(index, *size) for index in self.unlike), key=lambda memory: memory.total)

    @cached_property
    def by_stage(self) -> tuple[TrainingMemory, ...]:
        size = self.work.micro_batch, self.work.sequence
        return tuple(self._memory(index, *size) for index in range(self.layout.pp))

    @property
    def most_loaded(self) -> int:
        """The stage of the most loaded GPU."""
        return max(self.unlike, key=lambda index: self.by_stage[index].total)

    def by_phase(self) -> dict[Phase, TrainingMemory]:
        """Bytes on the most loaded GPU at the peak of each phase."""
        return {phase: self._weighed(peak, self.size) for phase, peak in self.peaks.items()}

    def phases(self, size: Bytes | None = None) -> dict[Phase, tuple[Part, ...]]:
        """Tensors on the most loaded GPU at the peak of each phase, by name. `size` is the batch by units, where
        it is traced."""
        peaks = self.peaks if size is None else self._peaks_of_phases(size)
        return {phase: parts_of(peak.moment, size or self.size) for phase, peak in peaks.items()}

    @cached_property
    def peaks(self) -> dict[Phase, StepPeak]:
        return self._peaks_of_phases(self.size)

    def _peaks_of_phases(self, size: Bytes) -> dict[Phase, StepPeak]:
        peaks = self.stage(self.most_loaded, single=self.is_single(self.work.micro_batch)).peaks(size)
        phases = ((phase, [peak for peak in peaks if peak.phase == phase]) for phase in PHASES)
        return {phase: highest_peak(candidates) for phase, candidates in phases if candidates}

    def _memory(self, index: int, micro_batch: int, sequence: int) -> TrainingMemory:
        size = self.units(micro_batch, sequence)
        return self._weighed(self._peak(index, size, single=self.is_single(micro_batch)), size)

    def _peak(self, index: int, units: Bytes, *, single: bool) -> StepPeak:
        """The peak on a stage, for one sequence or for several."""
        stage = self.stage(index, single=single)
        return self.shared.once(("peak", stage, units), lambda: highest_peak(stage.peaks(units)))

    def _weighed(self, peak: StepPeak, size: Bytes) -> TrainingMemory:
        """Bytes at a peak by component, with the overhead."""
        low, high = bounds(sizes(self.overhead_ranges, peak.size))
        return TrainingMemory(
            **peak.moment.by_component(size),
            overhead=(low + high) // 2,
            overhead_low=low,
            overhead_high=high,
            total=peak.size + (low + high) // 2,
            moment=peak.phase,
        )

    # What fits

    def room(self, usable: int) -> int:
        """The most bytes that may be allocated besides the overhead at the high end of its range; below zero where that
        alone is too much."""
        left, percent = usable - self.fixed_overhead, self.overhead_ranges["fragmentation"].high
        if left < 0:
            return -1
        near = int(left / (1 + percent / 100))
        return largest_near(lambda allocated: allocated + round(percent * (allocated / 100)) <= left, usable, near)

    def most_sequences(self, usable: int, most: int) -> int:
        """The largest micro-batch of this length, up to `most`, that fits even at the high end of the overhead."""
        room, sequence = self.room(usable), self.work.sequence
        several = self._most(most, room, lambda n: self.units(n, sequence), single=False)
        if several == most or self.highest_peak(self.units(1, sequence), single=self.is_single(1)).size <= room:
            return max(1, several)
        return 0

    def most_tokens(self, usable: int, most: int) -> int:
        """The longest sequence at this micro-batch, up to `most` tokens, that fits even at the high end of the
        overhead."""
        batch = self.work.micro_batch
        return self._most(most, self.room(usable), lambda n: self.units(batch, n), single=self.is_single(batch))

    def highest_peak(self, units: Bytes, *, single: bool) -> StepPeak:
        """The peak on the most loaded GPU for a batch and a length."""
        return highest_peak([self._peak(index, units, single=single) for index in self.unlike])

    def _most(self, most: int, room: int, units: Callable[[int], Bytes], *, single: bool) -> int:
        """The largest size, up to `most`, at which no peak takes more than there is room for. None takes less at a
        larger size, so the peak at a size that is too large says which is the largest for itself, and so on."""
        while most:
            heaviest = self.highest_peak(units(most), single=single)
            if heaviest.size <= room:
                break
            peak = heaviest.moment.bytes
            fixed = peak[CountedBy.ONCE]
            near = max(1, (room - fixed) * most // max(1, heaviest.size - fixed))  # as if all else grew with it
            most = largest_near(lambda size, peak=peak: dot(peak, units(size)) <= room, most - 1, near)  # type: ignore[misc]
        return most

    @property
    def unlike_stages(self) -> list[TrainingStage]:
        return [self.stage(index, single=self.is_single(self.work.micro_batch)) for index in self.unlike]

    @cached_property
    def peak_bytes(self) -> int:
        """Bytes on the most loaded GPU at the peak, overhead apart."""
        return self.highest_peak(self.size, single=self.is_single(self.work.micro_batch)).size

    @cached_property
    def required(self) -> Required:
        """The totals of `memory()`, without its parts."""
        allocated = self.peak_bytes
        low, high = bounds(sizes(self.overhead_ranges, allocated))
        return Required(allocated + low, allocated + (low + high) // 2, allocated + high)

    def fits(self, usable: int) -> bool:
        """Whether it does as it is, even at the high end of the overhead."""
        return self.required.high <= usable

    def replica_bounds(self, most: int) -> list[int]:
        """Numbers of replicas up to each of which, in turn, the fewest are looked for: `most`, for more never hold
        more. But where FSDP would gather routed experts, which stand in one tensor, ranks that do not divide them
        evenly fill up with more, and beyond as many ranks as experts each has one: there also powers of two and the
        number of experts."""
        if self.recipe.buffers or not self.rank.experts:
            return [most]
        experts = {moe.n_experts for moe in self.rank.experts}
        return sorted(n for n in {most, *experts, *(2**i for i in range(1, most.bit_length()))} if 1 < n <= most)

    def replicas_near(self, usable: int, enough: int) -> int:
        """About as many replicas as must be where `enough` do: as though all else took as much as it does there."""
        alone, many = self.over(1), self.over(enough)
        if alone is None or many is None:
            return 1
        own, left = (max(stage.divided for stage in step.unlike_stages) for step in (alone, many))
        return -(-own // max(1, many.room(usable) - many.peak_bytes + left))

    def over(self, dp: int) -> "Training | None":
        """The step with all that belongs to the weights divided over so many replicas (ZeRO-3); None where the experts
        are spread over more."""

        def laid_out() -> Training | None:
            layout = self.layout.model_copy(update={"dp": dp, "zero": 3})
            try:
                return Training(self.base, self.scenario.model_copy(update={"layout": layout}), self.shared)
            except ConfigError:
                return None

        return self.shared.once(("over", self, dp), laid_out)


# One GPU type against one training step: does it fit, what still would, and how many GPUs would do.


MOST = 2**30  # beyond this, memory is not what limits


class TrainingVerdict(Frozen):
    """Bytes are those of one GPU; words as in calc.fit.Verdict."""

    gpu: str
    gpus: int
    verdict: VerdictWord
    required: int
    usable: int
    spare: int
    max_micro_batch: int | None  # sequences of a micro-batch at this length; None: memory sets no limit
    max_sequence: int | None  # tokens a sequence at this micro-batch; None: memory sets no limit
    min_gpus: int | None  # with weights, gradients and optimizer sharded over them all (ZeRO-3); None: not even 1,024
    reason: Message
    notes: tuple[Message, ...]


def judge_training(gpu: GPU, training: Training) -> TrainingVerdict:
    """The verdict on this many GPUs as laid out; what still fits, fits even at the high end of the overhead."""
    memory, usable = training.memory(), gpu.usable_bytes
    native = gpu.lacks(training.recipe.compute) if training.recipe.compute != "fp32" else None
    refused = unjoined(gpu, training.layout.gpus)
    alone = training.layout.gpus if training.fits(usable) else None
    return TrainingVerdict(
        gpu=gpu.id,
        gpus=training.layout.gpus,
        verdict=word(memory, usable) if refused is None else "does not run",
        required=memory.total,
        usable=usable,
        spare=usable - memory.total,
        max_micro_batch=finite_limit(training.most_sequences(usable, MOST)),
        max_sequence=finite_limit(training.most_tokens(usable, MOST)),
        min_gpus=fewest_replicas(training, usable) if unjoined(gpu, 2) is None else None if refused else alone,
        reason=reason(memory, usable) if refused is None else refused,
        notes=(*slice_notes(gpu), *(() if native is None else (native,))),
    )


def word(memory: TrainingMemory | Required, usable: int) -> VerdictWord:
    return "fits" if memory.high <= usable else "tight" if memory.low <= usable else "does not fit"


def finite_limit(size: int) -> int | None:
    """Largest size that fits, or None where that is `MOST`: memory sets no limit."""
    return None if size == MOST else size


def reason(memory: TrainingMemory, usable: int) -> Message:
    """Reason of the verdict: the largest part, or what is left for overhead."""
    allocated = memory.total - memory.overhead
    if usable < allocated:
        name, size = max(memory.parts.items(), key=lambda part: part[1])
        return Message(
            "The step needs {needed:.2f} GiB before any overhead, {more:.2f} more than there are; the largest part is "
            "the {part} with {size:.2f}.",
            needed=allocated / GIB,
            more=(allocated - usable) / GIB,
            part=name,
            size=size / GIB,
        )
    return left_for_overhead(usable - allocated, memory.overhead_low, memory.overhead_high)


def fewest_replicas(training: Training, usable: int) -> int | None:
    """The fewest GPUs on which it fits as laid out, but with as many data-parallel replicas as it takes, and ZeRO-3.
    Between two of the bounds, more replicas are taken never to fit worse."""
    replica = training.layout.of_replica
    most = MOST_GPUS // replica

    def fits(dp: int) -> bool:
        laid_out = training.over(dp)
        return laid_out is not None and laid_out.fits(usable)

    if fits(1):
        return replica
    tried = training.replica_bounds(most)
    enough = next(filter(fits, tried), None)
    if enough is None:
        return None
    too_few = max((bound for bound in tried if bound < enough), default=1)
    near = max(too_few, training.replicas_near(usable, enough) - 1)
    return replica * (1 + largest_near(lambda dp: dp <= too_few or not fits(dp), enough - 1, near))
