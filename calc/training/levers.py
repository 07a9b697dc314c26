"""What makes a training step smaller: each change with what it saves, and the least of them that make it fit."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.serving.fewest import MOST_GPUS
from calc.serving.verdict import Word
from calc.training.colocated import Colocated
from calc.training.layout import TrainingLayout
from calc.training.methods import METHODS
from calc.training.states import has_experts
from calc.training.step import MOST, Training, fewest_replicas, limit, word
from calc.training.workload import RECIPES, Colocation, Objective, Recipe, TrainingWorkload

# Changes that make a training step smaller: what each does to a setting, and what it costs.


LEAST_SEQUENCE = 512
"""Tokens. Nobody is helped by a shorter sequence."""
EVEN = 128
"""Tokens that a shorter sequence is a multiple of."""
GivesUp = Literal["nothing", "time", "traffic", "precision", "length", "method"]
"""What a change costs: computing or sending more; the way to host memory; rounding; the data; which weights are
trained."""
CHEAP: tuple[GivesUp, ...] = ("nothing", "time")
SAME_TRAINING: tuple[GivesUp, ...] = (*CHEAP, "traffic")
"""The weights that come out are the same, but for rounding."""


@dataclass(frozen=True)
class TrainingSetting:
    """What a reader can change about a step on one kind of GPU."""

    work: TrainingWorkload
    recipe: Recipe
    layout: TrainingLayout
    frozen: Precision
    has_experts: bool = False
    objective: Objective | None = None
    colocation: Colocation | None = None

    def working(self, **changes: Any) -> "TrainingSetting":
        """With another workload. Raises ConfigError where two of its fields exclude each other."""
        return replace(self, work=TrainingWorkload(**{**dict(self.work), **changes}))

    def spread(self, **changes: Any) -> "TrainingSetting":
        return replace(self, layout=self.layout.model_copy(update=changes))

    def scoring(self, **changes: Any) -> "TrainingSetting":
        """With another loss."""
        objective = None if self.objective is None else self.objective.model_copy(update=changes)
        return replace(self, objective=objective)

    def generating(self, **changes: Any) -> "TrainingSetting":
        """With another engine."""
        colocation = None if self.colocation is None else self.colocation.model_copy(update=changes)
        return replace(self, colocation=colocation)

    @property
    def fields(self) -> dict[str, Any]:
        """Those of the step and its layout, of the loss, which has its own lengths, and of the engine, by name."""
        parts = (self.objective, self.colocation, self.work, self.layout)
        fields = {name: value for part in parts if part is not None for name, value in part}
        return fields if self.objective is None else {name: fields[name] for name in fields if name != "sequence"}

    def changes(self, before: "TrainingSetting") -> dict[str, Any]:
        """The fields that differ, by the names that links and the command line have for them."""
        known = before.fields
        changed = {name: value for name, value in self.fields.items() if value != known[name]}
        if self.recipe != before.recipe:
            changed["recipe"] = next(name for name, recipe in RECIPES.items() if recipe == self.recipe)
        if self.frozen != before.frozen:
            changed["weights"] = None  # as the method usually has it
        return changed


Limited = Literal["micro_batch", "sequence", "engine_share"]
Largest = Callable[[TrainingSetting, Limited], int | None]
"""The most sequences of a micro-batch, tokens of a sequence, or per cent of the GPU for the engine, that fit; None: any
number does."""


@dataclass(frozen=True)
class StepChange:
    """One way to a smaller step. `on` gives the setting with it; None where it is so already, or makes no sense."""

    name: str
    gives_up: GivesUp
    on: Callable[[Largest, TrainingSetting], TrainingSetting | None]
    what: Callable[[TrainingSetting], Message]
    cost: Callable[[TrainingSetting], Message]


# The changes, the least first


def fused_loss(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return None if now.work.loss == "fused" else now.working(loss="fused", keep_outputs=False)


def chunked_loss(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return (
        None
        if now.work.loss in ("fused", "tiled", "stepwise", "chunked")
        else now.working(loss="chunked", keep_outputs=False)
    )


def flash(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return None if now.work.attention == "flash" else now.working(attention="flash")


def resharded(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return None if now.layout.reshard_after_forward else now.spread(reshard_after_forward=True)


def sharded(stage: int) -> Callable[[Largest, TrainingSetting], TrainingSetting | None]:
    def on(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
        return now.spread(zero=stage) if now.layout.replicas > 1 and now.layout.zero < stage else None

    return on


def plain_schedule(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return None if now.layout.vp == 1 else now.spread(vp=1)


def less_at_once(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    """The largest micro-batch that fits, or of one sequence; the same sequences in a step, where gradients can be
    accumulated."""
    work = now.work
    fitting = largest(now, "micro_batch")
    if work.micro_batch == 1 or fitting is None:
        return None
    smaller = next((n for n in range(fitting, 0, -1) if n < work.micro_batch and work.micro_batch % n == 0), 1)
    times = 1 if work.optimizer_in_backward else work.micro_batch // smaller
    return now.working(micro_batch=smaller, accumulation=work.accumulation * times)


def checkpointing(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return None if now.work.recompute == "full" else now.working(recompute="full")


def every_other(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return now.working(recompute="alternate") if now.work.recompute in ("none", "selective") else None


def offloading(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.work.offload_activations:
        return None
    return now.working(recompute="full", offload_activations=True)


def shards_offloaded(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return now.spread(zero=3, cpu_offload=True) if now.layout.replicas > 1 and not now.layout.cpu_offload else None


def in_backward(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    work = now.work
    if work.optimizer_in_backward or work.accumulation > 1 or now.layout.gpus > 1 or now.recipe.buffers:
        return None
    return now.working(optimizer_in_backward=True)


def eight_bits(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return now.working(optimizer="adamw-8bit", optimizer_kernel=None) if now.work.optimizer == "adamw" else None


def sixteen_bits(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    return None if not now.work.trains_base or now.recipe == RECIPES["bf16"] else replace(now, recipe=RECIPES["bf16"])


def adapters(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.work.method != "full":
        return None
    after = replace(now.working(method="lora"), frozen=Precision())
    copied = now.objective is not None and now.objective.reference == "model"
    return after.scoring(reference="adapter-off") if copied and not taught(now) else after


def quantized(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.work.method not in ("full", "lora") or now.frozen.weights == "nf4-dq":
        return None
    return replace(now.working(method="qlora", quantized_experts=now.has_experts), frozen=Precision(weights="nf4-dq"))


def shorter(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    """The longest sequence that fits; of one that is generated, the longest completion."""
    fitting = largest(now, "sequence") or 0
    if now.objective is not None:
        objective = now.objective
        tokens = EVEN * (min(fitting - objective.prompt, objective.completion - 1) // EVEN)
        if tokens < EVEN:
            return None
        return now.scoring(completion=tokens).working(sequence=objective.prompt + tokens)
    tokens = EVEN * (min(fitting, now.work.sequence - 1) // EVEN)
    return now.working(sequence=tokens) if tokens >= LEAST_SEQUENCE else None


# Changes of a loss of TRL's, and of its engine


def taught(now: TrainingSetting) -> bool:
    """Whether a teacher's distribution is learned."""
    return now.objective is not None and METHODS[now.objective.method].teacher


