"""The part of the command line that weighs a training step: python -m calc MODEL --train."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from calc.errors import ConfigError, shown
from calc.formats import Precision
from calc.hardware import GPU, Layout, find_gpu
from calc.model.architecture import Architecture
from calc.serving import Workload
from calc.training import (
    METHODS,
    RECIPES,
    TRAINERS,
    WIDTH,
    Colocation,
    CombinedLever,
    Method,
    MethodName,
    Objective,
    Recipe,
    RecipeName,
    Trainer,
    Training,
    TrainingLayout,
    TrainingReport,
    TrainingWorkload,
    more_gpus,
    named,
    training_report,
    without_effect,
    workload_set_by,
)
from cli.options import ENGINE_FIELDS, add_fields, bad_question, filled, flag, refuse_idle

WORKLOAD = tuple(name for name in TrainingWorkload.model_fields if name not in ("attention", "method"))
WEIGHTS: tuple[str, ...] = get_args(Method)
OBJECTIVE = tuple(name for name in Objective.model_fields if name != "method")
TEACHER = "teacher"
COLOCATION = tuple(name for name in Colocation.model_fields if name != "rollout")
ROLLOUTS = ("colocated", "server")
ROLLOUT_ALIASES = {
    "engine_share": ("--vllm-gpu-memory-utilization",),
    "rollout_tp": ("--vllm-tensor-parallel-size",),
    "offload_weights": ("--param-offload",),
    "offload_optimizer": ("--optimizer-offload",),
}
"""TRL's and verl's words for the same option."""
LAYOUT = tuple(name for name in TrainingLayout.model_fields if name not in Layout.model_fields)
ALIASES = {
    "vp": ("--num-virtual-stages-per-pipeline-rank", "--virtual-pipeline-model-parallel-size"),
    "etp": ("--expert-tensor-parallel-size",),
}
"""Megatron-LM's words for the same option."""
RECIPE = ("recipe", "master", "states")
INSTEAD = {"batch": "--micro-batch", "context": "--sequence"}
"""Training's counterparts of options that only serving has."""


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Options that stay unset where they are not given: their defaults are the trainer's, or those of the models that
    they end in."""
    parser.add_argument("--train", action="store_true", help="weigh a training step instead of serving")
    group = parser.add_argument_group("training", "with --train", argument_default=argparse.SUPPRESS)
    group.add_argument("--trainer", choices=tuple(TRAINERS), help="options as this trainer sets them by default")
    group.add_argument(
        "--method",
        dest="methods",
        type=methods,
        metavar="|".join((*WEIGHTS, *METHODS)),
        help="which weights are trained, or with which loss of TRL; both with a comma: grpo,lora (default full)",
    )
    add_fields(group, TrainingWorkload, WORKLOAD)
    add_fields(group, Objective, (name for name in OBJECTIVE if name != TEACHER))
    group.add_argument(f"--{TEACHER}", metavar="MODEL", help="distillation: learn its distribution (default a copy)")
    group.add_argument("--rollout", choices=ROLLOUTS, help="an engine generates: on these GPUs, or on others")
    add_fields(group, Colocation, COLOCATION, aliases=ROLLOUT_ALIASES)
    add_fields(group, TrainingLayout, LAYOUT, aliases=ALIASES)
    group.add_argument("--recipe", choices=tuple(RECIPES), help="mixed precision (default master)")
    group.add_argument("--master", choices=("fp32", "none"), help="a copy of the weights that the optimizer updates")
    group.add_argument("--states", choices=tuple(WIDTH), help="storage of the optimizer's states")


def check_options(given: Mapping[str, Any]) -> None:
    """Raise ConfigError where options are given that have no effect."""
    for name in ("share", "node"):
        if given[name] and not (given["time"] or given["other_steps"]):
            raise bad_question("{flag} takes effect only with --time.", name, flag=flag(name))
    if not given["train"]:
        own = (*WORKLOAD, *OBJECTIVE, *COLOCATION, *LAYOUT, *RECIPE, "methods", "rollout", "trainer")
        refuse_idle(own, given, train=False)
        return
    for name, other in INSTEAD.items():
        if given.get(name) is not None:
            raise bad_question("{flag} has no effect with --train; use {other}.", name, flag=flag(name), other=other)
    serving = [*Workload.model_fields, "dcp", "prefill_tokens", "kv", "num_gpus", *ENGINE_FIELDS]
    refuse_idle((name for name in serving if name not in TrainingWorkload.model_fields), given, train=True)


def run_training(config: Mapping[str, Any], given: Mapping[str, Any], gpus: list[GPU] | None) -> TrainingReport:
    """The report on what the command line asks for."""
    trains, loss = given.get("methods", (None, None))
    stated = {name: given[name] for name in WORKLOAD if name in given}
    if trains is None and not stated.keys().isdisjoint(("lora_rank", "lora_targets")):
        trains = "lora"
    if trains is not None:
        stated["method"] = trains
    method: Method = trains or "full"
    for refusal in without_effect([name for name, value in given.items() if value is not None], method, loss, flag):
        raise ConfigError(*refusal)
    rl = TRAINERS[given.get("trainer", "trl")].of(method)
    objective = objective_of(given, loss, rl)
    name = given.get("trainer", None if objective is None else "trl")
    trainer = None if name is None else TRAINERS[name].of(method)
    usual = {} if trainer is None else workload_set_by(trainer, method, loss)
    workload = filled(TrainingWorkload, usual | stated)
    weights = given["weights"] or (trainer.base if trainer else None)
    return training_report(
        config,
        model=given["model"],
        workload=workload,
        recipe=chosen_recipe(given, trainer.recipe if trainer else "master"),
        frozen=None if weights is None else Precision(weights=weights),
        layout=filled(TrainingLayout, {**(trainer.layout if trainer else {}), **given}),
        gpus=gpus,
        objective=objective,
        colocation=colocation_of(given, rl),
    )


def colocation_of(given: Mapping[str, Any], trainer: Trainer) -> Colocation | None:
    """The engine that generates; None: none is asked for. Raises ConfigError."""
    if "rollout" not in given:
        return None
    usual = trainer.engine if given["rollout"] == "colocated" else {}
    return filled(Colocation, {**usual, **given})


def methods(text: str) -> tuple[Method | None, MethodName | None]:
    """Choice of weights and of loss, from their names."""
    try:
        return named(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"one of {', '.join((*WEIGHTS, *METHODS))}, not {text}") from None


def objective_of(given: Mapping[str, Any], loss: MethodName | None, trainer: Trainer) -> Objective | None:
    """The loss that is asked for; None: that of transformers. Raises ConfigError."""
    if loss is None:
        return None
    usual = trainer.objective if METHODS[loss].others else {}
    return filled(Objective, {**usual, **given, "method": loss})


def spread(config: Mapping[str, Any], report: TrainingReport) -> dict[str, CombinedLever]:
    """Number of GPUs that do, and the changes, where none do as it is: by GPU."""
    scenario = report.scenario
    if scenario.colocation is not None:
        return {}
    training = Training(Architecture.from_config(config), scenario)
    wanting = [verdict.gpu for verdict in report.verdicts if verdict.min_gpus is None]
    ways = {gpu: more_gpus(find_gpu(gpu), training) for gpu in wanting}
    return {gpu: way for gpu, way in ways.items() if way is not None}


def chosen_recipe(given: Mapping[str, Any], default: RecipeName) -> Recipe:
    """A named recipe, with another choice of master copy or states where one is made."""
    recipe = RECIPES[given.get("recipe", "bf16" if given.get("master") == "none" else default)]
    changes = {name: given[name] for name in ("master", "states") if name in given}
    if "master" in changes:
        changes["master"] = changes["master"] == "fp32"
    return recipe.model_copy(update=changes)


# Other steps, side by side with the requested one.


def add_other_steps(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--with",
        dest="other_steps",
        action="append",
        default=[],
        metavar="FLAGS",
        help="with --train, another step of the model side by side with this one, by flags of its own: "
        "--with '--method dpo --micro-batch 2'",
    )


def steps_of(
    arguments: argparse.Namespace, parser: Callable[[], argparse.ArgumentParser]
) -> Iterator[argparse.Namespace]:
    """The requested step, then those next to it, on the same GPUs. Raises ConfigError."""
    yield arguments
    if not arguments.train:
        raise bad_question("--with takes effect only with --train.", "with")
    for text in arguments.other_steps:
        try:
            flags = shlex.split(text)
        except ValueError:
            raise bad_question(
                "--with takes flags of a step in quotes, not {text}.", "with", text=shown(text)
            ) from None
        other = parser().parse_args([arguments.model, "--train", *flags])
        if other.gpu is not None or other.other_steps or other.time or other.json:
            raise bad_question(
                "--gpu, --json, --time and --with can't stand inside --with: steps are compared on the same GPUs.",
                "with",
            )
        other.set = [*arguments.set, *other.set]
        other.gpu = arguments.gpu
        yield other
