"""The losses of preference and reinforcement learning, and of distillation: how many sequences run, which passes go
without gradients, and which releases make log-probabilities how; refusals of a question about one, what it leaves open,
and what is assumed about it."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from calc.errors import ConfigError, Message, Refusal
from calc.model.architecture import Architecture
from calc.model.block import Extra
from calc.training.layout import TrainingLayout
from calc.training.losses import (
    TILE,
    Head,
    distillation_head,
    dpo_head,
    fused_or,
    gkd_head,
    grpo_head,
    kto_head,
    pair_head,
    ppo_head,
    runs_reference,
    score_head,
    sft_head,
)
from calc.training.states import SCORE
from calc.training.workload import (
    Colocation,
    Float,
    LogProbs,
    Method,
    MethodName,
    Objective,
    Reference,
    Release,
    Trainer,
    TrainingWorkload,
)


class QuietPass(NamedTuple):
    """A forward pass without gradients, by the policy or by its reference: at the generation, in pieces of a
    micro-batch, or within each micro-batch before the policy's own pass or after it."""

    by_policy: bool
    when: Literal["generation", "before", "after"]
    times: int = 1


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


def with_reference(quiet: QuietPass, *always: QuietPass) -> Callable[[Objective], tuple[QuietPass, ...]]:
    """Passes that a method always has, and that of the reference where one runs."""
    return lambda objective: (*always, quiet) if runs_reference(objective) else always


def reward_model(model: Architecture) -> Architecture:
    """The model with a head of one column in place of its vocabulary (transformers,
    `AutoModelForSequenceClassification`, num_labels 1)."""
    score = Extra(name=SCORE, shape=(1, model.hidden), component="lm_head")
    return model.model_copy(update={"tied": True, "extras": (*model.extras, score)})


