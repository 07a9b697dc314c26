"""GRPO, arXiv:2402.03300, and RLOO, arXiv:2402.14740: completions in groups, scored against each other.
Log-probabilities of the policy that generated them, and of the reference, are made before the update."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.methods.log_probs import (
    entropies_with_gradient,
    label_log_probs,
    loss_of,
    outputs_of,
    shifted,
    use_entropies,
    whole_logits,
)
from calc.training.methods.method import QuietPass, TrainingMethod, fused_or
from calc.training.modules import Modules
from calc.training.objective import LogProbs, Objective, Release
from calc.training.tape import TrackedTensor, scoped


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    logits = outputs_of(t, whole_logits(t, model, x, last=True))
    return tempered_loss(t, logits, quiet=quiet, bonus=objective.entropy_bonus)


@scoped
def tempered_loss(t: Modules, logits: TrackedTensor, *, quiet: bool, bonus: bool) -> TrackedTensor:
    """Logits over the temperature, a copy next to what the model returned (TRL 1.12, trainer/grpo_trainer.py,
    `_get_per_token_logps_and_entropies`)."""
    scaled = t.local(t.scale(shifted(t, shifted(t, logits)), "logits over the temperature"))
    scored = label_log_probs(t, scaled)
    if quiet:
        return scored
    if bonus:
        return loss_of(t, scored, entropies_with_gradient(t, scaled))
    use_entropies(t, scaled, copied=False)
    return loss_of(t, scored)


def grpo_passes(objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]:
    """Old log-probabilities where a generation is used twice or an engine made it; those of the reference."""
    renews = objective.iterations > 1 or objective.engine_generates
    old = (QuietPass(by_policy=True, when="generation"),) if renews else ()
    return (*old, QuietPass(by_policy=False, when="generation")) if runs_reference else old


def rloo_passes(objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]:
    """Old log-probabilities always."""
    old = QuietPass(by_policy=True, when="generation")
    return (old, QuietPass(by_policy=False, when="generation")) if runs_reference else (old,)


HEAD = fused_or(head)
OTHERS: tuple[LogProbs, ...] = ("in-place", "in-fp32")
WAYS: dict[Release, tuple[LogProbs, ...]] = {"1.16": ("fused",), "1.12": ("whole",)}
GRPO = TrainingMethod(
    beta=0.0,
    title=Message("Group relative policy optimization (GRPO)"),
    sequences=1,
    head=HEAD,
    ways=WAYS,
    others=OTHERS,
    passes=grpo_passes,
    reference=True,
    generates=True,
)
RLOO = TrainingMethod(
    title=Message("REINFORCE leave-one-out (RLOO)"),
    sequences=1,
    head=HEAD,
    ways=WAYS,
    others=OTHERS,
    passes=rloo_passes,
    reference=True,
    generates=True,
)
