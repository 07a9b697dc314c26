"""Losses of preference and reinforcement learning, and of distillation, each as TRL computes it: how many sequences
run, which passes go without gradients, and how the loss is made of the states that the last norm gives."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.block import Extra
from calc.training.ends import (
    LOGIT_GRADIENTS,
    TILE,
    cross_entropy,
    entropies_with_gradient,
    fused_log_probs,
    hidden_states,
    in_fp32,
    in_place,
    label_log_probs,
    loss_of,
    output_table,
    outputs_of,
    outputs_with_states,
    scalar,
    shifted,
    states,
    summed_in_fp32,
    use_entropies,
    whole_logits,
)
from calc.training.modules import Modules
from calc.training.states import SCORE
from calc.training.tape import CountedBy, TrackedTensor, scoped
from calc.training.workload import Float, LogProbs, MethodName, Objective, Release


class QuietPass(NamedTuple):
    """A forward pass without gradients, by the policy or by its reference: at the generation, in pieces of a
    micro-batch, or within each micro-batch before the policy's own pass or after it."""

    by_policy: bool
    when: Literal["generation", "before", "after"]
    times: int = 1


Head = Callable[[Modules, Architecture, TrackedTensor, Objective], TrackedTensor]
"""Steps from the last norm's output to the loss; a pass without gradients ends with log-probabilities."""


@dataclass(frozen=True)
class TrainingMethod:
    """A loss of TRL, or of a trainer that computes the same."""

    title: Message
    head: Head
    ways: dict[Release, tuple[LogProbs, ...]]  # how its releases make logits, the default first
    sequences: int = 1  # of a forward pass for each that a micro-batch counts: a pair has two
    others: tuple[LogProbs, ...] = ()  # how other trainers make them
    passes: Callable[[Objective], tuple[QuietPass, ...]] = lambda objective: ()
    model: Callable[[Architecture], Architecture] = lambda model: model  # whose loss it is
    reads_table: bool = True  # False: its head is no table of the vocabulary, which the embedding may share
    reference: bool = False  # whether the policy is compared with one
    beta: float = 0.1  # weight of that by default
    teacher: bool = False  # whether that is a teacher, whose whole distribution is learned; beta is then between both
    teacher_type: Float | None = None  # of the teacher's weights; None: that of the policy's
    generates: bool = False  # whether completions are generated
    groups: bool = True  # whether these are compared with others of their prompt
    values: bool = False  # whether a value model is trained too, and a reward model stands next to both
    verified: bool = True  # False: nothing computed or measured stands behind it

    @property
    def newest(self) -> Release:
        return next(iter(self.ways))


