"""Times of a step of one of TRL's losses: generation by the speed of serving, weights on their way to the engine,
passes without gradients, and the update; and of another division of the same GPUs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple

from calc.errors import ConfigError, Frozen, Message
from calc.hardware.gpu import GPU
from calc.hardware.overhead import HIGH
from calc.model.architecture import Architecture
from calc.time.cluster import USUAL, Cluster
from calc.time.efficiency import Conditions, row
from calc.time.estimate import ENDS, End, Estimate
from calc.time.serving import Speed, speed_on
from calc.time.training import StepOperation, TrainingSpeed, step_operations, training_speed
from calc.training import PHASE_NAMES, Colocated, Colocation, CountedBy, RolloutPhaseName, Training

HOUR = 3600
TimedPhase = RolloutPhaseName | Literal["remainder"]
"""Phases of a step by time; the remainder is what a step with generation takes beyond all of them."""
TIMED_PHASES: Mapping[str, Message] = PHASE_NAMES | {
    "remainder": Message("what is in no phase: rewards, packing and sending batches, waiting"),
}


class PhaseTime(Frozen):
    """A part of a step; a generation that serves several steps is divided over them."""

    name: TimedPhase
    seconds: Estimate


class GpuDivision(Frozen):
    """A step of as many sequences on as many GPUs, so many of them the engine's own; 0: it is on those that train."""

    engine_gpus: int
    training_gpus: int
    step_s: Estimate
    fits: bool


class ObjectiveTime(Frozen):
    """A step with its passes and its generation on one kind of GPU."""

    gpu: str
    step_s: Estimate
    phases: tuple[PhaseTime, ...]  # in their order
    longest: RolloutPhaseName  # of the phases with a name of their own
    tokens_per_s_per_gpu: Estimate  # prompts and completions of a step; the engine's GPUs too
    generated_tokens_per_s: Estimate | None  # of one engine while it generates; None: none is counted
    steps_per_hour: Estimate
    tokens_per_hour: Estimate
    divisions: tuple[GpuDivision, ...]  # of the same GPUs, where an engine generates on several
    operations: tuple[StepOperation, ...]  # of the update
    assumptions: tuple[Message, ...]


def pass_speed(architecture: Architecture, training: Training, gpu: GPU, cluster: Cluster) -> TrainingSpeed:
    """The passes of a model over the micro-batches of a training step."""
    method, work, objective = training.method, training.work, training.objective
    sequences = 1 if method is None else method.sequences
    work = work.model_copy(update={"micro_batch": work.micro_batch * sequences})
    trained = training.trained_parameters() / architecture.parameters().total
    scenario = training.scenario.model_copy(update={"workload": work})
    speed = training_speed(architecture, scenario, gpu, cluster, trained=trained)
    whole = objective is None or objective.log_probs == "whole"
    logits = training.size[CountedBy.LOGITS if whole else CountedBy.SCORED]
    return replace(speed, logits=logits, tiled=objective is not None and objective.log_probs == "fused")


def mean_lengths(training: Training) -> Training:
    """The step whose completions are all as long as they are on average: as many tokens pass as in the given one."""
    objective = training.objective
    if objective is None or objective.mean_completion is None:
        return training
    mean = objective.model_copy(update={"completion": objective.mean_completion, "mean_completion": None})
    return training.changed(workload=training.work.model_copy(update={"sequence": mean.sequence}), objective=mean)


def remainder(end: End) -> float:
    """Share of its phases' seconds that a step with generation takes beyond them: measured steps of NeMo RL next to
    ours (`rl_remainder` of efficiencies.json; docs/training_losses.md)."""
    return row("rl_remainder", Conditions("", None)).value.duration(end)


class RolloutTime(NamedTuple):
    """Completions that one engine generates, in decode steps and seconds at one end of the range."""

    prompts_s: float
    full_steps: float  # while others wait for a place
    full_s: float  # of each of these
    last_steps: int  # from when none waits until the longest is done
    last_s: float  # of each of these, by the sequences left on average

    @property
    def seconds(self) -> float:
        return self.prompts_s + self.full_steps * self.full_s + self.last_steps * self.last_s


