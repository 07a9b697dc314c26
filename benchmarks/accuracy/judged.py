"""Predictions beside what was measured, by group: how far off, how many inside the range, and how wide that is."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from calc.time.estimate import Estimate


class Judged(NamedTuple):
    """A figure of a run that was measured, and what is predicted for it."""

    row: Mapping[str, Any]
    predicted: Estimate
    measured: float

    def error(self, factor: float = 1.0) -> float:
        return factor * self.predicted.expected / self.measured - 1


def rows_of(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows by column, and configs by name."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return [dict(zip(read["columns"], row, strict=True)) for row in read["rows"]], read["configs"]


def grouped(runs: Iterable[Judged], column: str) -> dict[str, list[Judged]]:
    groups = defaultdict(list)
    for run in runs:
        groups[str(run.row[column])].append(run)
    return dict(sorted(groups.items()))


def summary(runs: Sequence[Judged]) -> dict[str, Any]:
    errors = [run.error() for run in runs]
    inside = sum(run.predicted.low <= run.measured <= run.predicted.high for run in runs)
    return {
        "rows": len(runs),
        "median_error": round(median(map(abs, errors)), 3),
        "bias": round(median(errors), 3),
        "within_25": round(sum(abs(error) <= 0.25 for error in errors) / len(runs), 3),
        "inside": round(inside / len(runs), 3),
        "width": round(median(run.predicted.high / run.predicted.low for run in runs), 2),
    }


def left_out_in_turn(runs: Sequence[Judged], column: str, by: str) -> dict[str, Any]:
    """Errors of each value of a column, such as a model, by one factor for each engine or trainer (the column `by`)
    that is fitted on all other values."""
    errors = []
    for value, group in grouped(runs, column).items():
        others = [run for run in runs if str(run.row[column]) != value]
        for name, mine in grouped(group, by).items():
            fit = [1 / (1 + run.error()) for run in others if run.row[by] == name]
            errors += [abs(run.error(median(fit) if fit else 1.0)) for run in mine]
    return {
        "rows": len(errors),
        "median_error": round(median(errors), 3),
        "within_25": round(sum(error <= 0.25 for error in errors) / len(errors), 3),
        "nine_of_ten": round(quantiles(errors, n=10)[-1], 3),
    }
