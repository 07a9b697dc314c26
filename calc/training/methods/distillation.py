"""Distillation from a teacher's distribution over the whole vocabulary, arXiv:2306.13649: GKD as TRL's experimental
trainer has it, on whole logits of both; and TRL's own distillation, on tiles of them."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.ends import LOGIT_GRADIENTS, TILE, output_table, states
from calc.training.methods.log_probs import loss_of, outputs_of, shifted, whole_logits
from calc.training.methods.method import QuietPass, TrainingMethod
from calc.training.modules import Modules
from calc.training.objective import Objective
from calc.training.operations import sides_of
from calc.training.tape import CountedBy, TrackedTensor, scoped

TEACHER = "logits of the teacher"
STATISTICS = 12
"""Vectors in fp32 that a tile of both models' logits is folded into (TRL 1.16, kernels/chunked_divergence.py)."""


def whole(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    """Whole logits of all tokens; the teacher's are made while those of the policy wait."""
    logits = outputs_of(t, whole_logits(t, model, x))
    if quiet:
        return logits
    t.mark_reference()
    teacher = t.new(TEACHER, logits.columns, logits.width, CountedBy.LOGITS)
    with t.alive(logits, teacher):
        return divergence(t, shifted(t, logits), shifted(t, teacher), objective)


@scoped
def divergence(t: Modules, student: TrackedTensor, teacher: TrackedTensor, objective: Objective) -> TrackedTensor:
    """TRL 1.16, experimental/gkd/gkd_trainer.py, `generalized_jsd_loss`: both over the temperature, their
    log-softmax, and the divergence of each token and word, of which those of completions are copied."""
    own = t.local(t.scale(student, "logits over the temperature"))
    other = t.local(t.scale(teacher, "logits over the temperature"))
    own = t.local(t.result_saved(own, "log-softmax of the logits"))
    other = t.local(t.result_saved(other, "log-softmax of the teacher's logits"))
    if objective.beta == 0:
        each = relative(t, own, other)
    elif objective.beta == 1:
        each = relative(t, other, own)
    else:
        each = to_the_mixture(t, own, other)
    part = each.columns * objective.completion // objective.sequence
    side = each.columns, each.width, each.unit
    scored = t.new("divergences", part, each.width, each.unit)
    return loss_of(t, t.record(scored, [each], lambda gradient: [t.gradient(side, t.gradient(side))]))


@scoped
def to_the_mixture(t: Modules, own: TrackedTensor, other: TrackedTensor) -> TrackedTensor:
    """Of both distributions to their mixture, weighed."""
    mixture = t.local(mixed(t, own, other))
    of_teacher = t.local(relative(t, mixture, other))
    of_student = t.local(relative(t, mixture, own))
    name = "divergences"
    return t.add(t.scale(of_teacher, name), t.scale(of_student, name), name)


def mixed(t: Modules, own: TrackedTensor, other: TrackedTensor) -> TrackedTensor:
    """logsumexp(stack([own + a, other + b])): saves the stack and its result."""
    name, half = "log-probabilities of the mixture", (own.columns, own.width, own.unit)
    pair = 2 * own.columns, own.width, own.unit
    parts = [t.shift(own, name), t.shift(other, name)]
    t.gradient_names = t.gradient_names | {pair[0]: LOGIT_GRADIENTS}
    stack = t.new("distributions of both models", *pair)
    both = t.record(stack, parts, lambda gradient: [TrackedTensor(gradient.storage, *half) for _ in parts])
    t.use(t.new("distributions of both models", *pair), both)

    def backward(_: TrackedTensor) -> list[TrackedTensor | None]:
        return [t.steps(pair, 3)]  # the difference, its exponential, that times the gradient

    out = t.new(name, *half)
    return t.record(out, [both], backward, [both.storage, out.storage])


def relative(t: Modules, student: TrackedTensor, target: TrackedTensor) -> TrackedTensor:
    """kl_div(student, target, log_target=True) of each element: exp(target) * (target - student)."""
    likely = t.result_saved(target, "probabilities of the vocabulary")
    return t.multiply(likely, t.subtract(target, student, "differences of log-probabilities"), "divergences")


def tiled(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    """Head and divergence by tiles of scored tokens and vocabulary, all within autocast (TRL 1.16,
    trainer/distillation_trainer.py, `_chunked_divergence_loss`). Of the teacher's pass its last states stay."""
    x = states(t, model, x)
    if quiet:
        t.mark_loss()
        return x
    t.mark_reference()
    loss = loss_of(t, tiled_divergence(t, model, x, objective.teacher or model))
    t.leave_autocast()
    return loss


@scoped
def tiled_divergence(t: Modules, model: Architecture, x: TrackedTensor, teacher: Architecture) -> TrackedTensor:
    """TRL 1.16, kernels/chunked_divergence.py, `ChunkedDivergenceFunction`: tiles of both models' logits in fp32, made
    again on the way back, where the gradients of the policy's states and head add up in fp32."""
    table = output_table(t, model)
    width = t.width if t.autocast else x.width
    t.mark_loss()
    other_columns = teacher.d_embedding or teacher.hidden
    states_of_teacher = t.local(t.new("states of the teacher", other_columns, x.width, x.unit))
    places = t.new("places of scored tokens", 2, 8, CountedBy.SCORED)
    scored = "states of scored tokens"
    chosen = t.local(t.gather(t.slice(x, x.columns), places, x.columns, scored))
    other = t.local(t.new(scored, other_columns, x.width, CountedBy.SCORED, states_of_teacher))
    sums = t.local(t.new("sums over tiles of logits", STATISTICS, 4, CountedBy.SCORED))

    def tile() -> list[TrackedTensor]:
        """A tile of each model's logits, and what is cast for the products."""
        made = [t.new("logits of a tile", TILE[1], 4, CountedBy.TILED) for _ in range(2)]
        for columns in (x.columns, other_columns):
            if x.width != width:
                made.append(t.new("states of a tile in 16 bits", columns, width, CountedBy.TILED))
            if table.width != width:
                rows = min(model.vocab, TILE[1]) * columns
                made.append(t.new("weights in 16 bits", rows, width, CountedBy.ONCE))
        return made

    t.use(*tile(), sums)
    sides = sides_of(chosen, table)

    def backward(_: TrackedTensor) -> list[TrackedTensor | None]:
        wide = [side and t.local(t.gradient((side[0], 4, side[2]))) for side in sides]
        narrow = t.new("gradients of a tile of logits", TILE[1], width, CountedBy.TILED)
        with t.alive(*tile(), narrow):
            return [
                gradient and side and t.in_type(gradient, side[1]) for gradient, side in zip(wide, sides, strict=True)
            ]

    each = t.new("divergences", 1, 4, CountedBy.SCORED)
    saved = t.new("sums over tiles of logits", 3, 4, CountedBy.SCORED, each)
    return t.record(each, [chosen, table], backward, [chosen.storage, other.storage, saved.storage])


def teacher_pass(objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]:
    """The teacher's, when the policy's forward pass is over."""
    return (QuietPass(by_policy=False, when="after"),)


GKD = TrainingMethod(
    title=Message("Generalized knowledge distillation (GKD)"),
    sequences=1,
    head=whole,
    ways={"1.16": ("whole",)},
    passes=teacher_pass,
    reference=True,
    teacher=True,
    teacher_type="bf16",  # from_pretrained takes the checkpoint's own
    beta=0.5,
)
DISTILLATION = TrainingMethod(
    title=Message("On-policy distillation"),
    sequences=1,
    head=tiled,
    ways={"1.16": ("fused",)},
    passes=teacher_pass,
    reference=True,
    teacher=True,
    beta=1.0,
    generates=True,
    groups=False,
)
