"""An engine that generates where the model is trained: what is in memory while it generates, while it is handed new
weights, while passes without gradients run, and at the update; and the share of the GPU to give it."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Literal

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.mig import unjoined
from calc.hardware.overhead import HIGH, bounds, sizes
from calc.hardware.parallel import Layout
from calc.hardware.solver import largest, least
from calc.serving.engines import DEFAULT_ENGINE, ENGINES
from calc.serving.engines.launch import spelled
from calc.serving.fewest import MOST_GPUS
from calc.serving.memory import Allocation, Serving
from calc.serving.shared_gpus import STAYS
from calc.serving.verdict import VerdictWord
from calc.serving.workload import Workload
from calc.training.course import Phase, TrainingComponent
from calc.training.step import MOST, PARTS, Training, TrainingMemory, TrainingVerdict, finite_limit
from calc.training.workload import Colocation
from calc.units import GIB, MIB

RolloutPhaseName = Literal["rollout", "weight_sync", "reference", "update"]
PERCENT = 100


class RolloutPart(Frozen):
    """Bytes of one kind that the trainer or the engine has in memory."""

    name: Message
    owner: Literal["trainer", "engine"]
    bytes: int


class RolloutPhase(Frozen):
    """One GPU in a phase of a step with generation, overhead included: its parts sum to the middle."""

    name: RolloutPhaseName
    parts: tuple[RolloutPart, ...]
    low: int
    total: int
    high: int


class RolloutReport(Frozen):
    """A step with generation on one kind of GPU."""

    gpu: str
    phases: tuple[RolloutPhase, ...]  # in their order
    peak: RolloutPhaseName
    sequences: int  # that an engine generates at once, of the whole batch
    concurrency: float  # such sequences that its cache holds at once; the others wait
    engine_share: float
    share_low: float | None  # with which the engine starts and holds one sequence; None: with none
    share_all: float | None  # with which it holds all of them at once
    share_high: float  # that leaves room for the trainer; 0: there is none
    host_bytes: int  # that wait in host memory, of one GPU
    max_micro_batch: int | None  # None: memory sets no limit
    max_completion: int | None
    reason: Message


PHASE_NAMES: dict[RolloutPhaseName, Message] = {
    "rollout": Message("generation"),
    "weight_sync": Message("handing weights to the engine"),
    "reference": Message("passes without gradients"),
    "update": Message("the update"),
}
TRAINER: Mapping[TrainingComponent, Message] = PARTS | {"weights": Message("weights of the trainer")}


class Colocated:
    """A training step and an engine together on one kind of GPU."""

    def __init__(self, training: Training, colocation: Colocation, gpu: GPU) -> None:
        if training.objective is None:
            raise ConfigError(Message("Only a loss with generated completions has an engine."), "rollout")
        if colocation.shared_weights and training.work.trains_base:
            sentence = "Only frozen weights can be the engine's own: shared_weights goes with LoRA or QLoRA."
            raise ConfigError(Message(sentence), "shared_weights", [False])
        self.training, self.colocation, self.gpu, self.objective = training, colocation, gpu, training.objective
        self.usable = gpu.usable_bytes
        gpus, tp = training.layout.gpus, colocation.rollout_tp
        if self.colocated and gpus % tp:
            sentence = "rollout_tp is {tp:,}, which does not divide the {gpus:,} GPUs that train."
            raise ConfigError(Message(sentence, tp=tp, gpus=gpus), "rollout_tp", sorted({1, gpus}))

    # The engine

    @property
    def sequences(self) -> int:
        """Completions that one engine generates: those of the GPUs that share it; of all on GPUs of their own."""
        work, dp = self.training.work, self.training.layout.dp
        batch = self.objective.generation_batch or work.micro_batch * work.accumulation * dp
        if not self.colocated:
            return -(-batch // self.colocation.rollout_dp)
        return -(-batch // dp) * self.colocation.rollout_tp

    @cached_property
    def serving(self) -> Serving:
        engine = ENGINES[DEFAULT_ENGINE]()
        layout = Layout(tp=self.colocation.rollout_tp)
        return Serving.of(self.training.base, engine, Precision(), layout, self.training.overhead)

    def allocation(self, share: float) -> Allocation:
        """The engine's plan with a share of the GPU."""
        objective, option = self.objective, self.serving.engine.share_option
        workload = Workload(batch=self.sequences, context=objective.sequence, generated=objective.sequence - 1)
        return self.serving.with_engine(self.serving.engine.with_options(**{str(option): share})).on(self.gpu, workload)

    @cached_property
    def plan(self) -> Allocation:
        return self.allocation(self.colocation.share)

    @property
    def colocated(self) -> bool:
        """Whether the engine is on these GPUs."""
        return self.colocation.rollout == "colocated"

    @property
    def offloaded(self) -> int:
        """Bytes of weights and states of one GPU that wait in host memory while the engine generates."""
        standing, colocation = self.training.by_phase()["after_init"], self.colocation
        weights = standing.weights if colocation.offload_weights else 0
        return weights + (standing.optimizer if colocation.offload_optimizer else 0)

    def awake(self) -> list[tuple[Message, int]]:
        """Bytes of the engine while it generates, by part: its whole share."""
        budget = self.plan.kv_budget
        if not self.colocated or budget is None:
            return []
        named = {
            Message("weights of the engine"): budget.weights,
            Message("KV cache"): budget.bytes,
            Message("activations of the engine"): budget.profile,
        }
        rest = budget.requested - sum(named.values())
        return [*named.items(), (Message("graphs and libraries of the engine"), max(0, rest))]

    def outside(self) -> tuple[int, int]:
        """Bytes of a CUDA context of the engine's own, from low to high."""
        own = self.colocated and self.colocation.own_process
        return self.plan.stages[0].sizes.get("cuda_context", (0, 0)) if own else (0, 0)

    def asleep(self) -> tuple[list[tuple[Message, int]], tuple[int, int]]:
        """Bytes that the engine keeps while the model is trained, by part; and the range of what has no formula."""
        low, high = self.outside()
        if not self.colocated or self.colocation.sleep_level == 0:
            return self.awake(), (low, high)
        items = self.plan.stages[0].sizes
        ends = [items[item] for item in STAYS if item in items]
        shared = [(Message("weights of the engine"), self.engine_weights)] if self.colocation.shared_weights else []
        return shared, (low + sum(end[0] for end in ends), high + sum(end[1] for end in ends))

    @property
    def engine_weights(self) -> int:
        return max(stage.loaded.total for stage in self.plan.serving.laid_out.stages)

    # Phases

    @cached_property
    def phases(self) -> tuple[RolloutPhase, ...]:
        """One GPU in each phase, in their order."""
        by_phase, colocation = self.training.by_phase(), self.colocation
        remaining, uncertain = self.asleep()
        standing, awake, outside = by_phase["after_init"], self.awake(), self.outside()
        states: set[TrainingComponent] = {"optimizer"} if colocation.offload_optimizer else set()
        weights: set[TrainingComponent] = {"weights"} if colocation.offload_weights else set()
        loaded, syncing = awake, outside
        if colocation.sleep_level and self.colocated:  # the cache is still away
            loaded, syncing = [(Message("weights of the engine"), self.engine_weights)], uncertain
        loaded = [*loaded, *self.handed_over()] if self.colocated else self.handed_over()
        phases = [
            self.phase("rollout", standing, awake, outside, states | weights),
            self.phase("weight_sync", standing, loaded, syncing, states),
        ]
        if "reference" in by_phase:
            phases.append(self.phase("reference", by_phase["reference"], remaining, uncertain, states))
        updates: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")
        update = max((by_phase[name] for name in updates), key=lambda memory: memory.total)
        return (*phases, self.phase("update", update, remaining, uncertain, set()))

    def handed_over(self) -> list[tuple[Message, int]]:
        """A buffer of weights on their way: one gathered parameter, or a bucket of them."""
        if self.colocation.bucket_mib:
            return [(Message("buffer of weights on their way"), self.colocation.bucket_mib * MIB)]
        if not self.training.layout.fully_sharded:
            return []
        largest_tensor = max(tensor.numel for tensor in self.training.architecture.tensors())
        return [(Message("buffer of weights on their way"), 2 * largest_tensor)]

    def phase(
        self,
        name: RolloutPhaseName,
        memory: TrainingMemory,
        engine: list[tuple[Message, int]],
        outside: tuple[int, int],
        away: Collection[TrainingComponent],
    ) -> RolloutPhase:
        """One GPU in a phase; `outside` is a CUDA context of the engine's own, `away` waits in host memory."""
        trainer = {part: 0 if part in away else int(getattr(memory, part)) for part in TRAINER}
        if self.colocation.shared_weights:
            trainer["weights"] -= min(trainer["weights"], self.engine_weights)
        low, high = bounds(sizes(self.training.overhead_ranges, sum(trainer.values())))
        low, high = low + outside[0], high + outside[1]
        parts = [RolloutPart(name=TRAINER[part], owner="trainer", bytes=size) for part, size in trainer.items() if size]
        parts += [RolloutPart(name=part, owner="engine", bytes=size) for part, size in engine if size]
        middle = (low + high) // 2
        parts.append(RolloutPart(name=Message("overhead"), owner="trainer", bytes=middle))
        total = sum(part.bytes for part in parts)
        return RolloutPhase(
            name=name, parts=tuple(parts), low=total - middle + low, total=total, high=total - middle + high
        )

    @property
    def peak(self) -> RolloutPhase:
        return max(self.phases, key=lambda phase: phase.total)

    # What fits

    @property
    def refusal(self) -> Message | None:
        """Why engine and trainer do not run on these GPUs, whatever memory there is."""
        return unjoined(self.gpu, self.training.layout.gpus) or self.plan.refusal

    @property
    def starts(self) -> bool:
        """Whether the engine starts with its share, and takes a sequence of the whole length."""
        return self.plan.starts(HIGH)

    @property
    def word(self) -> VerdictWord:
        if self.refusal is not None:
            return "does not run"
        if not self.starts or max(phase.low for phase in self.phases) > self.usable:
            return "does not fit"
        return "fits" if max(phase.high for phase in self.phases) <= self.usable else "tight"

    @property
    def room(self) -> int:
        """Bytes that the engine leaves to the trainer, at the high end of what it keeps."""
        remaining, (_, high) = self.asleep()
        return self.usable - high - sum(size for _, size in remaining)

    @property
    def generates(self) -> bool:
        """Whether the phases in which the engine is awake fit."""
        awake = ("rollout", "weight_sync")
        return self.starts and all(phase.high <= self.usable for phase in self.phases if phase.name in awake)

    @cached_property
    def most_sequences(self) -> int:
        """The largest micro-batch; 0 where the engine leaves no room."""
        return self.training.most_sequences(self.room, MOST) if self.generates else 0

    @cached_property
    def most_tokens(self) -> int:
        """The longest completion that both engine and trainer take."""
        if not self.generates:
            return 0
        engine = self.plan.longest_request(self.training.architecture.max_positions or MOST)
        return max(0, min(self.training.most_tokens(self.room, MOST), engine) - self.objective.prompt)

    def least_share(self, sequences: int) -> float | None:
        """The least share, in per cent, with which the engine starts and holds so many sequences at once."""

        def holds(percent: int) -> bool:
            plan = self.allocation(percent / PERCENT)
            return plan.starts(HIGH) and plan.concurrency(HIGH) >= sequences

        most = next((percent for percent in range(PERCENT - 1, PERCENT - 10, -1) if holds(percent)), 0)
        percent = least(holds, most)
        return None if percent is None else percent / PERCENT

    @cached_property
    def starting_share(self) -> float | None:
        """The least share with which the engine starts with one sequence."""
        return self.least_share(1)

    @cached_property
    def largest_share(self) -> float:
        """The largest share, in per cent, with which the trainer fits; 0 where there is none."""
        awake = [phase for phase in self.phases if self.colocation.sleep_level == 0 or phase.name == "rollout"]
        if any(phase.high > self.usable for phase in self.phases if phase not in awake):
            return 0
        owned = max(phase.high - sum(part.bytes for part in phase.parts if part.owner == "engine") for phase in awake)
        return largest(lambda percent: owned + self.usable * percent // PERCENT <= self.usable, PERCENT) / PERCENT

    def min_gpus(self) -> int | None:
        """The fewest GPUs with which it fits, weights and what belongs to them divided over all; doubled until it
        does."""
        count = self.colocation.rollout_tp
        while count <= MOST_GPUS:
            training = self.training.over(count)
            if training is not None and Colocated(training, self.colocation, self.gpu).word == "fits":
                return count
            count *= 2
        return None

    # The answer

    @cached_property
    def reason(self) -> Message:
        if self.refusal is not None:
            return self.refusal
        peak, share = self.peak, self.colocation.share
        if not self.starts:
            enough = self.starting_share
            if enough is None:
                return Message("No share of this GPU lets the engine start with a sequence this long.")
            sentence = (
                "With {share:.2f} of the GPU the engine does not start with a sequence this long; {enough:.2f} is "
                "enough."
            )
            return Message(sentence, share=share, enough=enough)
        name, size = PHASE_NAMES[peak.name], peak.total / GIB
        more = (peak.total - self.usable) / GIB
        if not self.colocated:
            sentence = "With the engine on other GPUs, {phase} takes most, {size:.2f} GiB of {usable:.2f}."
            return Message(sentence, phase=name, size=size, usable=self.usable / GIB)
        if more <= 0:
            sentence = (
                "With {share:.2f} of the GPU for the engine, the peak is {phase} with {size:.2f} GiB: {left:.2f} left."
            )
            return Message(sentence, share=share, phase=name, size=size, left=-more)
        sentence = (
            "With {share:.2f} of the GPU for the engine, {phase} needs {size:.2f} GiB, {more:.2f} more than there are."
        )
        return Message(sentence, share=share, phase=name, size=size, more=more)

    def notes(self) -> Iterator[Message]:
        """Flags with which it would fit: the least change first."""
        if self.word == "fits" or not self.colocated:
            return
        enough = self.starting_share
        changes: list[dict[str, object]] = [{"sleep_level": 2}]
        if enough is not None:
            changes += [{"engine_share": enough}, {"sleep_level": 2, "engine_share": enough}]
        changes += [change | {"offload_optimizer": True} for change in changes]
        for change in changes:
            colocation = self.colocation.model_copy(update=change)
            if Colocated(self.training, colocation, self.gpu).word == "fits":
                flags = chain.from_iterable(spelled(name, value, {}) for name, value in change.items())
                yield Message("With {flags} it fits.", flags=" ".join(flags))
                return

    def report(self) -> RolloutReport:
        host = self.offloaded
        if self.colocation.sleep_level == 1 and not self.colocation.shared_weights:
            host += self.engine_weights
        return RolloutReport(
            gpu=self.gpu.id,
            phases=self.phases,
            peak=self.peak.name,
            sequences=self.sequences,
            concurrency=self.plan.concurrency(HIGH),
            engine_share=self.colocation.share,
            share_low=self.starting_share,
            share_all=self.least_share(self.sequences),
            share_high=self.largest_share if self.colocated else 1,
            host_bytes=host,
            max_micro_batch=finite_limit(self.most_sequences),
            max_completion=finite_limit(self.most_tokens),
            reason=self.reason,
        )

    def verdict(self) -> TrainingVerdict:
        completion = self.most_tokens
        return TrainingVerdict(
            gpu=self.gpu.id,
            gpus=self.training.layout.gpus,
            verdict=self.word,
            required=self.peak.total,
            usable=self.usable,
            spare=self.usable - self.peak.total,
            max_micro_batch=finite_limit(self.most_sequences),
            max_sequence=finite_limit(completion + self.objective.prompt if completion else 0),
            min_gpus=self.min_gpus(),
            reason=self.reason,
            notes=tuple(self.notes()),
        )
