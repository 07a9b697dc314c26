"""The part of the command line that plans a training run: python -m calc plan MODEL --train."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from calc.errors import ConfigError, Message
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.time.efficiency import Edits
from calc.time.estimate import Estimate
from calc.time.training_plan import TrainingNeeds, TrainingPlan, TrainingPlanReport, training_plan_report
from calc.training import RECIPES, Optimizer, TrainingWorkload
from cli.options import add_fields, filled, flag

WORK = ("sequence", "optimizer")
OWN = (*TrainingNeeds.model_fields, *WORK, "recipe")


def add_training_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train", action="store_true", help="plan a training run instead of a server")
    group = parser.add_argument_group("training", "with --train", argument_default=argparse.SUPPRESS)
    add_fields(group, TrainingNeeds)
    group.add_argument("--sequence", type=int, metavar="N", help="tokens of each sequence (default 4096)")
    group.add_argument("--optimizer", choices=get_args(Optimizer), help="default adamw")
    group.add_argument("--recipe", choices=tuple(RECIPES), help="mixed precision (default master)")


def check_plan_options(given: Mapping[str, Any], serving: Sequence[str]) -> None:
    """Raise ConfigError where options are given that have no effect."""
    foreign = serving if given["train"] else OWN
    for name in (name for name in foreign if given.get(name) is not None):
        if given["train"]:
            raise ConfigError(Message("{flag} has no effect with --train.", flag=flag(name)), name)
        raise ConfigError(Message("{flag} takes effect only with --train.", flag=flag(name)), name)


def run_training_plan(
    config: Mapping[str, Any],
    given: Mapping[str, Any],
    gpus: list[GPU] | None,
    prices: Mapping[str, float],
    edits: Edits,
) -> TrainingPlanReport:
    return training_plan_report(
        config,
        filled(TrainingNeeds, given),
        gpus=gpus or usual_gpus(),
        model=given["model"],
        work=filled(TrainingWorkload, {name: given[name] for name in WORK if name in given}),
        recipe=RECIPES[given.get("recipe", "master")],
        node=given["node"],
        prices=prices,
        edits=edits,
    )


def training_plan_table(report: TrainingPlanReport) -> str:
    """Text for reading."""
    head = f"{'GPU':20}{'layout':30}{'recompute':>10}{'micro-batch':>13}{'spare GiB':>11}{'step s':>9}"
    head += f"{'tokens/s/GPU':>14}{'MFU':>7}{'days':>10}{'from':>9}{'to':>9}{'MWh':>9}{'$':>13}"
    lines = [report.model, "", head, *map(line, report.plans)]
    if not report.plans:
        lines.append("On none of these GPUs any layout fits.")
    if report.savings:
        lines += [
            "",
            "The first of them under every ZeRO stage and recomputation that fits",
            *map(line, report.savings),
        ]
    return "\n".join([*lines, "", *map(str, report.assumptions)])


def line(plan: TrainingPlan) -> str:
    time, campaign = plan.time, plan.campaign
    ranks = {name: getattr(plan.layout, name) for name in ("tp", "pp", "vp", "dp", "ep")}
    spread = " ".join(f"{name.upper()} {n}" for name, n in ranks.items() if n > 1) or "one GPU"
    layout = f"{spread} ZeRO {plan.layout.zero}"
    return (
        f"{plan.gpu:20}{layout:30}{plan.recompute:>10}{plan.micro_batch:>13,}{plan.headroom_gib:>11.1f}"
        f"{time.step_s.expected:>9.2f}{time.tokens_per_s_per_gpu.expected:>14,.0f}{time.mfu.expected:>7.1%}"
        f"{campaign.days.expected:>10,.1f}{campaign.days.low:>9,.1f}{campaign.days.high:>9,.1f}"
        f"{figure(campaign.energy_mwh, ',.1f'):>9}{figure(campaign.cost, ',.0f'):>13}"
    )


def figure(estimate: Estimate | None, spec: str) -> str:
    return "–" if estimate is None else format(estimate.expected, spec)