def fused(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """A loss on log-probabilities of the fused head, which stands in the model's forward; then the reference runs."""
    scored = fused_log_probs(t, model, x)
    t.leave_autocast()
    t.mark_reference()
    return loss_of(t, scored)


def fused_or(whole: Head) -> Head:
    """The head of a release that builds no logits, those of other trainers, and what an older release makes of whole
    logits."""

    def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
        ways: dict[LogProbs | None, Head] = {"fused": fused, "in-place": in_place, "in-fp32": in_fp32}
        return ways.get(objective.log_probs, whole)(t, model, x, objective)

    return head


def runs_reference(objective: Objective) -> bool:
    return objective.reference in ("model", "adapter-off")


def with_reference(quiet: QuietPass, *always: QuietPass) -> Callable[[Objective], tuple[QuietPass, ...]]:
    """Passes that a method always has, and that of the reference where one runs."""
    return lambda objective: (*always, quiet) if runs_reference(objective) else always


# Supervised fine-tuning, as TRL's SFTTrainer computes it


CHUNK = 256
"""Tokens of a chunk of chunked_nll."""


def sft_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    if objective.log_probs == "chunked":
        loss = chunked_nll(t, model, x)
        t.leave_autocast()
        return loss
    return logged_cross_entropy(t, whole_logits(t, model, x))


@scoped
def logged_cross_entropy(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """transformers' loss, within the model; accelerate's fp32 copy of the logits, of which entropies are logged."""
    loss = cross_entropy(t, logits)
    t.leave_autocast()
    wide = t.cast(logits, 4, "logits in 32 bits") if t.settings.autocast else logits
    t.free(logits)
    use_entropies(t, shifted(t, wide), copied=True)
    t.use(wide)
    return loss_of(t, loss)


@scoped
def chunked_nll(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
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


# Direct preference optimization, arXiv:2305.18290: a policy against its reference, whose log-probabilities TRL makes
# after the policy's forward pass, while that waits for its own backward


def dpo_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    if objective.trl == "0.24":
        return with_hidden_states(t, model, x, objective)
    if not t.recording:
        return label_log_probs(t, shifted(t, outputs_of(t, whole_logits(t, model, x))))
    return dpo_loss(t, outputs_of(t, whole_logits(t, model, x)), objective)


@scoped
def dpo_loss(t: Modules, logits: TrackedTensor, objective: Objective) -> TrackedTensor:
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
    made = t.new("logits of the reference", logits.columns, logits.width, CountedBy.LOGITS)
    t.use(t.new("exponentials of the logits", logits.columns, logits.width, CountedBy.SCORED_ROW), made)
    return made


def with_hidden_states(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """TRL 0.24, trainer/dpo_trainer.py, `concatenated_forward`: the model returns all hidden states too, which
    accelerate casts to fp32 with the logits."""
    outputs = outputs_with_states(t, model, x)
    scored = concatenated(t, *outputs, objective=objective)
    t.mark_reference()
    if t.recording and runs_reference(objective):
        logits = reference_logits(t, outputs[0])
        states = hidden_states(t, model)
        use_means(t, logits, objective)
        t.use(states)
    return loss_of(t, scored)


@scoped
def concatenated(t: Modules, logits: TrackedTensor, *states: TrackedTensor, objective: Objective) -> TrackedTensor:
    """Log-probabilities of all tokens, next to the mean logits that are logged."""
    view = logits.view(unit=CountedBy.SCORED)
    scored = label_log_probs(t, t.record(view, [logits], t.passing))
    use_means(t, logits, objective)
    return scored


def use_means(t: Modules, logits: TrackedTensor, objective: Objective) -> None:
    """A copy of the logits of the chosen completions, of which the mean is logged."""
    part = logits.columns * objective.completion // (2 * objective.sequence)
    t.use(t.new("copy of the logits", part, logits.width, CountedBy.LOGITS), logits)


# KTO, arXiv:2402.01306: single completions, wanted or not, against a reference; and a KL term by mismatched ones


def kto_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    cache = (
        cached(t, model) if not t.recording else None
    )  # a policy under checkpointing makes none, or saves it in any case
    logits = outputs_of(t, whole_logits(t, model, x))
    if cache is None:
        return kto_loss(t, model, logits, objective)
    scored = label_log_probs(t, shifted(t, logits))
    t.use(cache)
    return scored


def cached(t: Modules, model: Architecture) -> TrackedTensor:
    """Keys and values of all layers, which the model returns where use_cache is not turned off."""
    columns = sum(len(block.layers) * mixer.cached_elements() for block in model.blocks for mixer in block.mixers)
    return t.new("keys and values of all layers", columns, t.settings.compute)


@scoped
def kto_loss(t: Modules, model: Architecture, logits: TrackedTensor, objective: Objective) -> TrackedTensor:
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


# ORPO, arXiv:2403.07691; SimPO, arXiv:2405.14734, and CPO, arXiv:2401.08417: preference without a reference, on whole
# logits (TRL, trl/experimental)


def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, likelihood: bool) -> TrackedTensor:
    return pair_loss(t, outputs_of(t, whole_logits(t, model, x)), likelihood=likelihood)


@scoped
def pair_loss(t: Modules, logits: TrackedTensor, *, likelihood: bool) -> TrackedTensor:
    """Log-probabilities of both halves of the pairs; before them the likelihood of the chosen half."""
    chosen = [chosen_likelihood(t, logits)] if likelihood else []
    return loss_of(t, *chosen, label_log_probs(t, shifted(t, logits)))


@scoped
def chosen_likelihood(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Cross-entropy of the chosen half, whose logits are copied for it."""
    half = logits.columns // 2
    copy = t.local(t.new("copy of the logits", half, logits.width, CountedBy.SCORED))

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        """Into zeros, first of the shift and then of the half."""
        return [t.gradient(logits, t.gradient((half, logits.width, CountedBy.LOGITS), gradient))]

    t.record(copy, [logits], backward)
    return cross_entropy(t, copy, upcast=False)


# A reward model on pairs, arXiv:2203.02155 section 3.5: one score for each sequence, and no logits


def score_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    scores = scored(t, x)
    t.leave_autocast()
    return loss_of(t, scores)


@scoped
def scored(t: Modules, x: TrackedTensor) -> TrackedTensor:
    """The score of the last token of each sequence, of those that are made for all."""
    weight = t.weight(x.columns, t.settings.rest, trained=True)
    t.mark_loss()
    scores = t.linear(x, weight, 1, "scores", x.unit)
    return t.record(scalar(t), [scores], lambda gradient: t.into_zeros(scores))


def reward_model(model: Architecture) -> Architecture:
    """The model with a head of one column in place of its vocabulary (transformers,
    `AutoModelForSequenceClassification`, num_labels 1)."""
    score = Extra(name=SCORE, shape=(1, model.hidden), component="lm_head")
    return model.model_copy(update={"tied": True, "extras": (*model.extras, score)})


# GRPO, arXiv:2402.03300, and RLOO, arXiv:2402.14740: completions in groups, scored against each other.
# Log-probabilities of the policy that generated them, and of the reference, are made before the update


def grpo_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    logits = outputs_of(t, whole_logits(t, model, x, last=True))
    return tempered_loss(t, logits, bonus=objective.entropy_bonus)


@scoped
def tempered_loss(t: Modules, logits: TrackedTensor, *, bonus: bool) -> TrackedTensor:
    """Logits over the temperature, a copy next to what the model returned (TRL 1.12, trainer/grpo_trainer.py,
    `_get_per_token_logps_and_entropies`)."""
    scaled = t.local(t.scale(shifted(t, shifted(t, logits)), "logits over the temperature"))
    scored = label_log_probs(t, scaled)
    if not t.recording:
        return scored
    if bonus:
        return loss_of(t, scored, entropies_with_gradient(t, scaled))
    use_entropies(t, scaled, copied=False)
    return loss_of(t, scored)


def grpo_passes(objective: Objective) -> tuple[QuietPass, ...]:
    """Old log-probabilities where a generation is used twice or an engine made it; those of the reference."""
    renews = objective.iterations > 1 or objective.engine_generates
    old = (QuietPass(by_policy=True, when="generation"),) if renews else ()
    return (*old, QuietPass(by_policy=False, when="generation")) if runs_reference(objective) else old


# PPO, arXiv:1707.06347, as TRL's experimental trainer has it (1.12, trl/experimental/ppo/ppo_trainer.py): a value
# model as large as the policy is trained with it, and a reward model stands next to both


def ppo_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """Whole logits and all hidden states, which the training loop holds until the update is over."""
    outputs = outputs_with_states(t, model, x)
    scored = label_log_probs(t, t.scaled_in_place(shifted(t, outputs[0])))
    if not t.recording:
        t.use(*outputs)
    else:
        t.outputs += outputs
    return loss_of(t, scored)


# Distillation from a teacher's distribution over the whole vocabulary, arXiv:2306.13649: GKD as TRL's experimental
# trainer has it, on whole logits of both; and TRL's own distillation, on tiles of them


TEACHER_STATISTICS = 12
"""Vectors in fp32 that a tile of both models' logits is folded into (TRL 1.16, kernels/chunked_divergence.py)."""


def gkd_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """Whole logits of all tokens; the teacher's are made while those of the policy wait."""
    logits = outputs_of(t, whole_logits(t, model, x))
    if not t.recording:
        return logits
    t.mark_reference()
    teacher = t.new("logits of the teacher", logits.columns, logits.width, CountedBy.LOGITS)
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
    scored = t.new("divergences", part, each.width, each.unit)
    return loss_of(t, t.record(scored, [each], lambda gradient: t.into_zeros(each)))


@scoped
def to_the_mixture(t: Modules, own: TrackedTensor, other: TrackedTensor) -> TrackedTensor:
    """Divergences of both distributions from their mixture, weighed."""
    mixture = t.local(mixture_of(t, own, other))
    of_teacher = t.local(relative(t, mixture, other))
    of_student = t.local(relative(t, mixture, own))
    name = "divergences"
    return t.add(t.scale(of_teacher, name), t.scale(of_student, name), name)


def mixture_of(t: Modules, own: TrackedTensor, other: TrackedTensor) -> TrackedTensor:
    """logsumexp(stack([own + a, other + b])): saves the stack and its result."""
    name, stacked = "log-probabilities of the mixture", "distributions of both models"
    parts = [t.shift(own, name), t.shift(other, name)]
    t.gradient_names = t.gradient_names | {2 * own.columns: LOGIT_GRADIENTS}
    stack = t.new(stacked, 2 * own.columns, own.width, own.unit)
    both = t.record(stack, parts, lambda gradient: [TrackedTensor(gradient.storage, *own.size) for _ in parts])
    t.use(t.like(stacked, both), both)
    out = t.new(name, *own.size)
    # the difference, its exponential, that times the gradient
    return t.record(out, [both], lambda _: [t.steps(both, 3)], [both.storage, out.storage])


def relative(t: Modules, student: TrackedTensor, target: TrackedTensor) -> TrackedTensor:
    """kl_div(student, target, log_target=True) of each element: exp(target) * (target - student)."""
    likely = t.result_saved(target, "probabilities of the vocabulary")
    return t.multiply(likely, t.subtract(target, student, "differences of log-probabilities"), "divergences")


def distillation_head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """Head and divergence by tiles of scored tokens and vocabulary, all within autocast (TRL 1.16,
    trainer/distillation_trainer.py, `_chunked_divergence_loss`). Of the teacher's pass its last states stay."""
    x = states(t, model, x)
    if not t.recording:
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
    sums = t.local(t.new("sums over tiles of logits", TEACHER_STATISTICS, 4, CountedBy.SCORED))

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

    def going_back() -> list[TrackedTensor]:
        return [t.new("gradients of a tile of logits", TILE[1], width, CountedBy.TILED), *tile()]

    backward = summed_in_fp32(t, [chosen, table], going_back, keeps_tile=True)
    each = t.new("divergences", 1, 4, CountedBy.SCORED)
    saved = t.new("sums over tiles of logits", 3, 4, CountedBy.SCORED, each)
    return t.record(each, [chosen, table], backward, [chosen.storage, other.storage, saved.storage])


NO_LOGITS: dict[Release, tuple[LogProbs, ...]] = {"1.16": ("fused",), "1.12": ("whole",)}
WHOLE: dict[Release, tuple[LogProbs, ...]] = {"1.16": ("whole",), "1.12": ("whole",)}
OTHERS: tuple[LogProbs, ...] = ("in-place", "in-fp32")
RENEWED = with_reference(QuietPass(by_policy=False, when="generation"), QuietPass(by_policy=True, when="generation"))
"""Old log-probabilities always, and those of the reference."""
VALUE = TrainingMethod(Message("Value model"), score_head, {"1.12": ("none",)}, model=reward_model, reads_table=False)
"""The model that is trained with a policy."""
METHODS: dict[MethodName, TrainingMethod] = {
    "sft": TrainingMethod(
        Message("Supervised fine-tuning (SFT)"), fused_or(sft_head), {"1.16": ("fused",), "1.12": ("chunked", "whole")}
    ),
    "dpo": TrainingMethod(
        Message("Direct preference optimization (DPO)"),
        fused_or(dpo_head),
        NO_LOGITS | {"0.24": ("whole",)},
        sequences=2,
        passes=with_reference(QuietPass(by_policy=False, when="after")),
        reference=True,
    ),
    "kto": TrainingMethod(
        Message("Kahneman-Tversky optimization (KTO)"),
        fused_or(kto_head),
        NO_LOGITS,
        # mismatched pairs of prompt and completion, for the KL term: by the policy before all; by the reference before
        # its own pass
        passes=with_reference(
            QuietPass(by_policy=False, when="after", times=2), QuietPass(by_policy=True, when="before")
        ),
        reference=True,
    ),
    "orpo": TrainingMethod(
        Message("Odds ratio preference optimization (ORPO)"), partial(head, likelihood=True), WHOLE, sequences=2
    ),
    "simpo": TrainingMethod(
        Message("Simple preference optimization (SimPO)"), partial(head, likelihood=False), WHOLE, sequences=2
    ),
    "cpo": TrainingMethod(
        Message("Contrastive preference optimization (CPO)"), partial(head, likelihood=True), WHOLE, sequences=2
    ),
    "reward": TrainingMethod(
        Message("Reward model"),
        score_head,
        {"1.16": ("none",), "1.12": ("none",)},
        sequences=2,
        model=reward_model,
        reads_table=False,
    ),
    "grpo": TrainingMethod(
        Message("Group relative policy optimization (GRPO)"),
        fused_or(grpo_head),
        NO_LOGITS,
        others=OTHERS,
        passes=grpo_passes,
        reference=True,
        beta=0.0,
        generates=True,
    ),
    "rloo": TrainingMethod(
        Message("REINFORCE leave-one-out (RLOO)"),
        fused_or(grpo_head),
        NO_LOGITS,
        others=OTHERS,
        passes=RENEWED,
        reference=True,
        generates=True,
    ),
    "ppo": TrainingMethod(
        Message("Proximal policy optimization (PPO)"),
        fused_or(ppo_head),
        {"1.12": ("whole",)},
        others=OTHERS,
        passes=RENEWED,
        reference=True,
        generates=True,
        groups=False,
        values=True,
        verified=False,
    ),
    "gkd": TrainingMethod(
        Message("Generalized knowledge distillation (GKD)"),
        gkd_head,
        {"1.16": ("whole",)},
        passes=lambda objective: (QuietPass(by_policy=False, when="after"),),  # the teacher's
        reference=True,
        beta=0.5,
        teacher=True,
        teacher_type="bf16",  # from_pretrained takes the checkpoint's own
    ),
    "distillation": TrainingMethod(
        Message("On-policy distillation"),
        distillation_head,
        {"1.16": ("fused",)},
        passes=lambda objective: (QuietPass(by_policy=False, when="after"),),
        reference=True,
        beta=1.0,
        teacher=True,
        generates=True,
        groups=False,
    ),
}
