"""The part of the command line that weighs a training step: python -m calc MODEL --train."""

import argparse
from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError, Message
from calc.formats import Precision
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.workload import Workload
from calc.training.layout import TrainingLayout
from calc.training.levers import Together, more_gpus
from calc.training.recipe import RECIPES, TRAINERS, WIDTH, Recipe, RecipeName
from calc.training.report import TrainingReport, training_report
from calc.training.step import Training
from calc.training.workload import TrainingWorkload
from cli.options import add_fields, filled, flag

WORKLOAD = tuple(name for name in TrainingWorkload.model_fields if name != "attention")
LAYOUT = tuple(name for name in TrainingLayout.model_fields if name not in Layout.model_fields)
ALIASES = {
    "vp": ("--num-virtual-stages-per-pipeline-rank", "--virtual-pipeline-model-parallel-size"),
    "etp": ("--expert-tensor-parallel-size",),
}
"""Megatron-LM's words for the same option."""
RECIPE = ("recipe", "master", "states")
INSTEAD = {"batch": "--micro-batch", "context": "--sequence"}
"""What stands in training for options that only serving knows."""


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Options that stay unset where they are not given: their defaults are the trainer's, or those of the models that
    they end in."""
    parser.add_argument("--train", action="store_true", help="weigh a training step instead of serving")
    group = parser.add_argument_group("training", "with --train", argument_default=argparse.SUPPRESS)
    group.add_argument("--trainer", choices=tuple(TRAINERS), help="options as this trainer sets them by default")
    add_fields(group, TrainingWorkload, WORKLOAD)
    add_fields(group, TrainingLayout, LAYOUT, aliases=ALIASES)
    group.add_argument("--recipe", choices=tuple(RECIPES), help="mixed precision (default master)")
    group.add_argument("--master", choices=("fp32", "none"), help="a copy of the weights that the optimizer updates")
    group.add_argument("--states", choices=tuple(WIDTH), help="storage of the optimizer's states")


def check_options(given: Mapping[str, Any]) -> None:
    """Raise ConfigError where options are given that have no effect."""
    if given["share"] and not given["time"]:
        raise ConfigError(Message("--share takes effect only with --time."), "share")
    if given["train"]:
        serving = [*Workload.model_fields, "dcp", "prefill_tokens", "kv", "num_gpus", *engine_options()]
        for name in (name for name in serving if given.get(name) is not None and name not in WORKLOAD):
            if name in INSTEAD:
                raise ConfigError(
                    Message(
                        "{flag} has no effect with --train. {other} stands for it.",
                        flag=flag(name),
                        other=INSTEAD[name],
                    ),
                    name,
                )
            raise ConfigError(Message("{flag} has no effect with --train.", flag=flag(name)), name)
        return
    for name in (*WORKLOAD, *LAYOUT, *RECIPE, "trainer"):
        if name in given:
            raise ConfigError(Message("{flag} takes effect only with --train.", flag=flag(name)), name)


def engine_options() -> set[str]:
    """Options of serving engines that a training step does not have."""
    names = {name for engine in ENGINES.values() for name in engine.options_type.model_fields}
    return names - set(TrainingWorkload.model_fields)


def run_training(config: Mapping[str, Any], given: Mapping[str, Any], gpus: list[GPU] | None) -> TrainingReport:
    """The report on what the command line asks for."""
    stated = {name: given[name] for name in TrainingWorkload.model_fields if name in given}
    if "lora_rank" in stated or "lora_targets" in stated:
        stated.setdefault("method", "lora")
    trainer = TRAINERS[given["trainer"]].of(stated.get("method", "full")) if "trainer" in given else None
    workload = filled(TrainingWorkload, (trainer.workload if trainer else {}) | stated)
    if workload.trains_base and {"lora_rank", "lora_targets"} & set(stated):
        raise ConfigError(
            Message("LoRA options go with --method lora or qlora, not with one that trains every weight."), "method"
        )
    if workload.trains_base and given["weights"] is not None:
        raise ConfigError(
            Message("--weights is how LoRA's frozen weights are stored; trained ones follow --recipe."), "weights"
        )
    weights = given["weights"] or (trainer.base if trainer else None)
    return training_report(
        config,
        model=given["model"],
        workload=workload,
        recipe=chosen_recipe(given, trainer.recipe if trainer else "master"),
        frozen=None if weights is None else Precision(weights=weights),
        layout=filled(TrainingLayout, {**(trainer.layout if trainer else {}), **given}),
        gpus=gpus,
    )


def spread(config: Mapping[str, Any], report: TrainingReport) -> dict[str, Together]:
    """How many GPUs do, and with which changes, where none do as it is: by GPU."""
    scenario = report.scenario
    training = Training(
        Architecture.from_config(config),
        scenario.workload,
        scenario.recipe,
        scenario.layout,
        scenario.overhead,
        scenario.frozen,
    )
    wanting = [verdict.gpu for verdict in report.verdicts if verdict.min_gpus is None]
    ways = {gpu: more_gpus(find_gpu(gpu), training) for gpu in wanting}
    return {gpu: way for gpu, way in ways.items() if way is not None}


def chosen_recipe(given: Mapping[str, Any], default: RecipeName) -> Recipe:
    """A named recipe, with another choice of master copy or states where one is made."""
    recipe = RECIPES[given.get("recipe", "bf16" if given.get("master") == "none" else default)]
    changes: dict[str, Any] = {}
    if "master" in given:
        changes["master"] = given["master"] == "fp32"
    if "states" in given:
        changes["states"] = given["states"]
    return recipe.model_copy(update=changes)
