"""python -m calc plan MODEL: which hardware, laid out how, how fast, at what price; with --train of a training run."""

import argparse
from collections.abc import Iterator
from typing import Any

from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS, native
from calc.hardware import find_gpu, usual_gpus
from calc.serving.engines import DEFAULT_ENGINE, ENGINES
from calc.serving.engines.launch import Launch
from calc.time import Estimate, Needs, Plan, TrainingNeeds, TrainingPlan, TrainingPlanReport, training_plan_report
from calc.time.plan_report import PlanReport, plan_report
from calc.training import RECIPES, TrainingWorkload
from cli.command import add_engine_flags, chosen_config, chosen_engine, chosen_gpus, served
from cli.manifests import KINDS, Server, manifest
from cli.options import (
    ENGINE_FIELDS,
    Parser,
    add_cluster,
    add_fields,
    bad_question,
    counted,
    filled,
    of_model,
    refuse_idle,
    stated_cluster,
)
from cli.tables import described

WORK = ("sequence", "optimizer")
SERVING = (*Needs.model_fields, "weights", "kv", "engine", "max_gpus", "limit", *ENGINE_FIELDS)
OWN = (*TrainingNeeds.model_fields, *WORK, "recipe")
MOST_GPUS, LISTED = 64, 20
"""GPUs in all and plans, where nothing is said."""


def parser() -> Parser:
    about = "Plan how to serve a language model: GPUs, layout, formats, speed and price."
    p = of_model("python -m calc plan", about)
    add_fields(p, Needs)
    p.add_argument("--gpu", nargs="+", action="extend", metavar="ID", help="GPUs that may be used (default: all)")
    p.add_argument("--max-gpus", type=int, metavar="N", help=f"at most so many in all (default {MOST_GPUS})")
    p.add_argument(
        "--weights",
        nargs="+",
        choices=WEIGHT_FORMATS,
        help="acceptable storage of the weights (default: as the checkpoint)",
    )
    p.add_argument(
        "--kv", nargs="+", choices=CACHE_FORMATS, help="acceptable storage of the KV cache (default: as the checkpoint)"
    )
    p.add_argument("--engine", choices=tuple(ENGINES), help=f"(default {DEFAULT_ENGINE})")
    p.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="GPU=USD",
        help="your price of a GPU-hour, instead of the list's",
    )
    add_cluster(p)
    add_engine_flags(p)
    p.add_argument(
        "--manifest", choices=KINDS, help="print the first plan as something that a cluster runs, and nothing else"
    )
    p.add_argument("--limit", type=int, metavar="N", help=f"plans to print (default {LISTED})")
    add_training_plan_options(p)
    return p


def run(arguments: argparse.Namespace) -> PlanReport | TrainingPlanReport:
    given, config = vars(arguments), chosen_config(arguments)
    refuse_idle(SERVING if arguments.train else OWN, given, train=arguments.train)
    most, limit = counted(given, "max_gpus", MOST_GPUS), counted(given, "limit", LISTED)
    gpus, cluster = chosen_gpus(arguments.gpu), stated_cluster(given)
    if arguments.train:
        return training_plan_report(
            config,
            filled(TrainingNeeds, given),
            gpus=gpus or usual_gpus(),
            model=arguments.model,
            work=filled(TrainingWorkload, {name: given[name] for name in WORK if name in given}),
            recipe=RECIPES[given.get("recipe", "master")],
            cluster=cluster,
        )
    weights: list[Any] = arguments.weights or [None]
    caches: list[Any] = arguments.kv or [None]
    engine = chosen_engine(given | {"engine": arguments.engine or DEFAULT_ENGINE})
    return plan_report(
        config,
        filled(Needs, given),
        model=arguments.model,
        served=served(arguments),
        engine=engine,
        gpus=gpus,
        precisions=[engine.precision(native(config), form, kv) for form in weights for kv in caches],
        most=most,
        cluster=cluster,
        limit=limit,
    )


