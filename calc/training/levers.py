"""Changes that make a training step smaller: each with what it saves, and the least of them that make it fit."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.mig import unjoined
from calc.serving.fewest import MOST_GPUS
from calc.serving.verdict import VerdictWord
from calc.training.colocated import Colocated
from calc.training.layout import TrainingScenario
from calc.training.methods import METHODS
from calc.training.step import MOST, Training, fewest_replicas, finite_limit, word
from calc.training.workload import RECIPES, Colocation, Loss, TrainingWorkload

LEAST_SEQUENCE = 512
"""Tokens. Nobody is helped by a shorter sequence."""
EVEN = 128
"""Tokens that a shorter sequence is a multiple of."""
GivesUp = Literal["nothing", "time", "traffic", "precision", "length", "method"]
"""Price of a change: more computing or sending; the way to host memory; rounding; the data; which weights are
trained."""
CHEAP: tuple[GivesUp, ...] = ("nothing", "time")
SAME_TRAINING: tuple[GivesUp, ...] = (*CHEAP, "traffic")
"""The weights that come out are the same, but for rounding."""
Limited = Literal["micro_batch", "sequence"]
ScenarioPart = Literal["workload", "layout", "objective", "colocation"]


def with_fields(now: TrainingScenario, part: ScenarioPart, **fields: Any) -> TrainingScenario:
    """The scenario with other fields in one of its parts, which it may lack. Raises ConfigError where two fields of a
    workload exclude each other."""
    value = getattr(now, part)
    if value is None or all(getattr(value, name) == field for name, field in fields.items()):
        return now
    other = TrainingWorkload(**{**dict(value), **fields}) if part == "workload" else value.model_copy(update=fields)
    return now.model_copy(update={part: other})


def fields_of(scenario: TrainingScenario) -> dict[str, Any]:
    """Fields of the loss, of the engine, of the step and of its layout by name; a loss has its own lengths."""
    parts = (scenario.objective, scenario.colocation, scenario.workload, scenario.layout)
    fields = {name: value for part in parts if part is not None for name, value in part}
    return fields if scenario.objective is None else {name: fields[name] for name in fields if name != "sequence"}


def differences(before: TrainingScenario, after: TrainingScenario) -> dict[str, Any]:
    """The fields that differ, by the names that links and the command line have for them."""
    known = fields_of(before)
    changed = {name: value for name, value in fields_of(after).items() if value != known[name]}
    if after.recipe != before.recipe:
        changed["recipe"] = next(name for name, recipe in RECIPES.items() if recipe == after.recipe)
    if after.frozen != before.frozen:
        changed["weights"] = None  # as the method usually has it
    return changed


Change = Callable[["SmallerSteps", TrainingScenario], TrainingScenario]
"""The scenario with a change; as it was, where that makes no sense or is there already."""
SentenceFor = Message | Callable[[TrainingScenario], Message]


@dataclass(frozen=True)
class StepChange:
    """One way to a smaller step, with what it is called and what it costs where it has been made."""

    name: str
    what: SentenceFor
    cost: SentenceFor
    on: Change


def sets(part: ScenarioPart, when: Callable[[TrainingScenario], bool] = lambda now: True, **fields: Any) -> Change:
    """A change that sets fields, where the scenario is so."""
    return lambda smaller, now: with_fields(now, part, **fields) if when(now) else now


def zero(stage: int, **fields: Any) -> Change:
    return sets("layout", lambda now: now.layout.replicas > 1 and now.layout.zero <= stage, zero=stage, **fields)


def smaller_micro_batch(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    """The largest micro-batch that fits, or of one sequence; the same sequences in a step, where gradients can be
    accumulated."""
    work = now.workload
    if work.micro_batch == 1 or (fitting := smaller.largest(now, "micro_batch")) is None:
        return now
    fewer = next((n for n in range(fitting, 0, -1) if n < work.micro_batch and work.micro_batch % n == 0), 1)
    times = 1 if work.optimizer_in_backward else work.micro_batch // fewer
    return with_fields(now, "workload", micro_batch=fewer, accumulation=work.accumulation * times)


def updates_in_backward(now: TrainingScenario) -> bool:
    """Whether each gradient can be used as soon as it is there."""
    return now.workload.accumulation == now.layout.gpus == 1 and not now.recipe.buffers


def sixteen_bit_weights(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    return now.model_copy(update={"recipe": RECIPES["bf16"]}) if now.workload.trains_base else now


def adapters(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    if now.workload.method != "full":
        return now
    after = with_fields(now, "workload", method="lora").model_copy(update={"frozen": Precision()})
    copied = now.objective is not None and now.objective.reference == "model"
    return with_fields(after, "objective", reference="adapter-off") if copied and not has_teacher(now) else after


def quantized(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    if now.workload.method not in ("full", "lora") or now.frozen.weights == "nf4-dq":
        return now
    after = with_fields(now, "workload", method="qlora", quantized_experts=bool(smaller.training.architecture.experts))
    return after.model_copy(update={"frozen": Precision(weights="nf4-dq")})


def shorter_sequence(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    """The longest sequence that fits; of one that is generated, the longest completion."""
    fitting, objective = smaller.largest(now, "sequence") or 0, now.objective
    if objective is not None:
        tokens = EVEN * (min(fitting - objective.prompt, objective.completion - 1) // EVEN)
        after = with_fields(now, "objective", completion=tokens)
        return with_fields(after, "workload", sequence=objective.prompt + tokens) if tokens >= EVEN else now
    tokens = EVEN * (min(fitting, now.workload.sequence - 1) // EVEN)
    return with_fields(now, "workload", sequence=tokens) if tokens >= LEAST_SEQUENCE else now


WHOLE: tuple[Loss, ...] = ("whole", "native", "compiled")
"""Losses on logits of all tokens at once."""


# Changes of a loss of TRL's, and of its engine


def has_teacher(now: TrainingScenario) -> bool:
    return now.objective is not None and METHODS[now.objective.method].teacher


def without_logits(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    """The newest release's head, where that builds no logits."""
    if now.objective is None or now.objective.log_probs in ("fused", "none"):
        return now
    method = METHODS[now.objective.method]
    builds_none = "fused" in method.ways[method.newest]
    return with_fields(now, "objective", trl=method.newest, log_probs="fused") if builds_none else now


