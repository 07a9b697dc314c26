"""ORPO, arXiv:2403.07691; SimPO, arXiv:2405.14734, and CPO, arXiv:2401.08417: preference without a reference, on whole
logits (TRL, trl/experimental)."""

from functools import partial

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.ends import cross_entropy
from calc.training.methods.log_probs import label_log_probs, loss_of, outputs_of, shifted, whole_logits
from calc.training.methods.method import TrainingMethod
from calc.training.modules import Modules
from calc.training.objective import LogProbs, Objective, Release
from calc.training.tape import CountedBy, TrackedTensor, scoped


def head(
    t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool, likelihood: bool
) -> TrackedTensor:
    logits = outputs_of(t, whole_logits(t, model, x))
    return pair_loss(t, logits) if not likelihood else likelihood_loss(t, logits)


@scoped
def pair_loss(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Log-probabilities of both halves of the pairs."""
    return loss_of(t, label_log_probs(t, shifted(t, logits)))


@scoped
def likelihood_loss(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """The same, after the cross-entropy of the chosen half, whose logits are copied for it."""
    return loss_of(t, chosen_likelihood(t, logits), label_log_probs(t, shifted(t, logits)))


@scoped
def chosen_likelihood(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    half, whole = logits.columns // 2, (logits.columns, logits.width, logits.unit)
    copy = t.local(t.new("copy of the logits", half, logits.width, CountedBy.SCORED))
    side = half, logits.width, CountedBy.LOGITS

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        return [t.gradient(whole, t.gradient(side, gradient))]  # into zeros, first of the shift and then of the half

    t.record(copy, [logits], backward)
    return cross_entropy(t, copy, upcast=False)


WAYS: dict[Release, tuple[LogProbs, ...]] = {"1.16": ("whole",), "1.12": ("whole",)}
ORPO = TrainingMethod(
    title=Message("Odds ratio preference optimization (ORPO)"),
    sequences=2,
    head=partial(head, likelihood=True),
    ways=WAYS,
)
CPO = TrainingMethod(
    title=Message("Contrastive preference optimization (CPO)"),
    sequences=2,
    head=partial(head, likelihood=True),
    ways=WAYS,
)
SIMPO = TrainingMethod(
    title=Message("Simple preference optimization (SimPO)"),
    sequences=2,
    head=partial(head, likelihood=False),
    ways=WAYS,
)
