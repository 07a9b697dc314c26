"""What `python -m benchmarks.accuracy.time` found: measured speeds beside the predictions with their ranges; and what
`python -m benchmarks.accuracy.aiconfigurator` found: the same points by another tool."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

from calc.errors import Frozen, Message
from calc.hardware.custom_gpu import find_gpu

DOCS = Path(__file__).parents[3] / "docs"
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
    """The same with one factor an engine, fitted on half of the GPUs and judged on the other half."""

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


class SpeedAccuracy(Frozen):
    """All of them."""

    by_kind: dict[str, SpeedSummary]
    by_engine: dict[str, SpeedSummary]
    by_gpu: dict[str, SpeedSummary]
    halves: int
    cross_validated: dict[str, CrossValidated]
    served: int
    measured_above_high: tuple[str, ...]
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    left_out: tuple[SpeedLeftOut, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """Rows with the names of their columns, their source's address and their error."""
        for cells in self.rows:
            row = dict(zip(self.columns, cells, strict=True))
            yield row | {"source": self.sources[row["source"]], "error": row["expected"] / row["measured"] - 1}


SAME = ("kind", "model", "gpus", "format", "engine", "batch", "prompt", "output", "unit")
"""What two records have alike that differ in nothing stated but the GPU."""
ALIKE, APART = 1.15, 1.5
"""Peaks are alike up to this factor; from the other on, records contradict each other."""


class Contradiction(Frozen):
    """Two records of the same work on GPUs of about the same peak, the faster first."""

    faster: dict[str, Any]
    slower: dict[str, Any]

    @property
    def factor(self) -> float:
        return float(self.faster["measured"] / self.slower["measured"])

    @property
    def peaks(self) -> float:
        """The larger peak over the smaller."""
        ends = sorted(find_gpu(row["gpu"]).tflops.get("bf16", 0.0) for row in (self.faster, self.slower))
        return ends[1] / ends[0] if ends[0] else inf


def contradiction(found: SpeedAccuracy, kind: str) -> Contradiction | None:
    """The furthest apart of a kind whose figures are rates."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in found.records():
        if row["kind"] == kind:
            alike.setdefault(tuple(row[name] for name in SAME), []).append(row)
    pairs = (
        Contradiction(faster=max(pair, key=measured), slower=min(pair, key=measured))
        for rows in alike.values()
        for pair in combinations(rows, 2)
    )
    contrary = (pair for pair in pairs if pair.peaks <= ALIKE and pair.factor >= APART)
    return max(contrary, key=lambda pair: pair.factor, default=None)


def measured(row: dict[str, Any]) -> float:
    return float(row["measured"])


class SideBySide(Frozen):
    """Median errors of both tools on the points that both answer."""

    points: int
    weighbridge: float
    aiconfigurator: float


@cache
def speeds() -> SpeedAccuracy:
    return SpeedAccuracy.model_validate_json((DOCS / "time.json").read_bytes())


@cache
def side_by_side() -> tuple[str, dict[str, SideBySide]]:
    """The other tool's version, and both by kind."""
    read = json.loads((DOCS / "aiconfigurator.json").read_bytes())
    found = {kind: SideBySide(**row) for kind, row in read["median_error"].items()}
    return read["aiconfigurator"], dict(sorted(found.items(), key=lambda row: row[0] == "all"))
