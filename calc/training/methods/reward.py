"""A reward model on pairs, arXiv:2203.02155 section 3.5: one score for each sequence, and no logits."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.block import Extra
from calc.training.ends import scalar
from calc.training.methods.log_probs import loss_of
from calc.training.methods.method import TrainingMethod
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.states import SCORE
from calc.training.tape import TrackedTensor, scoped


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    scores = scored(t, x)
    t.leave_autocast()
    return loss_of(t, scores)


@scoped
def scored(t: Modules, x: TrackedTensor) -> TrackedTensor:
    """The score of the last token of each sequence, of those that are made for all."""
    weight = t.weight(x.columns, t.settings.rest, trained=True)
    t.mark_loss()
    scores = t.linear(x, weight, 1, "scores", x.unit)
    side = 1, scores.width, scores.unit
    return t.record(scalar(t), [scores], lambda gradient: [t.gradient(side, t.gradient(side))])


def reward_model(model: Architecture) -> Architecture:
    """The model with a head of one column in place of its vocabulary (transformers,
    `AutoModelForSequenceClassification`, num_labels 1)."""
    score = Extra(name=SCORE, shape=(1, model.hidden), component="lm_head")
    return model.model_copy(update={"tied": True, "extras": (*model.extras, score)})


REWARD = TrainingMethod(
    title=Message("Reward model"),
    sequences=2,
    head=head,
    model=reward_model,
    reads_table=False,
    ways={"1.16": ("none",), "1.12": ("none",)},
)
