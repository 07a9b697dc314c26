"""Changes that make a training step smaller: what each does to a setting, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from calc.errors import Message
from calc.formats import Precision
from calc.training.recipe import RECIPES, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import TrainingWorkload

LEAST_SEQUENCE = 512
"""Tokens. Nobody is helped by a shorter sequence."""
EVEN = 128
"""Tokens that a shorter sequence is a multiple of."""
GivesUp = Literal["nothing", "time", "traffic", "precision", "length", "method"]
"""What a change costs: computing or sending more; the way to host memory; rounding; the data; which weights are
trained."""
CHEAP: tuple[GivesUp, ...] = ("nothing", "time")


@dataclass(frozen=True)
class TrainingSetting:
    """What a reader can change about a step on one kind of GPU."""

    work: TrainingWorkload
    recipe: Recipe
    layout: TrainingLayout
    frozen: Precision
    has_experts: bool = False

    def working(self, **changes: Any) -> "TrainingSetting":
        """With another workload. Raises ConfigError where two of its fields exclude each other."""
        return replace(self, work=TrainingWorkload(**{**dict(self.work), **changes}))

    def spread(self, **changes: Any) -> "TrainingSetting":
        return replace(self, layout=self.layout.model_copy(update=changes))

    def changes(self, before: "TrainingSetting") -> dict[str, Any]:
        """The fields that differ, by the names that links and the command line have for them."""
        known = {**dict(before.work), **dict(before.layout)}
        changed = {
            name: value for name, value in {**dict(self.work), **dict(self.layout)}.items() if value != known[name]
        }
        if self.recipe != before.recipe:
            changed["recipe"] = next(name for name, recipe in RECIPES.items() if recipe == self.recipe)
        if self.frozen != before.frozen:
            changed["weights"] = None  # as the method usually has it
        return changed


Largest = Callable[[TrainingSetting, Literal["micro_batch", "sequence"]], int | None]
"""The most sequences of a micro-batch, or tokens of a sequence, that fit; None: any number does."""


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
    return replace(now.working(method="lora"), frozen=Precision()) if now.work.method == "full" else None


def quantized(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    if now.work.method not in ("full", "lora") or now.frozen.weights == "nf4-dq":
        return None
    return replace(now.working(method="qlora", quantized_experts=now.has_experts), frozen=Precision(weights="nf4-dq"))


def shorter(largest: Largest, now: TrainingSetting) -> TrainingSetting | None:
    """The longest sequence that fits."""
    fitting = largest(now, "sequence") or 0
    tokens = EVEN * (min(fitting, now.work.sequence - 1) // EVEN)
    return now.working(sequence=tokens) if tokens >= LEAST_SEQUENCE else None


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
        lambda after: Message("Sequences of {n:,} tokens", n=after.work.sequence),
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
