"""KTO, arXiv:2402.01306: single completions, wanted or not, against a reference; and a KL term by mismatched ones."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.methods.dpo import dpo_passes, reference_logits, runs_reference
from calc.training.methods.log_probs import (
    label_log_probs,
    loss_of,
    outputs_of,
    shifted,
    use_entropies,
    whole_logits,
)
from calc.training.methods.method import QuietPass, TrainingMethod, fused_or
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.tape import CountedBy, TrackedTensor, scoped


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    cache = cached(t, model) if quiet else None  # a policy under checkpointing makes none, or saves it in any case
    logits = outputs_of(t, whole_logits(t, model, x))
    if cache is None:
        return logged_loss(t, model, logits, objective)
    scored = label_log_probs(t, shifted(t, logits))
    t.use(cache)
    return scored


def cached(t: Modules, model: Architecture) -> TrackedTensor:
    """Keys and values of all layers, which the model returns where use_cache is not turned off."""
    columns = sum(len(block.layers) * mixer.cached_elements() for block in model.blocks for mixer in block.mixers)
    return t.new("keys and values of all layers", columns, t.settings.compute)


@scoped
def logged_loss(t: Modules, model: Architecture, logits: TrackedTensor, objective: Objective) -> TrackedTensor:
    """TRL 1.12, trainer/kto_trainer.py, `_compute_loss`: logits of policy and reference, a copy for the entropies that
    are logged, then copies of both halves of the batch, and of the first one's completions."""
    view = shifted(t, logits)
    scored = label_log_probs(t, view)
    t.mark_reference()
    others = [reference_logits(t, logits), cached(t, model)] if runs_reference(objective) else []
    with t.alive(*others):
        use_entropies(t, view, copied=True)
        halves = t.new("copy of the logits", logits.columns, logits.width, CountedBy.SCORED)
        part = logits.columns * objective.completion // (2 * objective.sequence)
        t.use(t.new("copy of the logits", part, logits.width, CountedBy.SCORED), halves, logits)
    return loss_of(t, scored)


def kto_passes(objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]:
    """Mismatched pairs of prompt and completion, for the KL term: by the policy before all; by the reference before its
    own pass."""
    of_reference = dpo_passes(objective, runs_reference=runs_reference)
    return (QuietPass(by_policy=True, when="before"), *(quiet._replace(times=2) for quiet in of_reference))


KTO = TrainingMethod(
    title=Message("Kahneman-Tversky optimization (KTO)"),
    sequences=1,
    head=fused_or(head),
    ways={"1.16": ("fused",), "1.12": ("whole",)},
    passes=kto_passes,
    reference=True,
)