def compares_with_copy(now: TrainingScenario) -> bool:
    """Whether the policy is compared with a copy of itself on completions that are there before training."""
    objective = now.objective
    copied = objective is not None and objective.reference == "model" and not METHODS[objective.method].generates
    return copied and not has_teacher(now)


def engine_stays_awake(now: TrainingScenario) -> bool:
    """Whether an engine on these GPUs keeps what it has while the model is trained."""
    return now.colocation is not None and now.colocation.rollout != "server" and not now.colocation.sleep_level


def engine_share_that_fits(smaller: "SmallerSteps", now: TrainingScenario) -> TrainingScenario:
    """The largest share next to which the trainer fits; the least with which the engine starts, where that is more."""
    engine = smaller.engine(now)
    if engine is None or not engine.colocated or (least := engine.starting_share) is None:
        return now
    percent = round(100 * max(least, engine.largest_share))
    is_new = percent != round(100 * engine.colocation.share)
    return with_fields(now, "colocation", engine_share=percent / 100) if is_new else now


CHANGES: Mapping[GivesUp, tuple[StepChange, ...]] = {
    "nothing": (
        StepChange(
            "flash",
            Message("Flash attention"),
            Message("Another kernel; the result is the same."),
            sets("workload", attention="flash"),
        ),
        StepChange(
            "fused_loss",
            Message("Fused loss"),
            Message("Head and loss in one kernel, such as Liger's; the result is the same."),
            sets("workload", lambda now: now.workload.loss != "fused", loss="fused", keep_outputs=False),
        ),
        StepChange(
            "chunked_loss",
            Message("Chunked loss"),
            Message("The head on one chunk of tokens at a time; the result is the same."),
            sets("workload", lambda now: now.workload.loss in WHOLE, loss="chunked", keep_outputs=False),
        ),
        StepChange(
            "without_logits",
            Message("Log-probabilities without logits"),
            Message("A newer release of the trainer, whose head works by tiles; the result is the same."),
            without_logits,
        ),
    ),
    "time": (
        StepChange(
            "sleep",
            Message("Engine sleeps while the model is trained"),
            Message("Weights are handed over after every step in any case; the cache is allocated anew."),
            sets("colocation", engine_stays_awake, sleep_level=2),
        ),
        StepChange(
            "engine_share",
            lambda after: Message("{share:.2f} of the GPU for the engine", share=fields_of(after)["engine_share"]),
            Message("As many completions at once as the cache then holds."),
            engine_share_that_fits,
        ),
        StepChange(
            "precomputed",
            Message("Reference computed before training"),
            Message("One pass over all data before the first step."),
            sets("objective", compares_with_copy, reference="precomputed"),
        ),
        StepChange(
            "reshard",
            Message("Reshard after the forward pass"),
            Message("Each layer's weights are gathered once more."),
            sets("layout", reshard_after_forward=True),
        ),
        StepChange(
            "one_piece",
            Message("One piece on each pipeline stage"),
            lambda after: Message(
                "Fewer micro-batches under way, and a longer bubble: {share:.1%} of the step's work.",
                share=(after.layout.pp - 1) / after.workload.accumulation,
            ),
            sets("layout", vp=1),
        ),
        StepChange(
            "micro-batch",
            lambda after: Message(
                "Micro-batch of {n:,} sequence", plural="Micro-batch of {n:,} sequences", n=after.workload.micro_batch
            ),
            lambda after: Message(
                "More passes, each of fewer tokens: {n:,} micro-batches a step.", n=after.workload.accumulation
            ),
            smaller_micro_batch,
        ),
        StepChange(
            "zero_1",
            Message("ZeRO-1"),
            Message("Optimizer states are sharded: as much communication as without."),
            zero(1),
        ),
        StepChange(
            "zero_2",
            Message("ZeRO-2"),
            Message("Gradients are sharded too: as much communication as without."),
            zero(2),
        ),
        StepChange(
            "alternate",
            Message("Checkpointing of every other matmul"),
            Message("Half of the forward pass once more: about a sixth more compute."),
            sets("workload", lambda now: now.workload.recompute != "full", recompute="alternate"),
        ),
        StepChange(
            "checkpointing",
            Message("Full checkpointing"),
            Message("The forward pass once more: about a third more compute."),
            sets("workload", recompute="full"),
        ),
        StepChange(
            "zero_3",
            Message("ZeRO-3 / FSDP"),
            Message("Weights are sharded too: half as much communication again."),
            zero(3),
        ),
    ),
    "traffic": (
        StepChange(
            "offload",
            Message("Full checkpointing, offloaded to CPU"),
            Message("About a third more compute, and each layer's input crosses PCIe twice."),
            sets(
                "workload", lambda now: not now.workload.offload_activations, recompute="full", offload_activations=True
            ),
        ),
        StepChange(
            "states_on_host",
            Message("Optimizer states offloaded but for the update"),
            Message("States cross PCIe twice a step."),
            sets("colocation", offload_optimizer=True),
        ),
        StepChange(
            "weights_on_host",
            Message("Trained weights offloaded while generating"),
            Message("Weights cross PCIe twice a step."),
            sets("colocation", offload_weights=True),
        ),
        StepChange(
            "cpu_offload",
            Message("Weights and optimizer in CPU memory"),
            Message("FSDP's CPUOffload: all weights cross PCIe in each pass, and the CPU updates them."),
            zero(3, cpu_offload=True),
        ),
    ),
    "precision": (
        StepChange(
            "in_backward",
            Message("Optimizer in backward"),
            Message("No accumulation of gradients, and none clipped by the norm of all."),
            sets("workload", updates_in_backward, optimizer_in_backward=True),
        ),
        StepChange(
            "8_bits",
            Message("8-bit AdamW"),
            Message("Both moments are rounded to 8 bits, by blocks of 256."),
            sets(
                "workload", lambda now: now.workload.optimizer == "adamw", optimizer="adamw-8bit", optimizer_kernel=None
            ),
        ),
        StepChange(
            "16_bits",
            Message("Pure BF16"),
            Message("Weights, gradients and states in 16 bits: updates that are small beside a weight are lost."),
            sixteen_bit_weights,
        ),
    ),
    "length": (
        StepChange(
            "sequence",
            lambda after: (
                Message("Sequences of {n:,} tokens", n=after.workload.sequence)
                if after.objective is None
                else Message("Completions of {n:,} tokens", n=after.objective.completion)
            ),
            Message("Longer texts are cut or split."),
            shorter_sequence,
        ),
    ),
    "method": (
        StepChange(
            "LoRA",
            Message("LoRA"),
            Message("Another method: adapters are trained, the weights stay as they are."),
            adapters,
        ),
        StepChange(
            "QLoRA",
            Message("QLoRA"),
            Message("Another method: adapters beside weights that are rounded to 4 bits."),
            quantized,
        ),
    ),
}
"""Changes by what they give up, in the order in which people do."""


