"""Supervised fine-tuning as TRL's SFTTrainer computes it."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.ends import cross_entropy, output_table, scalar
from calc.training.methods.log_probs import loss_of, shifted, use_entropies, whole_logits
from calc.training.methods.method import TrainingMethod, fused_or
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.tape import CountedBy, TrackedTensor, scoped

CHUNK = 256
"""Tokens of a chunk of chunked_nll."""


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    if objective.log_probs == "chunked":
        loss = chunked_loss(t, model, x)
        t.leave_autocast()
        return loss
    return logged_loss(t, whole_logits(t, model, x))


@scoped
def logged_loss(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """transformers' loss, within the model; accelerate's fp32 copy of the logits, of which entropies are logged."""
    loss = cross_entropy(t, logits)
    t.leave_autocast()
    wide = t.cast(logits, 4, "logits in 32 bits") if t.settings.autocast else logits
    t.free(logits)
    use_entropies(t, shifted(t, wide), copied=True)
    t.use(wide)
    return loss_of(t, loss)


@scoped
def chunked_loss(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """chunked_nll: each chunk of tokens meets the head in fp32 under activation checkpointing (TRL 1.12,
    trainer/sft_trainer.py, `_chunked_cross_entropy_loss`)."""
    table = output_table(t, model)
    t.mark_loss()
    places = t.new("places of scored tokens", 1, 8, x.unit)
    ordered = t.local(t.gather(t.slice(x, x.columns), places, x.columns, "states of scored tokens"))
    narrow = t.width if t.autocast else 4

    def multiplied() -> tuple[TrackedTensor, TrackedTensor]:
        """The head's weight as it is multiplied, by way of fp32, and the logits of a chunk."""
        wide = t.new("weights in 32 bits", table.columns, 4, CountedBy.ONCE)
        weight = t.new("weights in 16 bits", table.columns, narrow, CountedBy.ONCE, wide) if narrow != 4 else wide
        logits = t.new("logits of a chunk", CHUNK * model.vocab, narrow, CountedBy.ONCE)
        t.use(wide, weight)
        return weight, logits

    wide_logits = "log-softmax of the logits", CHUNK * model.vocab, 4, CountedBy.ONCE
    first = multiplied()[1]
    t.use(*[t.new(*wide_logits) for _ in range(3)], first)  # with the exponential and the product of the entropy

    def backward(_: TrackedTensor) -> list[TrackedTensor | None]:
        states = t.gradient((x.columns, x.width, x.unit))
        summed: TrackedTensor | None = None
        for chunk in range(2):  # from the second on all are alike
            weight, logits = multiplied()
            likely = t.new(*wide_logits, logits)
            side = CHUNK * model.vocab, 4, CountedBy.ONCE
            inner = t.gradient(side, t.gradient(side), likely)
            narrowed = t.in_type(inner, narrow)
            t.use(narrowed, weight)
            if table.node is not None:
                made = t.gradient((table.columns, narrow, CountedBy.ONCE), narrowed, weight)
                own = t.in_type(t.in_type(made, 4), table.width)
                both = (table.columns, table.width, CountedBy.ONCE)
                summed = own if chunk == 0 else t.gradient(both, own, summed)
        return [t.gradient((x.columns, x.width, x.unit), states), summed]

    return t.record(scalar(t), [ordered, table], backward, [ordered.storage])


SFT = TrainingMethod(
    title=Message("Supervised fine-tuning (SFT)"),
    sequences=1,
    head=fused_or(head),
    ways={"1.16": ("fused",), "1.12": ("chunked", "whole")},
)
