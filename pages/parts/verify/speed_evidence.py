"""Results of `python -m benchmarks.accuracy.time`: measured speeds next to the predictions with their ranges; and what
`python -m benchmarks.accuracy.aiconfigurator` found: the same points by another tool."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from calc.errors import Frozen, Message
from pages.parts.verify.evidence import FOLDER, Records

FILE = FOLDER / "time.json"
SIDE_BY_SIDE = FOLDER / "aiconfigurator.json"
SPEEDS = {
    "decode, batch 1": Message("Decode, one sequence"),
    "prefill": Message("Prefill"),
    "batched decode": Message("Batched decode"),
    "full server": Message("Server at full load"),
    "training": Message("Training"),
    "training, with experts": Message("Training, models with experts"),
    "all": Message("All of these"),
}
"""Kinds of measured speeds."""
REASONS = {
    "no such GPU in the catalogue": Message("The GPU is not in the catalogue: {name}"),
    "no config of": Message("No config of the model: {name}"),
    "format not stated exactly": Message("The format is not stated exactly: {name}"),
    "requests waited for cache, whose size is not stated": Message(
        "Requests waited for cache, and the size of the cache is not stated"
    ),
    "how many requests ran together is not stated": Message("How many requests ran together is not stated"),
    "the cache holds no request": Message("By our count the cache holds no request"),
}
"""Why rows are left out, by the beginning of the benchmark's words."""


class SpeedSummary(Frozen):
    """Errors of one kind, engine or GPU."""

    rows: int
    median_error: float
    bias: float
    within_25: float
    worst: float
    inside: float
    widest: float


class CrossValidated(Frozen):
    """Errors with one factor an engine, fitted on half of the GPUs and judged on the other half."""

    gpus: int
    median_error: float
    worst_half: float
    within_25: float


class SpeedLeftOut(Frozen):
    kind: str
    reason: str
    count: int

    @property
    def message(self) -> Message:
        """Why, in the reader's language."""
        start = next(start for start in REASONS if self.reason.startswith(start))
        return Message(REASONS[start].template, name=self.reason.removeprefix(start).lstrip(": "))


class SpeedAccuracy(Records):
    """All of them."""

    by_kind: Mapping[str, SpeedSummary]
    by_engine: Mapping[str, SpeedSummary]
    by_gpu: Mapping[str, SpeedSummary]
    halves: int
    cross_validated: Mapping[str, CrossValidated]
    served: int
    measured_above_high: tuple[str, ...]
    left_out: tuple[SpeedLeftOut, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row by column, with its source's address and its error."""
        return (row | {"error": row["expected"] / row["measured"] - 1} for row in self.fields())


class SideBySide(Frozen):
    """Median errors of both tools on the points that both answer."""

    points: int
    weighbridge: float
    aiconfigurator: float


@cache
def speeds() -> SpeedAccuracy:
    return SpeedAccuracy.model_validate_json(FILE.read_bytes())


@cache
def side_by_side() -> tuple[str, Mapping[str, SideBySide]]:
    """The other tool's version, and both by kind."""
    read = json.loads(SIDE_BY_SIDE.read_bytes())
    by_kind = {kind: SideBySide(**row) for kind, row in read["median_error"].items()}
    return read["aiconfigurator"], MappingProxyType(dict(sorted(by_kind.items(), key=lambda row: row[0] == "all")))
