"""The moments of a training step on one rank of one pipeline stage, whatever the batch and the length."""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

from calc.training.course import BUFFER, GATHERED, UPDATE, Alive, Course, Phase, StepMoment, Tensors, by, dot, once
from calc.training.decoder import Shared
from calc.training.layout import TrainingLayout, peak_turns
from calc.training.states import States
from calc.training.tape import Bytes, CountedBy, undominated
from calc.training.workload import WIDTH, TrainingWorkload


class PieceAtWork(NamedTuple):
    """A piece of a stage at work forward or backward, and all else that is there."""

    course: Course
    backward: bool
    alive: Alive


class QuietCourse(NamedTuple):
    """A pass without gradients, and when it runs. `gathered` are bytes of weights that FSDP gathers for it at once, and
    `ahead` of those that DeepSpeed's ZeRO-3 has gathered of a model of its own: its head, and what comes ahead."""

    course: Course
    when: Literal["generation", "before", "after"]
    gathered: int = 0
    ahead: int = 0


class TrainingStage:
    """One rank of a pipeline stage: what is there all the time, round the course of a micro-batch through a piece of
    it. `courses` are those of its pieces; alike pieces have one. `quiet` are passes without gradients, and `reference`
    the weights that only they read."""

    def __init__(
        self,
        courses: tuple[Course, ...],
        states: States,
        work: TrainingWorkload,
        layout: TrainingLayout,
        number: int,
        shared: Shared,
        quiet: tuple[QuietCourse, ...] = (),
        reference: Sequence[Tensors] = (),
        value: "TrainingStage | None" = None,
    ) -> None:
        self.courses, self.states, self.work, self.layout, self.number = courses, states, work, layout, number
        self.shared, self.quiet, self.reference, self.value = shared, quiet, reference, value
        self.course = courses[0]
        self.rank, self.recipe = self.course.rank, self.course.recipe
        self.during = Alive().plus(self.running())
        """Tensors in memory all through a micro-batch, other micro-batches aside."""
        schedule = layout.pp, tuple(courses.index(course) for course in courses), work.accumulation, number
        self.at_work = [
            PieceAtWork(courses[turn.piece], turn.backward, self.during.plus(self.waiting(turn.waiting)))
            for turn in shared.once(("turns", *schedule), lambda: peak_turns(*schedule))
        ]
        """The turns of its schedule at which most waits."""

    def waiting(self, pieces: tuple[int, ...]) -> list[Tensors]:
        """Tensors that so many micro-batches in each piece keep for their backward pass."""
        several = zip(self.courses, pieces, strict=True)
        return list(
            chain.from_iterable(run.waiting(n * run.layers) for course, n in several if n for run in course.runs)
        )

    @property
    def by_deepspeed(self) -> bool:
        """Whether DeepSpeed's ZeRO-3 runs; on one GPU too, where it gathers nothing."""
        return self.layout.zero == 3 and self.recipe.reuse > 0

    # What is there all the time

    def constant(self) -> list[Tensors]:
        """Weights and what belongs to them, between steps; with gradients that are held all the time."""
        gradients = [Tensors(once(self.states.gradients), "gradients", "gradients")] if self.recipe.buffers else []
        return [*self.standing, *gradients]

    @cached_property
    def standing(self) -> list[Tensors]:
        """Weights and what belongs to them, between steps, but for gradients."""
        states = self.states
        tensors = [
            Tensors(once(states.frozen), "frozen weights", "weights"),
            Tensors(once(states.weights), "trained weights", "weights"),
            Tensors(once(states.master), "fp32 copies of the weights", "master_weights"),
            Tensors(once(states.optimizer), "states of the optimizer", "optimizer"),
            *self.reference,
        ]
        if self.layout.fully_sharded and not (self.course.by_fsdp or self.by_deepspeed):
            largest = Tensors(once(2 * self.course.largest_unit), "gathered weights of two layers", "weights")
            tensors.append(largest)
        return tensors

    def running(self) -> list[Tensors]:
        """Tensors in memory all through a micro-batch: weights, gradients of earlier ones, and tables. DeepSpeed's
        ZeRO-2 gathers the gradients of each micro-batch in a buffer of its own before they are added (0.19.8,
        stage_1_and_2.py, `copy_grads_in_partition`); on one GPU its ZeRO-3 computes on views of what it holds
        (partition_parameters.py, `_no_gather_coalesced`)."""
        recipe, states, work = self.recipe, self.states, self.work
        tensors = self.constant()
        if work.accumulation > 1 and not recipe.buffers:
            tensors.append(Tensors(once(states.gradients), "gradients of earlier micro-batches", "gradients"))
        if work.accumulation > 1 and recipe.flattened and self.layout.zero == 2:
            tensors.append(Tensors(once(states.gradients), "gradients of this micro-batch", "gradients"))
        if recipe.bucket:
            size = WIDTH[recipe.gradients] * self.bucketed()
            tensors.append(Tensors(once(size), "buckets that gradients are reduced in", "gradients"))
        if self.by_deepspeed and self.layout.fully_sharded:
            tensors.append(Tensors(once(self.live()), "gathered weights", "weights"))
        return [*tensors, self.rotary()]

    def rotary(self) -> Tensors:
        columns = sum(columns for _, columns in self.rank.rotary)
        fp32 = self.rank.kernels.rotation in ("fp32", "fp32_spread")
        width = 4 if fp32 else self.course.passes.settings.rest
        return Tensors(by(CountedBy.POSITION, 2 * width * columns), "rotary tables")

    def bucketed(self) -> int:
        """Elements of gradients on their way. Stage 3 has one bucket, and lays what is in it end to end for
        reduce-scatter (DeepSpeed 0.19.8, runtime/comm/coalesced_collectives.py)."""
        bucket = self.recipe.bucket
        if self.by_deepspeed:
            return bucket + min(bucket, sum(unit.trained for unit in self.course.units.values()))
        return 2 * bucket if self.recipe.overlap else bucket

    def live(self) -> int:
        """Bytes of what DeepSpeed's ZeRO-3 has gathered at the loss (0.19.8, partitioned_param_coordinator.py,
        `__params_to_release`): the head, and the last weights that are needed again before so many elements have
        passed, each going forward and back, and once more where a layer runs again; and what comes ahead."""
        reused = self.recipe.reuse // (3 if self.course.recomputed else 2)
        head = self.rank.vocab * (self.rank.d_embedding or self.rank.hidden)
        elements = max(head, reused) + self.recipe.prefetch
        return WIDTH[self.recipe.compute] * min(elements, sum(unit.gathered for unit in self.course.units.values()))

    # The step

    @property
    def steps(self) -> list[StepMoment]:
        """Points before and after the step, and the optimizer's update."""
        size = 0 if self.work.optimizer_in_backward else self.states.casts or self.states.gradients
        between = Alive().plus(self.constant())
        updated = Alive().plus([*self.standing, Tensors(once(size), "gradients", "gradients"), self.updating()])
        return [
            StepMoment("after_init", *between),
            StepMoment("optimizer", *updated),
            StepMoment("after_step", *between),
        ]

    def updating(self) -> Tensors:
        return Tensors(once(self.states.update), UPDATE, "temporaries")

    def stepping(self) -> Alive:
        """The optimizer's update inside the backward pass."""
        gradient = Tensors(once(self.states.largest_gradient), "gradients", "gradients")
        return self.during.plus([*self.course.persisting(), gradient, self.updating(), self.course.stream])

    def without_gradients(self) -> list[StepMoment]:
        points: list[StepMoment] = []
        for course, when, gathered, ahead in self.quiet:
            resident = Alive().plus([*self.constant(), self.rotary()]) if when == "generation" else self.during
            if when == "after":
                resident = resident.plus(self.course.under_reference(root_stays=not gathered).tensors)
            whole = once(gathered)
            resident = resident.plus([Tensors(whole, GATHERED, "weights"), Tensors(whole, BUFFER, "weights")])
            resident = resident.plus([Tensors(once(ahead), GATHERED, "weights")])
            for here in course.forward():
                points += map(resident.merged_with, here._replace(phase="reference").step_moments())
        return undominated(points)

    def peak_bytes(self, units: Bytes) -> int:
        if self.value is not None:
            return max(dot(moment.bytes, units) for points in self.step_moments.values() for moment in points)
        alive = [moment.bytes for moment in (*self.steps, *self.without_gradients())]
        if self.work.optimizer_in_backward:
            alive.append(self.stepping().bytes)
        return max(self.passing(units), *(dot(nbytes, units) for nbytes in alive))

    def passing(self, units: Bytes) -> int:
        """Bytes at the peak of a micro-batch's pass, the course of which other numbers of replicas may have too."""

        def peak(course: Course, *, backward: bool) -> int:
            key = "peak", course, units, backward
            return self.shared.once(key, lambda: course.peak_bytes(units, backward=backward))

        return max(
            dot(alive.bytes, units) + peak(course, backward=backward) for course, backward, alive in self.at_work
        )

    @property
    def divided(self) -> int:
        """Bytes of weights, and of what belongs to them, that are there all the time."""
        states = self.states
        standing = states.frozen + states.weights + states.master + states.optimizer
        return standing + (states.gradients if self.recipe.buffers else 0)

    @cached_property
    def step_moments(self) -> dict[Phase, list[StepMoment]]:
        phases = {moment.phase: [moment] for moment in self.steps}
        if self.quiet:
            phases["reference"] = self.without_gradients()
        for course, backward, alive in self.at_work:
            for phase, points in course.step_moments.items():
                if (phase == "backward") == backward:
                    phases.setdefault(phase, []).extend(map(alive.merged_with, points))
        if self.work.optimizer_in_backward:
            phases["backward"] = undominated([*phases["backward"], StepMoment("backward", *self.stepping())])
        return phases if self.value is None else self.with_value(phases, self.value)

    def with_value(
        self, phases: dict[Phase, list[StepMoment]], value: "TrainingStage"
    ) -> dict[Phase, list[StepMoment]]:
        """The moments of a policy and a value model that are trained together: the latter runs first, waits, and goes
        back last, when all of the policy's gradients are there. What the training loop holds of the policy's outputs it
        holds through the update."""
        standing = Alive().plus(value.constant())
        waiting = standing.plus([tensors for run in value.course.runs for tensors in run.waiting(run.layers)])
        outputs = Tensors(self.course.runs[-1].profile.outputs, "outputs that the training loop holds", "logits")
        gradients = Tensors(once(value.states.gradients), "gradients", "gradients")
        updating = standing.plus([outputs, gradients, value.updating()])
        resident = {"forward": waiting, "loss": waiting, "backward": waiting, "optimizer": updating}
        both = {
            phase: [resident.get(phase, standing).merged_with(moment) for moment in points]
            for phase, points in phases.items()
        }
        own = Alive().plus([*self.constant(), outputs, Tensors(once(self.states.gradients), "gradients", "gradients")])
        both["backward"] += [own.merged_with(moment) for moment in value.step_moments["backward"]]
        return both

    @cached_property
    def peaks(self) -> list[StepMoment]:
        return undominated(chain.from_iterable(self.step_moments.values()))