class TrainingLever(Frozen):
    """A change, by itself. Bytes are those of the most loaded GPU."""

    name: str
    what: Message
    cost: Message
    changes: dict[str, Any]
    saves: int
    spare: int
    verdict: VerdictWord


class CombinedLever(Frozen):
    """The least changes with which a step fits, together."""

    what: tuple[Message, ...]
    changes: dict[str, Any]
    saves: int
    spare: int
    gpus: int


class StepFit(NamedTuple):
    """Bytes on the most loaded GPU, and whether they fit."""

    total: int
    verdict: VerdictWord


def sentence_of(sentence: SentenceFor, after: TrainingScenario) -> Message:
    return sentence if isinstance(sentence, Message) else sentence(after)


class SmallerSteps:
    """Smaller steps that a training step on one kind of GPU could be, each weighed once."""

    def __init__(
        self,
        gpu: GPU,
        training: Training,
        allowed: Collection[GivesUp] = get_args(GivesUp),
        colocation: Colocation | None = None,
    ) -> None:
        self.gpu, self.training = gpu, training
        self.now = training.scenario.model_copy(update={"colocation": colocation})
        self.weighed = dict[TrainingScenario, StepFit]()
        self.changes = [change for price, changes in CHANGES.items() if price in allowed for change in changes]

    def at(self, scenario: TrainingScenario) -> Training:
        return self.training.changed(**{name: part for name, part in scenario if name != "colocation"})

    def engine(self, scenario: TrainingScenario) -> Colocated | None:
        """The step with the engine that generates; None: none is counted."""
        colocation = scenario.colocation
        return None if colocation is None else Colocated(self.at(scenario), colocation, self.gpu)

    def fit(self, scenario: TrainingScenario) -> StepFit:
        """Bytes on the most loaded GPU, and the verdict; with an engine those of the phase that is the peak."""
        fit = self.weighed.get(scenario)
        if fit is None:
            if (engine := self.engine(scenario)) is not None:
                fit = StepFit(engine.peak.total, engine.word)
            else:
                required = self.at(scenario).required
                fit = StepFit(required.total, word(required, self.gpu.usable_bytes))
            self.weighed[scenario] = fit
        return fit

    def fits(self, scenario: TrainingScenario) -> bool:
        return self.fit(scenario).verdict == "fits"

    def largest(self, scenario: TrainingScenario, of: Limited) -> int | None:
        """The most sequences or tokens that fit; None where memory sets no limit."""
        if (engine := self.engine(scenario)) is not None:
            if of == "micro_batch":
                return finite_limit(engine.most_sequences)
            tokens = engine.most_tokens
            return finite_limit(tokens and tokens + engine.objective.prompt)
        training = self.at(scenario)
        most = training.most_sequences if of == "micro_batch" else training.most_tokens
        return finite_limit(most(self.gpu.usable_bytes, MOST))

    @property
    def levers(self) -> tuple[TrainingLever, ...]:
        """The changes that save something, each by itself."""
        before, alone = self.fit(self.now).total, ((change, change.on(self, self.now)) for change in self.changes)
        return tuple(
            TrainingLever(
                name=change.name,
                what=sentence_of(change.what, after),
                cost=sentence_of(change.cost, after),
                changes=differences(self.now, after),
                saves=before - fit.total,
                spare=self.gpu.usable_bytes - fit.total,
                verdict=fit.verdict,
            )
            for change, after in alone
            if (fit := self.fit(after)).total < before
        )

    @property
    def chosen(self) -> list[StepChange] | None:
        """The least changes with which it fits: the first that does alone and gives nothing up but time; else all that
        help, in their order, less those without which it fits still, the dearest first. None where all of them do not
        do."""
        if self.fits(self.now):
            return []
        for change in chain.from_iterable(CHANGES[price] for price in CHEAP):
            if self.fits(change.on(self, self.now)):
                return [change]
        chosen = list(self.helping())
        return fewest(chosen, self.fits, self.after) if self.fits(self.after(chosen)) else None

    @property
    def least(self) -> CombinedLever | None:
        """The least changes with what they come to; None where it fits without, or with none."""
        chosen = self.chosen
        return self.together(chosen, self.after(chosen)) if chosen else None

    def helping(self, *, all_of_them: bool = False) -> Iterator[StepChange]:
        """Changes that save something on top of those before; until it fits, where not all are asked for."""
        scenario, fit = self.now, self.fit(self.now)
        for change in self.changes:
            if not all_of_them and fit.verdict == "fits":
                return
            after = change.on(self, scenario)
            if after is not scenario and (smaller := self.fit(after)).total < fit.total:
                scenario, fit = after, smaller
                yield change

    def after(self, chosen: Iterable[StepChange]) -> TrainingScenario:
        """The scenario with each of these changes, where it is one on top of those before."""
        scenario = self.now
        for change in chosen:
            scenario = change.on(self, scenario)
        return scenario

    def together(self, chosen: Iterable[StepChange], after: TrainingScenario) -> CombinedLever:
        needed = self.fit(after).total
        return CombinedLever(
            what=tuple(sentence_of(change.what, after) for change in chosen),
            changes=differences(self.now, after),
            saves=self.fit(self.now).total - needed,
            spare=self.gpu.usable_bytes - needed,
            gpus=after.layout.gpus,
        )


