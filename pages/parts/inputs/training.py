"""The controls of a training step; of one of TRL's losses, and of the engine that generates its completions, those that
have an effect."""

from collections.abc import Callable, Mapping

import streamlit as st

from calc import RECIPES
from calc.formats import WEIGHT_FORMATS, WeightFormat
from calc.training import METHODS, TRAINERS, Colocation, LogProbs, TrainingMethod, usual_overhead, usual_reference
from pages.parts import words
from pages.parts.inputs.control import concerns, control, controls_in_drawer, drawer, help_of
from pages.parts.inputs.second_model import second_model, teachers
from pages.parts.inputs.serving import format_label, ranges
from pages.parts.screen import caption, paragraph
from pages.parts.state.scenario import Place, TrainingChoice, places
from pages.parts.state.trained_as import STARTS, start_of, trained_as, trainer_of
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained
from pages.parts.state.widgets import show
from pages.parts.words import field, say

FIRST = ("accumulation", "optimizer", "recipe", "recompute")
"""Fields that stand in sight, below the workload; the others of the step are in a drawer."""
ADAPTERS = ("lora_rank", "lora_targets", "lora_dropout", "fp32_adapters", "fp32_rest", "quantized_experts")
"""Fields that only LoRA and QLoRA have."""
QUANTIZED = {"fp32_rest", "quantized_experts"}
"""Fields that only QLoRA has."""
TRANSFORMERS_LOSS = {"loss", "loss_chunks", "keep_outputs"}
"""Fields of transformers' own loss, which a loss of TRL takes the place of."""


def starts(answer: Trained) -> None:
    """Steps to start from, at the top of Train: one click sets method, flags, layout and GPUs; model, batch and lengths
    stay."""

    def take(name: str | None) -> None:
        if name is not None:  # a click on it again changes nothing
            start = STARTS[name]
            change(training=start.of(st.session_state.scenario.training), gpu=start.gpus)

    st.pills(
        say("Start from"),
        list(STARTS),
        format_func=lambda name: say(STARTS[name].title),
        label_visibility="collapsed",
        help=say("Sets method, flags, activation checkpointing and GPUs; keeps model, batch and lengths."),
        **show("start", start_of(answer.scenario.training), take, given=None),
    )


def step(answer: Trained) -> None:
    known = places(("training",))
    paragraph("**Training step**")
    trainer(answer)
    if not answer.scenario.training.workload.trains_base:
        adapters(answer)
    for name in FIRST:
        control(known[name], answer.error)


def trainer(answer: Trained) -> None:
    """All flags at once, as a trainer has them by default."""
    name = trainer_of(answer.scenario.training)

    def take(chosen: str | None) -> None:
        change(training=trained_as(st.session_state.scenario.training, chosen))

    st.selectbox(
        say("Flags of"),
        list(TRAINERS),
        index=None,
        format_func=lambda name: TRAINERS[name].title,
        placeholder=say("your own"),
        help=say("Sets every flag below to this trainer's default; keeps batch, length, adapters and GPUs."),
        **show("trainer", name, take, given=None),
    )
    if name is not None:
        caption("Read in {source}.", source=TRAINERS[name].source)


def adapters(answer: Trained) -> None:
    """Controls of LoRA and QLoRA: adapters, and the storage of frozen weights."""
    known, method = places(("training",)), answer.scenario.training.workload.method
    for name in ADAPTERS:
        if name not in QUANTIZED or method == "qlora":
            control(known[name], answer.error)
    frozen(known["weights"], "nf4-dq" if method == "qlora" else "bf16")


def frozen(place: Place, usual: WeightFormat) -> None:
    """The format of frozen weights; the usual one is no choice."""

    def label(name: WeightFormat) -> str:
        return say("{format} (default)", format=format_label(name)) if name == usual else format_label(name)

    chosen: WeightFormat = place.of(st.session_state.scenario) or usual
    st.selectbox(
        field("frozen"),
        WEIGHT_FORMATS,
        format_func=label,
        help=help_of(place.option),
        **show(
            "frozen",
            chosen,
            lambda name: change({place: None if name == usual else name}),
            limits=(label(chosen),),
            options=WEIGHT_FORMATS,
        ),
    )


def spread(answer: Trained) -> None:
    """Controls of the layout over GPUs."""
    known = {place.name: place for place in places(("training",)).values() if "layout" in place.path}
    with drawer(say("GPUs and sharding"), "spread_drawer", opened=concerns(answer.error, known.keys())) as is_open:
        if is_open:
            pieces, layout = known.pop("vp"), answer.scenario.training.layout
            for place in known.values():
                control(place, answer.error)
                if place.name == "pp" and (layout.pp > 1 or layout.vp > 1):
                    control(pieces, answer.error)


def details(answer: Trained) -> None:
    """Everything else that a step may set."""
    seen = {*FIRST, *ADAPTERS, "method", "micro_batch", "sequence"}
    if answer.scenario.training.loss_method is not None:
        seen |= TRANSFORMERS_LOSS
    rest = [place for place in places(("training",)).values() if "workload" in place.path and place.name not in seen]
    controls_in_drawer(say("Kernels and loss"), "details_drawer", rest, answer.error)


