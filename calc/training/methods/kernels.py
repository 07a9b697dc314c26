"""Log-probabilities of other trainers than TRL, by one kernel on whole logits of all tokens, which flash-attn's
cross-entropy is (ops/triton/cross_entropy.py). Entropies are compiled into another, which saves nothing."""

from calc.model.architecture import Architecture
from calc.training.ends import single_kernel_loss
from calc.training.methods.log_probs import loss_of, whole_logits
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.tape import TrackedTensor, scoped


def in_place(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    """verl 0.9 (workers/engine/fsdp/transformer_impl.py, `prepare_model_outputs`, and utils/torch_functional.py,
    `logprobs_from_logits`): logits as the head makes them, at temperature 1 no copy; their gradients take their
    place."""
    logits = whole_logits(t, model, x)
    t.leave_autocast()
    return loss_of(t, single_kernel_loss(t, logits))


def in_fp32(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    """OpenRLHF 0.11 (models/actor.py and models/utils.py, `log_probs_from_logits`): logits are cast to fp32, and their
    gradients stand next to them."""
    logits = whole_logits(t, model, x)
    t.leave_autocast()
    return loss_of(t, kernel_in_fp32(t, t.cast(logits, 4, "logits in 32 bits")))


@scoped
def kernel_in_fp32(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    side = logits.columns, logits.width, logits.unit
    loss = t.new("log-probabilities", 1, 4, logits.unit)
    return t.record(loss, [logits], lambda gradient: [t.gradient(side)], [logits.storage])
