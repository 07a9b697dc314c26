"""The controls of one of TRL's losses, and of the engine that generates its completions: those that have an effect."""

from collections.abc import Callable, Mapping

import streamlit as st

from calc import RECIPES
from calc.training import METHODS, Colocation, LogProbs, TrainingMethod, usual_reference
from pages.parts import words
from pages.parts.inputs.control import concerns, control, controls_in_drawer
from pages.parts.inputs.second_model import teacher_model
from pages.parts.state.scenario import TrainingChoice, places
from pages.parts.state.weighed import Trained
from pages.parts.words import say

Effect = Callable[[TrainingChoice, TrainingMethod], bool]
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


LOSS: dict[str, Effect] = {
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
ENGINE: dict[str, Effect] = {
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


def controls(effects: Mapping[str, Effect], answer: Trained, method: TrainingMethod) -> None:
    """Controls of the fields that change a number, and of one that is wrong."""
    choice, known = answer.scenario.training, places(("training",))
    default = usual(choice, method)
    for name, effect in effects.items():
        if effect(choice, method) or concerns(answer.error, {name}):
            if name == "teacher":
                teacher_model(known[name], answer)
            else:
                control(known[name], answer.error, default.get(name))


def usual(choice: TrainingChoice, method: TrainingMethod) -> dict[str, object]:
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