def overhead(answer: Trained) -> None:
    """Controls of the overhead, as ranges."""
    ranges(usual_overhead(answer.scenario.training.layout.gpus), answer.error)


HasEffect = Callable[[TrainingChoice, TrainingMethod], bool]
"""Whether a field changes a number."""


def log_probs(choice: TrainingChoice, method: TrainingMethod) -> tuple[LogProbs, ...]:
    """Ways to make log-probabilities in the chosen release, the default first."""
    return (*method.ways.get(choice.objective.trl or method.newest, ()), *method.others)


def is_fused(choice: TrainingChoice, method: TrainingMethod) -> bool:
    """Whether logits are never whole."""
    return (choice.objective.log_probs or next(iter(log_probs(choice, method)), None)) == "fused"


def has_frozen_copy(choice: TrainingChoice, method: TrainingMethod) -> bool:
    """Whether FSDP shards a model that the policy is compared with."""
    reference = choice.objective.reference or usual_reference(method, choice.objective.beta, choice.workload)
    return reference == "model" and choice.layout.gathered_by_fsdp(RECIPES[choice.recipe])


LOSS: dict[str, HasEffect] = {
    "teacher": lambda choice, method: method.teacher,
    "num_generations": lambda choice, method: method.generates and method.groups,
    "generation_batch": lambda choice, method: method.generates,
    "mean_completion": lambda choice, method: method.generates,
    "reference": lambda choice, method: method.reference and not method.teacher,
    "beta": lambda choice, method: method.reference and (method.generates or method.teacher),
    "trl": lambda choice, method: len(set(method.ways.values())) > 1,
    "log_probs": lambda choice, method: len(log_probs(choice, method)) > 1,
    "completion_only": lambda choice, method: choice.loss_method == "sft" and is_fused(choice, method),
    "packed": lambda choice, method: choice.loss_method == "sft",
    "iterations": lambda choice, method: choice.loss_method == "grpo" and choice.rollout is None,
    "engine_generates": lambda choice, method: choice.loss_method == "grpo" and choice.rollout is None,
    "entropy_bonus": lambda choice, method: choice.loss_method == "grpo" and not is_fused(choice, method),
    "shards_reference": has_frozen_copy,
}
ENGINE: dict[str, HasEffect] = {
    "engine_share": lambda choice, method: choice.rollout is not None,
    "sleep_level": lambda choice, method: choice.rollout == "colocated",
    "rollout_tp": lambda choice, method: choice.rollout is not None,
    "rollout_dp": lambda choice, method: choice.rollout == "server",
}
"""Fields of the engine that stand in sight; the others are in a drawer."""
ON_THESE_GPUS = {"shared_weights", "own_process"}
"""Fields that an engine on GPUs of its own does not have."""


def loss(answer: Trained) -> None:
    """The settings of a loss of TRL, and of its engine where it generates."""
    choice = answer.scenario.training
    if choice.loss_method is None:
        return
    method = METHODS[choice.loss_method]
    st.markdown(f"**{say(method.title)}**")
    controls(LOSS, answer, method)
    if choice.generates:
        control(places(("training",))["rollout"], answer.error, usual=say("none"))
        controls(ENGINE, answer, method)
        if choice.rollout is not None:
            engine_details(answer)


def controls(effects: Mapping[str, HasEffect], answer: Trained, method: TrainingMethod) -> None:
    """Controls of the fields that change a number, and of one that is wrong."""
    choice, known = answer.scenario.training, places(("training",))
    default = usual_values(choice, method)
    for name, effect in effects.items():
        if effect(choice, method) or concerns(answer.error, {name}):
            if name == "teacher":
                architecture = answer.model.architecture
                presets = () if architecture is None else teachers(architecture.vocab)
                second_model(known[name], answer, presets, say("the model itself"))
            else:
                control(known[name], answer.error, default.get(name))


def usual_values(choice: TrainingChoice, method: TrainingMethod) -> dict[str, object]:
    """Values where a field is left open, by field."""
    ways = log_probs(choice, method)
    values: dict[str, object] = {
        "trl": method.newest,
        "beta": method.beta,
        "reference": words.choice("reference", usual_reference(method, choice.objective.beta, choice.workload)),
    }
    if ways:
        values["log_probs"] = words.choice("log_probs", ways[0])
    if choice.rollout is not None:
        values["engine_share"] = Colocation(rollout=choice.rollout).share
    return values


def engine_details(answer: Trained) -> None:
    """Controls of an engine's other fields."""
    choice, known = answer.scenario.training, places(("training",))
    rest = [name for name in Colocation.model_fields if name in known and name not in ENGINE and name != "rollout"]
    if choice.workload.trains_base:
        rest = [name for name in rest if name != "shared_weights" or concerns(answer.error, {name})]
    if choice.rollout == "server":
        rest = [name for name in rest if name not in ON_THESE_GPUS or concerns(answer.error, {name})]
    controls_in_drawer(say("Engine and host memory"), "rollout_drawer", map(known.__getitem__, rest), answer.error)


SECTIONS = (step, loss, spread, details, overhead)
