"""PPO, arXiv:1707.06347, as TRL's experimental trainer has it (1.12, trl/experimental/ppo/ppo_trainer.py): a value
model as large as the policy is trained with it, and a reward model stands next to both."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.methods.grpo import OTHERS, rloo_passes
from calc.training.methods.hidden_states import hidden_states, returned
from calc.training.methods.log_probs import label_log_probs, loss_of, shifted, whole_logits
from calc.training.methods.method import TrainingMethod, fused_or
from calc.training.methods.reward import head as score
from calc.training.methods.reward import reward_model
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.tape import TrackedTensor


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    """Whole logits and all hidden states, which the training loop holds until the update is over."""
    saved = not quiet and (t.settings.checkpoints or t.settings.rest == 4)  # as what layers read
    states = [] if saved else [hidden_states(t, model)]
    logits = whole_logits(t, model, x)
    t.leave_autocast()
    outputs = returned(t, model, logits, states)
    scored = label_log_probs(t, t.scaled_in_place(shifted(t, outputs[0])))
    if quiet:
        t.use(*outputs)
    else:
        t.outputs += outputs
    return loss_of(t, scored)


PPO = TrainingMethod(
    title=Message("Proximal policy optimization (PPO)"),
    sequences=1,
    head=fused_or(head),
    ways={"1.12": ("whole",)},
    others=OTHERS,
    passes=rloo_passes,
    reference=True,
    generates=True,
    groups=False,
    values=True,
    verified=False,
)
VALUE = TrainingMethod(
    title=Message("Value model"),
    sequences=1,
    head=score,
    ways={"1.12": ("none",)},
    model=reward_model,
    reads_table=False,
)
"""The model that is trained with the policy."""
