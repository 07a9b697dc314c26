"""The part of the command line that times what it weighs: python -m calc MODEL --time."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from calc import Report, TrainingReport
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.time.efficiency import Edits, stated_share
from calc.time.estimate import Estimate
from calc.time.time_report import TimeReport, time_of, training_time_of
from calc.time.training_time import TrainingTime
from calc.units import four_digits

Times = TimeReport | TrainingTime


def add_share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share",
        action="append",
        metavar="NAME=LOW/EXPECTED/HIGH",
        help="your share of a printed peak, instead of the usual one: bandwidth=0.7/0.8/0.9",
    )


def stated_shares(given: Mapping[str, Any]) -> Edits:
    """Raises ConfigError."""
    return dict(map(stated_share, given["share"] or ()))


def times(
    config: Mapping[str, Any], report: Report | TrainingReport, gpus: Sequence[GPU] | None, edits: Edits
) -> Times:
    """On the first GPU that is asked about."""
    gpu = (gpus or usual_gpus())[0]
    if isinstance(report, TrainingReport):
        return training_time_of(config, report, gpu)
    return time_of(config, report, gpu, edits=edits)


def times_table(times: Times) -> str:
    """For reading."""
    lines = ["", f"{'':24}{'expected':>12}{'from':>12}{'to':>12}"]
    rows: dict[str, Estimate] = {}
    if isinstance(times, TrainingTime):
        rows = {"step, s": times.step_s, "tokens/s per GPU": times.tokens_per_s_per_gpu, "MFU": times.mfu}
        return "\n".join([*lines, *(line(name, row) for name, row in rows.items())])
    rows = {
        "decode step, ms": times.decode.step_ms,
        "decode, tokens/s": times.decode.tokens_per_s,
        "TTFT, ms": times.prefill.ttft_ms,
        "prefill, tokens/s": times.prefill.tokens_per_s,
    }
    bounds = f"decode is bound by {times.decode.bound}, prefill by {times.prefill.bound}, on {times.gpu}"
    return "\n".join(
        [*lines, *(line(name, row) for name, row in rows.items()), bounds, "", *map(str, times.assumptions)]
    )


def line(name: str, row: Estimate) -> str:
    return f"{name:24}" + "".join(f"{four_digits(value):>12}" for value in (row.expected, row.low, row.high))