def grpo_passes(objective: Objective) -> tuple[QuietPass, ...]:
    """Old log-probabilities where a generation is used twice or an engine made it; those of the reference."""
    renews = objective.iterations > 1 or objective.engine_generates
    old = (QuietPass(by_policy=True, when="generation"),) if renews else ()
    return (*old, QuietPass(by_policy=False, when="generation")) if runs_reference(objective) else old


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
        Message("Odds ratio preference optimization (ORPO)"), partial(pair_head, likelihood=True), WHOLE, sequences=2
    ),
    "simpo": TrainingMethod(
        Message("Simple preference optimization (SimPO)"), partial(pair_head, likelihood=False), WHOLE, sequences=2
    ),
    "cpo": TrainingMethod(
        Message("Contrastive preference optimization (CPO)"), partial(pair_head, likelihood=True), WHOLE, sequences=2
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


# A question about a loss: what it names and leaves open, and why it is refused


def named(text: str) -> tuple[Method | None, MethodName | None]:
    """Method and loss by their names with a comma between: grpo,lora. Raises ValueError."""
    names = text.split(",")
    weights = [name for name in get_args(Method) if name in names]
    losses = [name for name in METHODS if name in names]
    if len(weights) > 1 or len(losses) > 1 or len(weights) + len(losses) != len(names):
        raise ValueError(text)
    return next(iter(weights), None), next(iter(losses), None)


OF_A_LOSS = frozenset(Objective.model_fields) - {"method"}
OF_AN_ENGINE = frozenset(Colocation.model_fields) - {"rollout"}
OF_ADAPTERS = frozenset({"lora_rank", "lora_targets", "lora_dropout", "fp32_adapters"})
OF_TRANSFORMERS_LOSS = frozenset({"sequence", "loss", "loss_chunks"})


def without_effect(
    stated: Collection[str], weights: Method, loss: MethodName | None, spelled: Callable[[str], str] = str
) -> Iterator[Refusal]:
    """Refusals of stated fields that change no number of a step with such a method and loss, each with its field.
    `spelled` is a field's name as the question has it."""
    generates = loss is not None and METHODS[loss].generates
    for name in stated:
        option = spelled(name)
        if loss is None and name in OF_A_LOSS:
            sentence = "{option} takes effect only with a loss of TRL: {method} {names}."
            why = Message(sentence, option=option, method=spelled("method"), names="|".join(METHODS))
        elif loss is not None and name in OF_TRANSFORMERS_LOSS:
            lengths = {field: spelled(field) for field in ("prompt", "completion", "log_probs")}
            sentence = "{option} has no effect with {name}; use {prompt}, {completion} and {log_probs}."
            why = Message(sentence, option=option, name=loss, **lengths)
        elif name == "rollout" and not generates:
            names = "|".join(name for name, method in METHODS.items() if method.generates)
            why = Message("Only {method} {names} generates completions.", method=spelled("method"), names=names)
        elif name in OF_AN_ENGINE and not (generates and "rollout" in stated):
            sentence = "{option} takes effect only with {rollout} colocated or server."
            why = Message(sentence, option=option, rollout=spelled("rollout"))
        elif name in OF_ADAPTERS and weights in ("full", "pretrain"):
            sentence = "{option} concerns adapters: it needs {method} lora or qlora."
            why = Message(sentence, option=option, method=spelled("method"))
        elif name == "weights" and weights in ("full", "pretrain"):
            sentence = "{option} is how LoRA's frozen weights are stored; trained ones follow {recipe}."
            why = Message(sentence, option=option, recipe=spelled("recipe"))
        else:
            continue
        yield Refusal(why, name)


def workload_set_by(trainer: Trainer, weights: Method, loss: MethodName | None) -> dict[str, Any]:
    """Fields of the workload as a trainer has them by default for a method and loss, those that take effect."""
    unused = {refusal.field for refusal in without_effect(trainer.workload, weights, loss)}
    return {name: value for name, value in trainer.workload.items() if name not in unused}


def resolved(objective: Objective, work: TrainingWorkload, layout: TrainingLayout) -> Objective:
    """The objective with nothing left open. Raises ConfigError where its parts do not go together."""
    for refusal in refusals(objective, work, layout):
        raise ConfigError(*refusal)
    method = METHODS[objective.method]
    release: Release = objective.trl or method.newest
    return objective.model_copy(
        update={
            "trl": release,
            "log_probs": objective.log_probs or method.ways[release][0],
            "reference": objective.reference or usual_reference(method, objective.beta, work),
            "beta": method.beta if method.teacher and objective.beta is None else objective.beta,
        }
    )


def usual_reference(method: TrainingMethod, beta: float | None, work: TrainingWorkload) -> Reference:
    """TRL's default reference: none for GRPO, whose beta is 0; always a teacher for distillation."""
    if method.teacher:
        return "model"
    weight = method.beta if beta is None else beta
    if not method.reference or weight == 0:
        return "none"
    return "model" if work.trains_base else "adapter-off"


def refusals(objective: Objective, work: TrainingWorkload, layout: TrainingLayout) -> Iterator[Refusal]:
    method, reference = METHODS[objective.method], objective.reference
    release: Release = objective.trl or method.newest
    if release not in method.ways:
        sentence = "{method} of TRL {release} is not computed here."
        yield Refusal(Message(sentence, method=method.title, release=release), "trl", list(method.ways))
    elif objective.log_probs not in (None, *method.ways[release], *method.others):
        sentence = "In TRL {release}, {method} does not compute its log-probabilities this way: {way}."
        message = Message(sentence, release=release, method=method.title, way=objective.log_probs)
        yield Refusal(message, "log_probs", list(method.ways[release]))
    if reference not in (None, "none") and not method.reference:
        yield Refusal(Message("{method} has no reference.", method=method.title), "reference", ["none"])
    yield from refused_teacher(objective, method)
    if reference == "adapter-off" and work.trains_base:
        sentence = "The reference can be the model without its adapters only where there are adapters: LoRA or QLoRA."
        yield Refusal(Message(sentence), "reference", ["model"])
    if method.reference and not (method.generates or method.teacher) and (reference == "none" or objective.beta == 0):
        sentence = "{method} compares the policy with a reference: none is given."
        yield Refusal(Message(sentence, method=method.title), "reference", ["model", "precomputed"])
    if method.generates and reference == "precomputed":
        sentence = "{method} generates its completions anew: nothing about them can be computed before training."
        yield Refusal(Message(sentence, method=method.title), "reference", ["model", "none"])
    if objective.beta == 0 and reference not in (None, "none") and not method.teacher:
        yield Refusal(Message("With beta 0 the reference has no effect."), "reference", ["none"])
    yield from refused_groups(objective, method)
    yield from refused_mean(objective, method)
    for degree in (name for name in ("tp", "pp", "cp") if getattr(layout, name) > 1):
        sentence = "TRL's losses are computed over data-parallel ranks only; tp, pp and cp must be 1."
        yield Refusal(Message(sentence), degree, [1])


def refused_teacher(objective: Objective, method: TrainingMethod) -> Iterator[Refusal]:
    """Why a teacher's distribution can't be learned so."""
    if not method.teacher:
        if objective.teacher is not None:
            yield Refusal(Message("{method} has no teacher.", method=method.title), "teacher", [])
        return
    if objective.reference not in (None, "model"):
        sentence = "{method} reads the teacher's whole distribution, so the teacher runs in every step."
        yield Refusal(Message(sentence, method=method.title), "reference", ["model"])
    if objective.beta is not None and objective.beta > 1:
        sentence = "beta lies between 0 and 1: it weighs the policy's distribution against the teacher's."
        yield Refusal(Message(sentence), "beta", [1])


def check_teacher(objective: Objective, model: Architecture) -> None:
    """Raise ConfigError where the teacher's distribution is over another vocabulary than the model's."""
    if (teacher := objective.teacher) is not None and teacher.vocab != model.vocab:
        sentence = (
            "The teacher's vocabulary has {theirs:,} tokens and the model's {ours:,}: they must be the same. TRL's "
            "GOLD takes others, and is not computed."
        )
        raise ConfigError(Message(sentence, theirs=teacher.vocab, ours=model.vocab), "teacher")


def refused_groups(objective: Objective, method: TrainingMethod) -> Iterator[Refusal]:
    """Why completions can't be generated in such groups."""
    group, batch = objective.num_generations, objective.generation_batch
    if method.generates and method.groups and group < 2:
        sentence = "A group of one has nothing to compare: {method} needs at least two completions of a prompt."
        yield Refusal(Message(sentence, method=method.title), "num_generations", [2])
    if method.generates and method.groups and batch is not None and batch % group:
        sentence = "generation_batch is {batch:,}, which is no multiple of the {group:,} completions of a prompt."
        nearest = [size for size in (batch - batch % group, batch - batch % group + group) if size]
        yield Refusal(Message(sentence, batch=batch, group=group), "generation_batch", nearest)


def refused_mean(objective: Objective, method: TrainingMethod) -> Iterator[Refusal]:
    """Why completions can't be so long on average."""
    mean = objective.mean_completion
    if mean is not None and not method.generates:
        sentence = "{method} reads its completions from data, here all of the same length; it generates none."
        yield Refusal(Message(sentence, method=method.title), "mean_completion", [])
    elif mean is not None and mean > objective.completion:
        sentence = "Completions of at most {most:,} tokens are not {mean:,} tokens long on average."
        yield Refusal(
            Message(sentence, most=objective.completion, mean=mean), "mean_completion", [objective.completion]
        )


def scored_of_row(objective: Objective, sequence: int) -> int:
    """Tokens of a sequence whose log-probabilities are made: those of the completion, or all but the first; from whole
    logits those that have a label."""
    method, whole = METHODS[objective.method], objective.log_probs == "whole"
    completion = max(1, sequence - objective.prompt)
    if method.values:
        return max(0, sequence - 1)
    if method.generates or (objective.log_probs == "fused" and (method.reference or objective.completion_only)):
        return completion
    if objective.log_probs == "none":
        return 0
    if whole and method.reference and objective.trl == "0.24":
        return sequence
    return max(0, sequence - objective.packed)


def scored_units(objective: Objective, rows: int, sequence: int) -> tuple[int, int, int, int]:
    """Tokens whose logits are whole, tokens that are scored, those of a sequence, and those of a tile."""
    row = scored_of_row(objective, sequence)
    method = METHODS[objective.method]
    of_completions = method.generates and not method.values and objective.log_probs not in method.others
    logits = rows * (row + 1 if of_completions else sequence)
    return logits, rows * row, row, min(rows * row, TILE[0])


TEACHER = Message("The teacher is frozen, in the type of the policy's weights, and runs in every micro-batch.")
STORED_TEACHER = Message("The teacher is frozen, in 16 bits as checkpoints are, and runs in every micro-batch.")
OF_OTHERS: dict[LogProbs | None, Message] = {
    "in-place": Message("The loss is made as by verl 0.9: on whole logits, whose gradients take their place."),
    "in-fp32": Message("The loss is made as by OpenRLHF 0.11: on whole logits in fp32, and their gradients."),
}
REFERENCES: dict[Reference, Message] = {
    "model": Message("The reference is a frozen copy of the model, in the type of the policy's weights."),
    "precomputed": Message("The reference's log-probabilities were made before training, and its weights are gone."),
    "adapter-off": Message("The reference is the model without its adapters, which takes no weights of its own."),
    "none": Message("The policy is compared with no reference."),
}


def said_of(objective: Objective) -> Iterator[Message]:
    method = METHODS[objective.method]
    if objective.log_probs in method.others:
        yield OF_OTHERS[objective.log_probs]
    else:
        sentence = "The loss is that of TRL {release}: {method}."
        yield Message(sentence, release=objective.trl, method=method.title)
    if not method.verified:
        yield Message(
            "No computed or measured step confirms {method}; its parts are those of other methods.", method=method.title
        )
    if method.values:
        yield Message("A value model as large as the policy is trained with it, and a frozen reward model stands by.")
    if method.values and objective.log_probs == "whole" and not objective.engine_generates:
        yield Message(
            "TRL's own PPO generates without an engine and holds the logits of all completions of a step in fp32 until "
            "it is over, 4 bytes for each token and each word of the vocabulary: they are not counted."
        )
    if method.teacher:
        yield TEACHER if method.teacher_type is None else STORED_TEACHER
    elif method.reference and objective.reference is not None:
        yield REFERENCES[objective.reference]
    if method.generates and not objective.engine_generates:
        yield Message("Generation is not in these phases: its engine, or generate(), runs before them.")
