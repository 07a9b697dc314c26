"""The part of the command line that weighs a training step: python -m calc MODEL --train."""

import argparse
from collections.abc import Mapping
from typing import Any, get_args

from calc.errors import ConfigError, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.serving.engines import ENGINES
from calc.serving.workload import Workload
from calc.training.optimizer import Optimizer
from calc.training.recipe import RECIPES, WIDTH, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_report import TrainingReport, training_report
from calc.training.training_workload import LoraTargets, Loss, Method, Recompute, TrainingWorkload
from cli.options import filled, flag

WORKLOAD = tuple(name for name in TrainingWorkload.model_fields if name != "attention")
INSTEAD = {"batch": "--micro-batch", "context": "--sequence"}
"""What stands in training for options that only serving knows."""


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Options that stay unset where they are not given: their defaults are those of the models that they end in."""
    parser.add_argument("--train", action="store_true", help="weigh a training step instead of serving")
    group = parser.add_argument_group("training", "with --train", argument_default=argparse.SUPPRESS)
    group.add_argument("--micro-batch", type=int, metavar="N", help="sequences of a micro-batch on each replica")
    group.add_argument("--sequence", type=int, metavar="N", help="tokens of each sequence (default 4096)")
    group.add_argument("--accumulation", type=int, metavar="N", help="micro-batches of a step")
    group.add_argument("--method", choices=get_args(Method), help="default full, or lora with --lora-rank")
    group.add_argument("--lora-rank", type=int, metavar="N")
    group.add_argument("--lora-targets", choices=get_args(LoraTargets), help="what has adapters (default all)")
    group.add_argument("--fp32-rest", action="store_true", help="QLoRA: what is not quantised in fp32, as PEFT has it")
    group.add_argument("--optimizer", choices=get_args(Optimizer), help="default adamw")
    group.add_argument("--optimizer-in-backward", action="store_true", help="use and free each gradient at once")
    group.add_argument("--recompute", choices=get_args(Recompute), help="activation checkpointing (default none)")
    group.add_argument("--fused", action="store_true", help="fused norms and SwiGLU: Liger, torch.compile")
    group.add_argument("--loss", choices=get_args(Loss), help="how logits meet the loss (default whole)")
    group.add_argument("--loss-chunks", type=int, metavar="N", help="chunks of a chunked loss (default 8)")
    group.add_argument("--offload-activations", action="store_true", help="to host memory")
    group.add_argument("--recipe", choices=tuple(RECIPES), help="mixed precision (default master)")
    group.add_argument("--master", choices=("fp32", "none"), help="a copy of the weights that the optimizer updates")
    group.add_argument("--states", choices=tuple(WIDTH), help="storage of the optimizer's states")
    group.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="ZeRO stage; 3 is FSDP")
    group.add_argument("--cp", type=int, metavar="N", help="context-parallel ranks")
    group.add_argument("--no-sequence-parallel", dest="sequence_parallel", action="store_false")


def check_options(given: Mapping[str, Any]) -> None:
    """Raise ConfigError where options are given that have no effect."""
    if given["train"]:
        serving = [*Workload.model_fields, "prefill_tokens", "kv", *engine_options()]
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
    for name in (*WORKLOAD, "cp", "zero", "sequence_parallel", "recipe", "master", "states"):
        if name in given:
            raise ConfigError(Message("{flag} takes effect only with --train.", flag=flag(name)), name)


def engine_options() -> set[str]:
    """Options of serving engines that a training step does not have."""
    names = {name for engine in ENGINES.values() for name in engine.options_type.model_fields}
    return names - set(TrainingWorkload.model_fields)


def run_training(config: Mapping[str, Any], given: Mapping[str, Any], gpus: list[GPU] | None) -> TrainingReport:
    """The report on what the command line asks for."""
    asked = {name: given[name] for name in WORKLOAD if name in given}
    if "lora_rank" in asked or "lora_targets" in asked:
        asked.setdefault("method", "lora")
    workload = filled(TrainingWorkload, {"attention": given.get("attention", "flash"), **asked})
    if workload.trains_base and {"lora_rank", "lora_targets"} & set(asked):
        raise ConfigError(
            "LoRA options go with --method lora or qlora, not with one that trains every weight.", "method"
        )
    if workload.trains_base and given["weights"] is not None:
        raise ConfigError("--weights is how LoRA's frozen weights are stored; trained ones follow --recipe.", "weights")
    return training_report(
        config,
        model=given["model"],
        workload=workload,
        recipe=chosen_recipe(given),
        frozen=None if given["weights"] is None else Precision(weights=given["weights"]),
        layout=filled(TrainingLayout, given),
        gpus=gpus,
    )


def chosen_recipe(given: Mapping[str, Any]) -> Recipe:
    """A named recipe, with another choice of master copy or states where one is made."""
    recipe = RECIPES[given.get("recipe", "bf16" if given.get("master") == "none" else "master")]
    changes: dict[str, Any] = {}
    if "master" in given:
        changes["master"] = given["master"] == "fp32"
    if "states" in given:
        changes["states"] = given["states"]
    return recipe.model_copy(update=changes)
