"""Direct preference optimization, arXiv:2305.18290: a policy against its reference, whose log-probabilities TRL makes
after the policy's forward pass, while that waits for its own backward."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.methods.hidden_states import casts_states, hidden_states, returned, wide_states
from calc.training.methods.log_probs import (
    label_log_probs,
    loss_of,
    outputs_of,
    shifted,
    use_entropies,
    whole_logits,
)
from calc.training.methods.method import QuietPass, TrainingMethod, fused_or, logits_in_rows
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.tape import CountedBy, TrackedTensor, scoped

REFERENCE_LOGITS = "logits of the reference"


def runs_reference(objective: Objective) -> bool:
    """Whether a reference runs in the step."""
    return objective.reference in ("model", "adapter-off")


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    if objective.trl == "0.24":
        return with_hidden_states(t, model, x, objective, quiet=quiet)
    if quiet:
        return logits_in_rows(t, model, x)
    return logged_loss(t, outputs_of(t, whole_logits(t, model, x)), objective)


@scoped
def logged_loss(t: Modules, logits: TrackedTensor, objective: Objective) -> TrackedTensor:
    """TRL 1.12, trainer/dpo_trainer.py, `_compute_loss`: the policy's logits, those of the reference, and a copy for
    the entropies that are logged."""
    view = shifted(t, logits)
    scored = label_log_probs(t, view)
    t.mark_reference()
    others = [reference_logits(t, logits)] if runs_reference(objective) else []
    with t.alive(*others):
        use_entropies(t, view, copied=True)
    return loss_of(t, scored)


def reference_logits(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Logits of the reference, with what a row of them takes."""
    made = t.new(REFERENCE_LOGITS, logits.columns, logits.width, CountedBy.LOGITS)
    t.use(t.new("exponentials of the logits", logits.columns, logits.width, CountedBy.SCORED_ROW), made)
    return made


def with_hidden_states(
    t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool
) -> TrackedTensor:
    """TRL 0.24, trainer/dpo_trainer.py, `concatenated_forward`: the model returns all hidden states too, which
    accelerate casts to fp32 with the logits."""
    saved = not quiet and (t.settings.checkpoints or t.settings.rest == 4)  # as what layers read
    states = [] if saved else [hidden_states(t, model)]
    narrow = whole_logits(t, model, x)
    t.leave_autocast()
    outputs = returned(t, model, narrow, states)
    scored = concatenated(t, *outputs, objective=objective)
    t.mark_reference()
    if not quiet and runs_reference(objective):
        logits = reference_logits(t, outputs[0])
        states = [wide_states(t, model)] if casts_states(t) else [hidden_states(t, model)]
        use_means(t, logits, objective)
        t.use(*states)
    return loss_of(t, scored)


@scoped
def concatenated(t: Modules, logits: TrackedTensor, *states: TrackedTensor, objective: Objective) -> TrackedTensor:
    """Log-probabilities of all tokens, next to the mean logits that are logged."""
    view = TrackedTensor(logits.storage, logits.columns, logits.width, CountedBy.SCORED)
    scored = label_log_probs(t, t.record(view, [logits], t.passing))
    use_means(t, logits, objective)
    return scored


def use_means(t: Modules, logits: TrackedTensor, objective: Objective) -> None:
    """A copy of the logits of the chosen completions, of which the mean is logged."""
    part = logits.columns * objective.completion // (2 * objective.sequence)
    t.use(t.new("copy of the logits", part, logits.width, CountedBy.LOGITS), logits)


def dpo_passes(objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]:
    return (QuietPass(by_policy=False, when="after"),) if runs_reference else ()


DPO = TrainingMethod(
    title=Message("Direct preference optimization (DPO)"),
    sequences=2,
    head=fused_or(head),
    ways={"1.16": ("fused",), "1.12": ("whole",), "0.24": ("whole",)},
    passes=dpo_passes,
    reference=True,
)
