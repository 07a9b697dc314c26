"""Results of `python -m benchmarks.accuracy.served_evidence`: times of servers under a steady load, measured and
predicted with their ranges."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from statistics import median
from typing import Any, Literal

from calc.errors import Frozen, Message
from calc.hardware import find_gpu
from pages.parts.verify.evidence import FOLDER, Records

FILE = FOLDER / "served.json"
Figure = Literal["tpot_ms", "ttft_ms"]
FIGURES: dict[Figure, Message] = {
    "tpot_ms": Message("Time per output token (TPOT)"),
    "ttft_ms": Message("Time to first token (TTFT)"),
}
REASONS = {
    "all requests at once": Message("All requests come at once"),
    "requests waited": Message("Requests waited: fewer ran at once than is stated"),
    "2 to 4 times slower": Message("Several times slower than the same model elsewhere: not as stated"),
    "speculation unknown": Message("Whether tokens are guessed is not stated"),
    "no such GPU in the catalogue": Message("The GPU is not in the catalogue"),
    "no config of": Message("No config of the model"),
    "the figures are those of": Message("The page repeats another model's figures"),
    "read faster than": Message("Faster than weights and cache can be read: load or format are not as stated"),
}
"""Why rows are left out, by the beginning of the benchmark's words."""


class Served(Frozen):
    """A server that was measured; times in milliseconds, ours as low, expected and high."""

    model: str
    weights: str
    gpu: str
    gpus: int
    engine: str
    prompt: int
    output: int
    concurrency: int
    separate: bool  # prefill and decode run on GPUs of their own
    tpot_ms: float
    tpot_ours: tuple[float, float, float]
    ttft_ms: float
    ttft_ours: tuple[float, float, float]
    source: str

    @property
    def generation(self) -> str:
        """Generation of the GPU, such as Hopper."""
        return (find_gpu(self.gpu).generation or "").partition("-")[0].capitalize()

    def measured(self, figure: Figure) -> float:
        return self.tpot_ms if figure == "tpot_ms" else self.ttft_ms

    def ours(self, figure: Figure) -> tuple[float, float, float]:
        return self.tpot_ours if figure == "tpot_ms" else self.ttft_ours


class ServersLeftOut(Frozen):
    reason: str
    count: int


class CrossJudged(Frozen):
    """Median errors with each model, or GPU, left out in turn: one factor an engine is fitted on all the others."""

    figure: Figure
    column: Literal["model", "gpu"]
    rows: int
    median_error: float
    within_25: float
    nine_of_ten: float


class Servers(Records):
    """All of them, a row a server by the fields of Served, its source by number."""

    crossed: tuple[CrossJudged, ...]
    left_out: tuple[ServersLeftOut, ...]

    def servers(self) -> Iterator[Served]:
        return (Served(**row) for row in self.fields())


def by_engine(rows: Iterable[Served]) -> Mapping[tuple[bool, str, str], list[Served]]:
    """Servers by whether prefill and decode are separate, engine and generation of GPU."""
    groups: dict[tuple[bool, str, str], list[Served]] = {}
    for row in sorted(rows, key=lambda row: (row.separate, row.engine, row.generation)):
        groups.setdefault((row.separate, row.engine, row.generation), []).append(row)
    return groups


class ServedSummary(Frozen):
    """Errors of some servers in one figure, whatever their sign."""

    median: float
    within_25: float
    inside: float
    width: float  # of the range, at the median: its high end over its low one


def summary_of(rows: Iterable[Served], figure: Figure) -> ServedSummary:
    triples: list[tuple[float, tuple[Any, ...]]] = [(row.measured(figure), row.ours(figure)) for row in rows]
    errors = [abs(expected / measured - 1) for measured, (_, expected, _) in triples]
    return ServedSummary(
        median=median(errors),
        within_25=sum(error <= 0.25 for error in errors) / len(errors),
        inside=sum(low <= measured <= high for measured, (low, _, high) in triples) / len(errors),
        width=median(high / low for _, (low, _, high) in triples),
    )


@cache
def servers() -> Servers:
    return Servers.model_validate_json(FILE.read_bytes())