def table(report: PlanReport) -> str:
    wide = max([24, *(len(laid_out(plan)) + 2 for plan in report.plans)])
    head = f"{'GPU':22}{'GPUs':>6}  {'replicas x layout':{wide}}{'weights':12}{'KV':9}{'batch':>7}{'TTFT ms':>10}"
    lines = [report.model, "", f"{head}{'TPOT ms':>9}{'tokens/s':>10}{'$/h':>9}{'$/M':>8}  limited by"]
    for plan in report.plans:
        layout = laid_out(plan)
        hour = "–" if plan.usd_per_hour is None else f"{plan.usd_per_hour:,.2f}"
        million = "–" if plan.usd_per_million_tokens is None else f"{plan.usd_per_million_tokens:,.2f}"
        lines.append(
            f"{plan.gpu:22}{plan.gpus:>6,}  {layout:{wide}}{plan.weights:12}{plan.kv:9}{plan.batch:>7,}"
            f"{plan.ttft_ms:>10,.0f}{plan.tpot_ms:>9,.1f}{plan.tokens_per_s:>10,.0f}{hour:>9}{million:>8}  {plan.bound}"
            + ("" if plan.meets else "  misses a target")
        )
    lines += [waits(plan) for plan in report.plans[:1] if plan.waits is not None]
    if report.ttft_p95_ms is not None and report.plans[0].waits is None:
        lines += ["", f"first plan: 95 % of requests get their first token within {report.ttft_p95_ms:,.0f} ms"]
    if not report.plans:
        lines.append("Nothing that may be used holds this model and one request.")
    if report.sensitivity:
        lines += ["", *(str(row.sentence) for row in report.sensitivity)]
    lines += [line for started in started_by(report) for line in ("", started.text, *map(str, started.notes))]
    return "\n".join([*lines, "", *map(str, report.assumptions)])


def laid_out(plan: Plan) -> str:
    """Replicas, or the workers of both sides."""
    decode = f"{plan.replicas} x {described(plan.layout)}"
    if plan.prefill is None:
        return decode
    return f"{plan.prefill.workers} x {described(plan.prefill.layout)} prefill + {decode} decode"


def started_by(report: PlanReport) -> Iterator[Launch]:
    """The commands of the first plan: one replica, or a worker of each side and the router."""
    if report.separate is not None:
        yield from (report.separate.prefill, report.separate.decode, report.separate.router)
    elif report.launch is not None:
        yield report.launch


def written_out(report: PlanReport | TrainingPlanReport, arguments: argparse.Namespace) -> str:
    """The first plan as a manifest. Raises ConfigError where there is none."""
    engine = ENGINES[arguments.engine or DEFAULT_ENGINE]
    image = engine.image
    if isinstance(report, TrainingPlanReport) or report.launch is None or report.separate is not None:
        sentence = (
            "Manifests are for plans with one kind of server; the first plan has separate servers for prefill and "
            "decode."
        )
        raise bad_question(sentence, "manifest")
    if image is None:
        sentence = "No container image of {engine} is known; vLLM and SGLang have one."
        raise bad_question(sentence, "manifest", engine=engine.title)
    plan = report.plans[0]
    server = Server(
        model=report.model,
        words=report.launch.words,
        image=image,
        gpu=find_gpu(plan.gpu),
        gpus=plan.layout.gpus,
        replicas=plan.replicas,
    )
    return manifest(server, arguments.manifest, stated_cluster(vars(arguments))).rstrip()


def waits(plan: Plan) -> str:
    """Latency of requests that arrive at random, for the first plan."""
    assert plan.waits is not None
    ttft, tpot, most = plan.waits.ttft_ms, plan.waits.tpot_ms, plan.waits.most_requests_per_s
    return (
        f"\n{'':22}{'TTFT p50':>12}{'p95':>12}{'TPOT p50':>12}{'p95':>12}{'most requests/s':>18}\n"
        f"{plan.gpu:22}{ttft.p50:>12,.0f}{ttft.p95:>12,.0f}{tpot.p50:>12,.1f}{tpot.p95:>12,.1f}{most:>18,.3g}"
    )


def add_training_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train", action="store_true", help="plan a training run instead of a server")
    group = parser.add_argument_group("training", "with --train", argument_default=argparse.SUPPRESS)
    add_fields(group, TrainingNeeds)
    add_fields(group, TrainingWorkload, WORK)
    group.add_argument("--recipe", choices=tuple(RECIPES), help="mixed precision (default master)")


def training_plan_table(report: TrainingPlanReport) -> str:
    head = f"{'GPU':20}{'layout':30}{'recompute':>10}{'micro-batch':>13}{'spare GiB':>11}{'step s':>9}"
    head += f"{'tokens/s/GPU':>14}{'MFU':>7}{'days':>10}{'from':>9}{'to':>9}{'MWh':>9}{'$':>13}"
    lines = [report.model, "", head, *map(training_line, report.plans)]
    if not report.plans:
        lines.append("On none of these GPUs any layout fits.")
    if report.savings:
        lines += [
            "",
            "The first of them under every ZeRO stage and recomputation that fits",
            *map(training_line, report.savings),
        ]
    return "\n".join([*lines, "", *map(str, report.assumptions)])


def training_line(plan: TrainingPlan) -> str:
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


def answer(arguments: argparse.Namespace) -> tuple[str, int]:
    """Text and exit status."""
    report = run(arguments)
    if arguments.manifest is not None:
        return written_out(report, arguments), 0
    if arguments.json:
        return report.model_dump_json(indent=1), 0
    return training_plan_table(report) if isinstance(report, TrainingPlanReport) else table(report), 0