class ObjectiveSpeed:
    """A step of one of TRL's losses on GPUs of one kind, ready to be timed, with its engine or without."""

    def __init__(
        self,
        training: Training,
        gpu: GPU,
        colocation: Colocation | None = None,
        cluster: Cluster = USUAL,
    ) -> None:
        assert training.objective is not None
        assert training.method is not None
        self.training, self.gpu, self.cluster = training, gpu, cluster
        self.objective, self.method = training.objective, training.method
        self.engine = None if colocation is None else Colocated(training, colocation, gpu)
        self.mean = mean_lengths(training)
        self.update = pass_speed(training.base, self.mean, gpu, cluster)

    # The trainer

    @property
    def sequences(self) -> int:
        """Sequences of a step on all GPUs, as a micro-batch counts them."""
        work = self.training.work
        return work.micro_batch * work.accumulation * self.training.layout.dp

    @property
    def generations(self) -> float:
        """Generations for each step: less than one where one serves several, more where a step takes several."""
        batch = self.objective.generation_batch or self.sequences
        return self.sequences / batch / self.objective.iterations

    @cached_property
    def policy_pass(self) -> TrainingSpeed:
        return self.update.without_gradients()

    @cached_property
    def reference_pass(self) -> TrainingSpeed:
        """Speed of the reference, or of a teacher."""
        other = self.mean.teacher
        if other is None or other.base == self.training.base:
            return self.policy_pass
        return pass_speed(other.base, other, self.gpu, self.cluster).without_gradients()

    def reference_s(self, end: End) -> float:
        """Seconds of a step's passes without gradients; of a value model and a reward model too."""
        seconds = 2 * self.policy_pass.seconds(end) if self.method.values else 0.0
        for quiet in self.method.passes(self.objective):
            speed = self.policy_pass if quiet.by_policy else self.reference_pass
            often = 1 / self.objective.iterations if quiet.when == "generation" else 1
            seconds += often * quiet.times * speed.seconds(end)
        return seconds

    # The engine

    @cached_property
    def serving(self) -> Speed | None:
        if self.engine is None:
            return None
        return speed_on(self.gpu, self.engine.serving, self.cluster)

    def generation(self, end: End) -> RolloutTime:
        """Steps and seconds in which one engine generates its completions. One that ends makes room for one that waits
        (vLLM 0.33, `v1/core/sched/scheduler.py`, `Scheduler.schedule`), so the engine is full until none waits; then
        the longest run on, with as many left at each step as the mean length says. The cache takes blocks as they fill:
        as many sequences as it holds of the mean length. A prompt is passed once for its group, whose other members
        find it in the cache."""
        engine, speed = self.engine, self.serving
        assert engine is not None
        assert speed is not None
        objective, limits, sequences = self.objective, engine.plan.limits, engine.sequences
        mean_sequence = self.mean.work.sequence
        mean, longest = mean_sequence - objective.prompt, objective.completion - 1
        cached = engine.plan.concurrency(HIGH) * objective.sequence / mean_sequence
        at_once = max(1, int(min(sequences, cached, limits.sequences)))
        group = objective.num_generations if self.method.groups else 1
        context = max(2, objective.prompt + mean // 2)
        left = (mean - 1) / longest if longest else 1.0
        alone, full = (float(speed.step(n, context, end)) for n in (1, at_once))
        return RolloutTime(
            prompts_s=float(speed.prompt(-(-sequences // group), max(1, objective.prompt), end, limits.step_tokens)),
            full_steps=(sequences - at_once) / at_once * mean,
            full_s=full,
            last_steps=longest,
            last_s=alone + left * (full - alone),
        )

    def handed_over_s(self, end: End) -> float:
        """Seconds in which the engine gets the new weights: gathered where they are sharded, copied on the GPU or sent
        to others; and of what comes from host memory or goes there."""
        engine, update = self.engine, self.update
        assert engine is not None
        colocation, layout = engine.colocation, self.training.layout
        whole, own = engine.engine_weights * colocation.rollout_tp, engine.engine_weights
        bus = update.link("pcie", end)
        seconds = update.ring(end, layout.dp, whole, latency=False) if layout.fully_sharded else 0.0
        if engine.colocated:
            seconds += 2 * own / update.bandwidth(end)
        else:
            route = self.cluster.path(self.gpu, layout.gpus + colocation.engine_gpus)
            seconds += whole / update.link(route, end)
        if colocation.sleep_level == 1 and not colocation.shared_weights:
            seconds += 2 * own / bus
        return seconds + 2 * engine.offloaded / bus

    # The step

    def seconds(self, end: End) -> dict[TimedPhase, float]:
        """Seconds of each phase of a step, in their order; a trainer and its engine wait for each other."""
        phases: dict[TimedPhase, float] = {}
        if self.engine is not None:
            phases["rollout"] = self.generations * self.generation(end).seconds
            phases["weight_sync"] = self.generations * self.handed_over_s(end)
        if (quiet := self.reference_s(end)) > 0:
            phases["reference"] = quiet
        models = 2 if self.method.values else 1  # a value model is as large
        phases["update"] = models * self.update.seconds(end)
        if self.engine is not None:
            phases["remainder"] = remainder(end) * sum(phases.values())
        return phases

    @cached_property
    def by_end(self) -> dict[End, dict[TimedPhase, float]]:
        return {end: self.seconds(end) for end in ENDS}

    @property
    def step_s(self) -> Estimate:
        return Estimate.over(lambda end: sum(self.by_end[end].values()))

    @property
    def gpus(self) -> int:
        """All that a step occupies."""
        others = self.engine is not None and not self.engine.colocated
        return self.training.layout.gpus + (self.engine.colocation.engine_gpus if self.engine and others else 0)

    def time(self, *, divided: bool = True) -> ObjectiveTime:
        """All of it; `divided`: with other divisions of the same GPUs."""
        tokens = self.sequences * self.method.sequences * self.mean.work.sequence
        step, usual = self.step_s, self.by_end["expected"]
        engine, generated = self.engine, None

        def seconds_of(phase: TimedPhase) -> Estimate:
            return Estimate.over(lambda end: self.by_end[end][phase])

        if engine is not None:
            completions = engine.sequences * (self.mean.work.sequence - self.objective.prompt)
            generated = Estimate.over(lambda end: completions / self.generation(end).seconds)
        return ObjectiveTime(
            gpu=self.gpu.id,
            step_s=step,
            phases=tuple(PhaseTime(name=name, seconds=seconds_of(name)) for name in usual),
            longest=max((name for name in PHASE_NAMES if name in usual), key=usual.__getitem__),
            tokens_per_s_per_gpu=Estimate.over(lambda end: tokens / self.gpus / sum(self.by_end[end].values())),
            generated_tokens_per_s=generated,
            steps_per_hour=Estimate.over(lambda end: HOUR / sum(self.by_end[end].values())),
            tokens_per_hour=Estimate.over(lambda end: HOUR * tokens / sum(self.by_end[end].values())),
            divisions=tuple(self.divisions()) if divided else (),
            operations=step_operations(self.update),
            assumptions=tuple(self.assumptions()),
        )

    # Other divisions

    def divisions(self) -> Iterator[GpuDivision]:
        """The engine on the GPUs that train, and on an eighth, a quarter, half of them for itself."""
        if self.engine is None or self.gpus == 1:
            return
        tp = self.engine.colocation.rollout_tp
        own = {count - count % tp for count in (self.gpus // 8, self.gpus // 4, self.gpus // 2)}
        for count in (0, *sorted(own - {0})):
            if (other := self.divided(count)) is not None and other.engine is not None:
                fits = other.engine.word == "fits"
                training_gpus = other.training.layout.gpus
                yield GpuDivision(engine_gpus=count, training_gpus=training_gpus, step_s=other.step_s, fits=fits)

    def divided(self, engine_gpus: int) -> "ObjectiveSpeed | None":
        """This step with so many GPUs for the engine alone and as many sequences; None where that can't be laid out."""
        assert self.engine is not None
        before, work, dp = self.engine.colocation, self.training.work, self.gpus - engine_gpus
        changes: dict[str, object] = {"rollout": "colocated", "rollout_dp": 1}
        if engine_gpus:
            own = {"sleep_level": 0, "shared_weights": False, "rollout_dp": engine_gpus // before.rollout_tp}
            changes = {"rollout": "server", "engine_share": None, **own}
        elif before.rollout == "server":
            changes["engine_share"] = None
        steps = -(-self.sequences // (work.micro_batch * dp))
        try:
            training = self.training.changed(
                workload=work.model_copy(update={"accumulation": steps}),
                layout=self.training.layout.model_copy(update={"dp": dp}),
            )
            colocation = before.model_copy(update=changes)
            return ObjectiveSpeed(training, self.gpu, colocation, self.cluster)
        except ConfigError:
            return None

    def assumptions(self) -> Iterable[Message]:
        if self.engine is not None:
            yield Message(
                "Trainer and engine wait for each other: nothing of a step runs while another part of it does."
            )
            yield Message(
                "What is in no phase takes {low:.0%} to {high:.0%} of the phases' seconds: {usual:.0%} at the median "
                "of nine steps of NeMo RL.",
                low=remainder("fast"),
                high=remainder("slow"),
                usual=remainder("expected"),
            )
            mean = self.objective.mean_completion
            if mean is None:
                yield Message("All completions have the greatest length; each prompt is read once for its group.")
            else:
                sentence = (
                    "Completions have {mean:,} tokens on average and the longest {most:,}, for which an engine keeps "
                    "running with few sequences; each prompt is read once for its group."
                )
                yield Message(sentence, mean=mean, most=self.objective.completion)
        elif self.method.generates:
            yield Message("Generation is not timed: no engine is given.")
        elif self.method.teacher:
            yield Message("Completions that the policy writes itself (lmbda) are not timed: they come from generate().")
        if self.method.values:
            yield Message("A value model as large as the policy takes as long; a reward model a forward pass.")
