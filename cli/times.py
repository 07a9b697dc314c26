"""The part of the command line that times what it weighs: python -m calc MODEL --time."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calc import Architecture, Report, TrainingReport
from calc.errors import ConfigError
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.time.efficiency import Edits, stated_share, without_effect
from calc.time.estimate import Estimate
from calc.time.objective_time import ObjectiveTime, objective_speed_of
from calc.time.time_report import TimeReport, TrainingTimeReport, time_of, training_time_of
from calc.training import PHASE_NAMES
from calc.units import four_digits

Times = TimeReport | TrainingTimeReport | ObjectiveTime


def add_share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share",
        action="append",
        metavar="NAME=LOW/EXPECTED/HIGH",
        help="your share of a printed peak, instead of the usual one: bandwidth=0.7/0.8/0.9, or with --train "
        "training_matmul=0.5/0.6/0.7",
    )


def stated_shares(given: Mapping[str, Any]) -> Edits:
    """Raises ConfigError, also for those without effect."""
    edits = dict(map(stated_share, given["share"] or ()))
    idle = without_effect(edits, training=given["train"])
    if idle is not None:
        raise ConfigError(idle, "share")
    return edits


def times(
    config: Mapping[str, Any],
    report: Report | TrainingReport,
    gpus: Sequence[GPU] | None,
    edits: Edits,
    draft_model: Architecture | None,
) -> Times:
    """Times on the first GPU that is asked about."""
    gpu = (gpus or usual_gpus())[0]
    if isinstance(report, TrainingReport) and report.scenario.objective is not None:
        return objective_speed_of(Architecture.from_config(config), report, gpu, edits=edits).time()
    if isinstance(report, TrainingReport):
        return training_time_of(config, report, gpu, edits=edits)
    return time_of(config, report, gpu, draft_model=draft_model, edits=edits)


def times_table(times: Times) -> str:
    """Text for reading."""
    lines = ["", f"{'':24}{'expected':>12}{'from':>12}{'to':>12}"]
    rows: dict[str, Estimate] = {}
    if isinstance(times, ObjectiveTime):
        return "\n".join([*lines, *objective_lines(times)])
    if isinstance(times, TrainingTimeReport):
        rows = {"step, s": times.step_s, "tokens/s per GPU": times.tokens_per_s_per_gpu}
        rows |= {"TFLOP/s per GPU": times.tflops_per_gpu, "MFU": times.mfu}
        longest = times.operations[0]
        bound = f"the longest part of the step is {longest.what}, limited by {longest.bound or 'other stages'}"
        return "\n".join([*lines, *(line(name, row) for name, row in rows.items()), f"{bound}, on {times.gpu}"])
    rows = {
        "decode step, ms": times.decode.step_ms,
        "decode, tokens/s": times.decode.tokens_per_s,
        "TTFT of the batch, ms": times.prefill.ttft_ms,
        "prefill, tokens/s": times.prefill.tokens_per_s,
    }
    bounds = f"decode is limited by {times.decode.bound}, prefill by {times.prefill.bound}, on {times.gpu}"
    lines += [*(line(name, row) for name, row in rows.items()), bounds, str(times.origin.sentence), ""]
    return "\n".join([*lines, *map(str, times.assumptions)])


def objective_lines(times: ObjectiveTime) -> Iterator[str]:
    """A step with its phases, and other divisions of the same GPUs."""
    yield line("step, s", times.step_s)
    for phase in times.phases:
        yield line(f"  {phase.name.replace('_', ' ')}", phase.seconds)
    yield line("tokens/s per GPU", times.tokens_per_s_per_gpu)
    if times.generated_tokens_per_s is not None:
        yield line("generated, tokens/s", times.generated_tokens_per_s)
    yield line("steps an hour", times.steps_per_hour)
    yield line("tokens an hour", times.tokens_per_hour)
    yield f"most of the step is {PHASE_NAMES[times.longest]}, on {times.gpu}"
    for division in times.divisions:
        where = f"{division.engine_gpus} for the engine alone" if division.engine_gpus else "engine on all"
        note = "" if division.fits else "  does not fit"
        yield f"{where:24}{four_digits(division.step_s.expected):>12} s{note}"
    yield ""
    yield from map(str, times.assumptions)


def line(name: str, row: Estimate) -> str:
    return f"{name:24}" + "".join(f"{four_digits(value):>12}" for value in (row.expected, row.low, row.high))