def fewest(
    chosen: list[StepChange],
    fits: Callable[[TrainingScenario], bool],
    after: Callable[[list[StepChange]], TrainingScenario],
) -> list[StepChange]:
    """Changes without those that are not needed, the dearest left out first."""
    for change in reversed(chosen.copy()):
        fewer = [other for other in chosen if other is not change]
        if fits(after(fewer)):
            chosen = fewer
    return chosen


def more_gpus(gpu: GPU, training: Training) -> CombinedLever | None:
    """The fewest GPUs on which it fits with everything sharded over them (ZeRO-3); where no number of replicas does,
    for none makes activations smaller, with cheap changes. None where these do not do either. GPUs of equal memory need
    as many."""
    if unjoined(gpu, 2) is not None:
        return None
    return training.shared.once(("more_gpus", training, gpu.usable_bytes), lambda: fewest_gpus(gpu, training))


def fewest_gpus(gpu: GPU, training: Training) -> CombinedLever | None:
    """The fewest GPUs that pass data to each other, with the changes that needs."""
    replica = training.layout.of_replica
    most = training.over(MOST_GPUS // replica)
    if most is None:  # the experts are not spread over so many
        return None
    spread = SmallerSteps(gpu, most, CHEAP)
    chosen = [] if spread.fits(spread.now) else list(spread.helping(all_of_them=True))
    gpus = fewest_replicas(spread.at(spread.after(chosen)), gpu.usable_bytes)
    if gpus is None:
        return None

    def over_fewest(changes: list[StepChange]) -> TrainingScenario:
        return with_fields(spread.after(changes), "layout", dp=gpus // replica)

    chosen = fewest(chosen, spread.fits, over_fewest)
    return SmallerSteps(gpu, training).together(chosen, over_fewest(chosen))


def over_gpus(gpu: GPU, training: Training, count: int) -> CombinedLever | None:
    """The least changes with which a step fits so many GPUs, all that belongs to weights sharded over several, and the
    same training done; None where none do, or its ranks are not so many."""
    own, replica = training.layout, training.layout.of_replica
    if count % replica or unjoined(gpu, count) is not None:
        return None
    layout = own.model_copy(update={"dp": count // replica, "zero": own.zero if count == own.gpus else 3})
    if not layout.fully_sharded:
        layout = layout.model_copy(update={"cpu_offload": False})
    try:
        laid_out = training.changed(layout=layout)
    except ConfigError:
        return None
    spread = SmallerSteps(gpu, laid_out, SAME_TRAINING)
    chosen = spread.chosen
    return None if chosen is None else SmallerSteps(gpu, training).together(chosen, spread.after(chosen))
