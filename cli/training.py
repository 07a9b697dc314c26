"""The part of the command line that weighs a training step: python -m calc MODEL --train."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, get_args

from calc.errors import ConfigError
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.serving.workload import Workload
from calc.training.optimizer import Optimizer
from calc.training.recipe import RECIPES, WIDTH, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_report import TrainingReport, training_report
from calc.training.training_workload import LoraTargets, Loss, Method, Recompute, TrainingWorkload
from calc.units import GIB

WORKLOAD = tuple(name for name in TrainingWorkload.model_fields if name != "attention")
LAYOUT = ("dp", "cp", "ep", "zero", "sequence_parallel")
SERVING = tuple(name for name in (*Workload.model_fields, "kv") if name != "attention")
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


def check_options(given: Mapping[str, Any], default: Callable[[str], Any]) -> None:
    """Raise ConfigError where options are given that have no effect."""
    if given["train"]:
        for name in SERVING:
            if name in given and given[name] != default(name):
                hint = f" {INSTEAD[name]} stands for it." if name in INSTEAD else ""
                raise ConfigError(f"--{name.replace('_', '-')} has no effect with --train.{hint}", name)
        return
    for name in (*WORKLOAD, "cp", "zero", "sequence_parallel", "recipe", "master", "states"):
        if name in given:
            raise ConfigError(f"--{name.replace('_', '-')} takes effect only with --train.", name)


def run_training(config: Mapping[str, Any], given: Mapping[str, Any], gpus: list[GPU] | None) -> TrainingReport:
    """The report on what the command line asks for."""
    asked = {name: given[name] for name in WORKLOAD if name in given}
    if "lora_rank" in asked or "lora_targets" in asked:
        asked.setdefault("method", "lora")
    workload = TrainingWorkload(attention=given["attention"], **asked)
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
        layout=TrainingLayout(
            tp=given["tp"], pp=given["pp"], **{name: given[name] for name in LAYOUT if name in given}
        ),
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


def training_table(r: TrainingReport) -> str:
    """The report for reading."""
    m = r.memory
    lines = [
        r.model,
        "",
        f"{'parameters':24}{r.parameters.total:>22,}",
        f"{'trained':24}{r.trained_parameters:>22,}",
        "",
    ]
    parts = m.parts | {"overhead": m.overhead}
    lines += [f"{name:24}{size / GIB:>22.2f} GiB" for name, size in parts.items()]
    lines += [f"{'memory of one GPU':24}{m.total / GIB:>22.2f} GiB ({m.low / GIB:.2f} to {m.high / GIB:.2f})", ""]
    lines += [f"{'GPU':20}{'verdict':14}{'spare GiB':>10}{'micro-batch':>13}{'sequence':>12}{'GPUs':>6}"]
    for v in r.verdicts:
        batch = "unlimited" if v.max_micro_batch is None else f"{v.max_micro_batch:,}"
        sequence = "unlimited" if v.max_sequence is None else f"{v.max_sequence:,}"
        lines.append(
            f"{v.gpu:20}{v.verdict:14}{v.spare / GIB:>10.2f}{batch:>13}{sequence:>12}{v.min_gpus or '>1024':>6}"
            + "".join(f"  {note}" for note in v.notes)
        )
    return "\n".join([*lines, "", *r.assumptions])