def without_logits(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    """The newest release's head, where that builds no logits."""
    if now.objective is None or now.objective.log_probs in ("fused", "none"):
        return None
    method = METHODS[now.objective.method]
    builds_none = "fused" in method.ways[method.newest]
    return now.scoring(trl=method.newest, log_probs="fused") if builds_none else None


def precomputed(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    objective = now.objective
    if objective is None or objective.reference != "model" or METHODS[objective.method].generates or taught(now):
        return None
    return now.scoring(reference="precomputed")


def asleep(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.colocation is None or now.colocation.rollout == "server" or now.colocation.sleep_level:
        return None
    return now.generating(sleep_level=2)


def other_share(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    """The largest share next to which the trainer fits; the least with which the engine starts, where that is more."""
    if now.colocation is None or now.colocation.rollout == "server":
        return None
    share = round(largest(now, "engine_share") or 0, 2)
    return now.generating(engine_share=share / 100) if share not in (0, round(100 * now.colocation.share)) else None


def states_on_host(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.colocation is None or now.colocation.offload_optimizer:
        return None
    return now.generating(offload_optimizer=True)


def weights_on_host(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.colocation is None or now.colocation.offload_weights:
        return None
    return now.generating(offload_weights=True)


def said(sentence: Message) -> Callable[[TrainingSetting], Message]:
    """The same whatever the setting is."""
    return lambda setting: sentence


NOTHING = Message("Another kernel; the result is the same.")
CHANGES: tuple[StepChange, ...] = (
    StepChange("flash", "nothing", flash, said(Message("Flash attention")), said(NOTHING)),
    StepChange(
        "fused_loss",
        "nothing",
        fused_loss,
        said(Message("Fused loss")),
        said(Message("Head and loss in one kernel, such as Liger's; the result is the same.")),
    ),
    StepChange(
        "chunked_loss",
        "nothing",
        chunked_loss,
        said(Message("Chunked loss")),
        said(Message("The head on one chunk of tokens at a time; the result is the same.")),
    ),
    StepChange(
        "without_logits",
        "nothing",
        without_logits,
        said(Message("Log-probabilities without logits")),
        said(Message("A newer release of the trainer, whose head works by tiles; the result is the same.")),
    ),
    StepChange(
        "sleep",
        "time",
        asleep,
        said(Message("Engine sleeps while the model is trained")),
        said(Message("Weights are handed over after every step in any case; the cache is allocated anew.")),
    ),
    StepChange(
        "engine_share",
        "time",
        other_share,
        lambda after: Message("{share:.2f} of the GPU for the engine", share=after.fields["engine_share"]),
        said(Message("As many completions at once as the cache then holds.")),
    ),
    StepChange(
        "precomputed",
        "time",
        precomputed,
        said(Message("Reference computed before training")),
        said(Message("One pass over all data before the first step.")),
    ),
    StepChange(
        "reshard",
        "time",
        resharded,
        said(Message("Reshard after the forward pass")),
        said(Message("Each layer's weights are gathered once more.")),
    ),
    StepChange(
        "one_piece",
        "time",
        plain_schedule,
        said(Message("One piece on each pipeline stage")),
        lambda after: Message(
            "Fewer micro-batches under way, and a longer bubble: {share:.1%} of the step's work.",
            share=(after.layout.pp - 1) / after.work.accumulation,
        ),
    ),
    StepChange(
        "micro-batch",
        "time",
        less_at_once,
        lambda after: Message(
            "Micro-batch of {n:,} sequence",
            plural="Micro-batch of {n:,} sequences",
            n=after.work.micro_batch,
        ),
        lambda after: Message(
            "More passes, each of fewer tokens: {n:,} micro-batches a step.", n=after.work.accumulation
        ),
    ),
    StepChange(
        "zero_1",
        "time",
        sharded(1),
        said(Message("ZeRO-1")),
        said(Message("Optimizer states are sharded: as much communication as without.")),
    ),
    StepChange(
        "zero_2",
        "time",
        sharded(2),
        said(Message("ZeRO-2")),
        said(Message("Gradients are sharded too: as much communication as without.")),
    ),
    StepChange(
        "alternate",
        "time",
        every_other,
        said(Message("Checkpointing of every other matmul")),
        said(Message("Half of the forward pass once more: about a sixth more compute.")),
    ),
    StepChange(
        "checkpointing",
        "time",
        checkpointing,
        said(Message("Full checkpointing")),
        said(Message("The forward pass once more: about a third more compute.")),
    ),
    StepChange(
        "zero_3",
        "time",
        sharded(3),
        said(Message("ZeRO-3 / FSDP")),
        said(Message("Weights are sharded too: half as much communication again.")),
    ),
    StepChange(
        "offload",
        "traffic",
        offloading,
        said(Message("Full checkpointing, offloaded to CPU")),
        said(Message("About a third more compute, and each layer's input crosses PCIe twice.")),
    ),
    StepChange(
        "states_on_host",
        "traffic",
        states_on_host,
        said(Message("Optimizer states offloaded but for the update")),
        said(Message("States cross PCIe twice a step.")),
    ),
    StepChange(
        "weights_on_host",
        "traffic",
        weights_on_host,
        said(Message("Trained weights offloaded while generating")),
        said(Message("Weights cross PCIe twice a step.")),
    ),
    StepChange(
        "cpu_offload",
        "traffic",
        shards_offloaded,
        said(Message("Weights and optimizer in CPU memory")),
        said(Message("FSDP's CPUOffload: all weights cross PCIe in each pass, and the CPU updates them.")),
    ),
    StepChange(
        "in_backward",
        "precision",
        in_backward,
        said(Message("Optimizer in backward")),
        said(Message("No accumulation of gradients, and none clipped by the norm of all.")),
    ),
    StepChange(
        "8_bits",
        "precision",
        eight_bits,
        said(Message("8-bit AdamW")),
        said(Message("Both moments are rounded to 8 bits, by blocks of 256.")),
    ),
    StepChange(
        "16_bits",
        "precision",
        sixteen_bits,
        said(Message("Pure BF16")),
        said(Message("Weights, gradients and states in 16 bits: updates that are small beside a weight are lost.")),
    ),
    StepChange(
        "sequence",
        "length",
        shorter,
        lambda after: (
            Message("Sequences of {n:,} tokens", n=after.work.sequence)
            if after.objective is None
            else Message("Completions of {n:,} tokens", n=after.objective.completion)
        ),
        said(Message("Longer texts are cut or split.")),
    ),
    StepChange(
        "LoRA",
        "method",
        adapters,
        said(Message("LoRA")),
        said(Message("Another method: adapters are trained, the weights stay as they are.")),
    ),
    StepChange(
        "QLoRA",
        "method",
        quantized,
        said(Message("QLoRA")),
        said(Message("Another method: adapters beside weights that are rounded to 4 bits.")),
    ),
)
"""In the order in which people give things up."""


class TrainingLever(Frozen):
    """A change, by itself. Bytes are those of the most loaded GPU."""

    name: str
    what: Message
    cost: Message
    changes: dict[str, Any]
    saves: int
    spare: int
    verdict: Word


class Together(Frozen):
    """The least changes with which it fits."""

    what: tuple[Message, ...]
    changes: dict[str, Any]
    saves: int
    spare: int
    gpus: int


class StepFit(NamedTuple):
    """Bytes on the most loaded GPU, and whether they fit."""

    total: int
    verdict: Word


class Smaller:
    """A step on one kind of GPU, and the smaller steps that it could be."""

    def __init__(
        self,
        gpu: GPU,
        training: Training,
        allowed: Collection[GivesUp] = get_args(GivesUp),
        colocation: Colocation | None = None,
    ) -> None:
        self.gpu, self.training, self.now = (
            gpu,
            training,
            TrainingSetting(
                training.work,
                training.recipe,
                training.layout,
                training.frozen,
                has_experts(training.architecture),
                training.objective,
                colocation,
            ),
        )
        self.weighed = dict[TrainingSetting, StepFit]()
        self.changes = [change for change in CHANGES if change.gives_up in allowed]

    def at(self, setting: TrainingSetting) -> Training:
        return self.training.changed(setting.work, setting.recipe, setting.layout, setting.frozen, setting.objective)

    def engine(self, setting: TrainingSetting) -> Colocated | None:
        """The step with the engine that generates; None: none is counted."""
        colocation = setting.colocation
        return None if colocation is None else Colocated(self.at(setting), colocation, self.gpu)

    def fit(self, setting: TrainingSetting) -> StepFit:
        """Bytes on the most loaded GPU, and the verdict; with an engine those of the phase that is the peak."""
        if setting not in self.weighed:
            engine = self.engine(setting)
            if engine is None:
                memory = self.at(setting).memory()
                self.weighed[setting] = StepFit(memory.total, word(memory, self.gpu.usable_bytes))
            else:
                self.weighed[setting] = StepFit(engine.peak.total, engine.word)
        return self.weighed[setting]

    def needs(self, setting: TrainingSetting) -> int:
        """Bytes on the most loaded GPU."""
        return self.fit(setting).total

    def fits(self, setting: TrainingSetting) -> bool:
        return self.fit(setting).verdict == "fits"

    def largest(self, setting: TrainingSetting, of: Limited) -> int | None:
        """The most sequences, tokens or per cent that fit; None where memory sets no limit."""
        training, usable = self.at(setting), self.gpu.usable_bytes
        if (engine := self.engine(setting)) is not None:
            if of == "engine_share":
                least = engine.least_share(1)
                share = max(least, engine.largest_share) if least is not None else 0
                return round(100 * share)
            tokens = engine.most_tokens()
            return limit(
                engine.most_sequences() if of == "micro_batch" else tokens and tokens + engine.objective.prompt
            )
        most = training.most_sequences if of == "micro_batch" else training.most_tokens
        return limit(most(usable, MOST))

    @property
    def before(self) -> int:
        return self.needs(self.now)

    @property
    def levers(self) -> tuple[TrainingLever, ...]:
        """Each change that saves something by itself."""
        alone = ((change, change.on(self.largest, self.now)) for change in self.changes)
        return tuple(
            self.lever(change, after)
            for change, after in alone
            if after is not None and self.needs(after) < self.before
        )

    def lever(self, change: StepChange, after: TrainingSetting) -> TrainingLever:
        fit, usable = self.fit(after), self.gpu.usable_bytes
        return TrainingLever(
            name=change.name,
            what=change.what(after),
            cost=change.cost(after),
            changes=after.changes(self.now),
            saves=self.before - fit.total,
            spare=usable - fit.total,
            verdict=fit.verdict,
        )

    @property
    def chosen(self) -> list[StepChange] | None:
        """The least changes with which it fits: the first that does alone and gives nothing up but time; else all that
        help, in their order, less those without which it fits still, the dearest first. None where all of them do not
        do."""
        if self.fits(self.now):
            return []
        for change in self.changes:
            after = change.on(self.largest, self.now)
            if change.gives_up in CHEAP and after is not None and self.fits(after):
                return [change]
        chosen = list(self.helping())
        if not self.fits(self.after(chosen)):
            return None
        for change in reversed(chosen.copy()):
            fewer = [other for other in chosen if other is not change]
            if self.fits(self.after(fewer)):
                chosen = fewer
        return chosen

    @property
    def least(self) -> Together | None:
        """The same with what they come to; None where it fits, too."""
        chosen = self.chosen
        return self.together(chosen, self.after(chosen)) if chosen else None

    def helping(self, *, all_of_them: bool = False) -> Iterator[StepChange]:
        """Changes that save something on top of those before; until it fits, where not all are asked for."""
        setting, needed = self.now, self.before
        for change in self.changes:
            if not all_of_them and self.fits(setting):
                return
            after = change.on(self.largest, setting)
            if after is not None and (smaller := self.needs(after)) < needed:
                setting, needed = after, smaller
                yield change

    def after(self, chosen: Iterable[StepChange]) -> TrainingSetting:
        """With each of these changes, where it is one on top of those before."""
        setting = self.now
        for change in chosen:
            setting = change.on(self.largest, setting) or setting
        return setting

    def together(self, chosen: Iterable[StepChange], after: TrainingSetting) -> Together:
        needed = self.needs(after)
        return Together(
            what=tuple(change.what(after) for change in chosen),
            changes=after.changes(self.now),
            saves=self.before - needed,
            spare=self.gpu.usable_bytes - needed,
            gpus=after.layout.gpus,
        )


def more_gpus(gpu: GPU, training: Training) -> Together | None:
    """The fewest GPUs on which it fits with everything sharded over them (ZeRO-3); where no number of replicas does,
    for none makes activations smaller, with cheap changes beside. None where these do not do either."""
    own = training.layout
    replica = own.gpus // own.dp
    try:
        most = training.changed(layout=own.model_copy(update={"dp": MOST_GPUS // replica, "zero": 3}))
    except ConfigError:  # the experts are not spread over so many
        return None
    spread = Smaller(gpu, most, CHEAP)
    chosen = [] if spread.fits(spread.now) else list(spread.helping(all_of_them=True))
    gpus = fewest_replicas(spread.at(spread.after(chosen)), gpu.usable_bytes)
    if gpus is None:
        return None
    for change in reversed(chosen.copy()):
        fewer = [other for other in chosen if other is not change]
        if spread.fits(spread.after(fewer).spread(dp=gpus // replica)):
            chosen = fewer
    return Smaller(gpu, training).together(chosen, spread.after(chosen).spread(dp=gpus // replica))


def over_gpus(gpu: GPU, training: Training, count: int) -> Together | None:
    """The least changes with which a step fits so many GPUs, all that belongs to weights sharded over several, and the
    same training done; None where none do, or its ranks are not so many."""
    own = training.layout
    replica = own.gpus // own.dp
    if count % replica:
        return None
    layout = own.model_copy(update={"dp": count // replica, "zero": own.zero if count == own.gpus else 3})
    if not layout.fully_sharded:
        layout = layout.model_copy(update={"cpu_offload": False})
    try:
        laid_out = training.changed(layout=layout)
    except ConfigError:
        return None
    spread = Smaller(gpu, laid_out, SAME_TRAINING)
    chosen = spread.chosen
    return None if chosen is None else Smaller(gpu, training).together(chosen, spread.after(chosen))
