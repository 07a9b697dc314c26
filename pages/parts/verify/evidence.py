"""Our figures against published ones, each file written by a benchmark: sizes by `python -m benchmarks.accuracy`,
start-ups by `startup_evidence`, speeds by `time`, `served_evidence` and `aiconfigurator` of the same folder."""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from calc.errors import Frozen, Message
from calc.hardware import find_gpu
from calc.serving import VerdictWord
from pages.parts.words import say

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
ReadT = TypeVar("ReadT", bound=Frozen)
FOLDER = Path(__file__).parents[2] / "evidence"
FILE, STARTUPS, SPEEDS, SERVED, SIDE_BY_SIDE = (
    FOLDER / f"{name}.json" for name in ("accuracy", "startups", "time", "served", "aiconfigurator")
)
OFFLOADED = FOLDER / "offload.json"
KINDS = {
    "weights, 16 bits": Message("Weights, 16 bits"),
    "weights, quantized": Message("Weights, quantized"),
    "KV tokens given KV bytes": Message("Cache tokens from cache bytes"),
    "vLLM KV budget": Message("Available KV cache memory (vLLM)"),
    "transformers peaks, 16 bits": Message("Peaks of transformers, 16 bits"),
    "transformers peaks, quantized": Message("Peaks of transformers, quantized"),
    "cache of other engines": Message("Cache of other engines"),
    "SGLang weights": Message("Weights, SGLang"),
    "SGLang KV budget": Message("Available KV cache memory (SGLang)"),
    "training peaks": Message("Training peaks"),
    "training steps, computed": Message("Training steps, computed by torch"),
}
"""Kinds of figures."""
EXPLAINED = {
    "weights, 16 bits": Message("{kind}: vLLM's “model loading took”"),
    "weights, quantized": Message("{kind}: the same; checkpoints differ in what they keep in 16 bits"),
    "KV tokens given KV bytes": Message("{kind}: vLLM's “GPU KV cache size” from its own bytes"),
    "vLLM KV budget": Message("{kind}: bytes that vLLM leaves for the cache, from the settings alone"),
    "transformers peaks, 16 bits": Message("{kind}: torch's peak of a generation"),
    "transformers peaks, quantized": Message(
        "{kind}: the same with GPTQ and AWQ, whose kernels need memory of their own"
    ),
    "cache of other engines": Message("{kind}: bytes of the tokens and states that SGLang and llama.cpp print"),
    "SGLang weights": Message(
        "{kind}: what is gone from the free memory after loading, of which libraries take a part"
    ),
    "SGLang KV budget": Message("{kind}: what its share of the free memory leaves beside our weights"),
    "training peaks": Message("{kind}: torch's or the driver's peak of a training step"),
    "training steps, computed": Message(
        "{kind}: whole steps under fake tensors, each storage tracked by torch; no GPU was run"
    ),
}
"""The figure that each kind compares."""
COMPUTED = "training steps, computed"
"""The kind of figures that torch computed, without a GPU."""


Figure = Literal["tpot_ms", "ttft_ms"]
FIGURES: dict[Figure, Message] = {
    "tpot_ms": Message("Time per output token (TPOT)"),
    "ttft_ms": Message("Time to first token (TTFT)"),
}


class Compared(Frozen):
    """One figure of a public record, or of a step that torch computed, and ours."""

    kind: str
    name: str
    unit: Literal["bytes", "tokens"]
    predicted: int
    measured: int
    source: str

    @property
    def error(self) -> float:
        """Share of what was measured."""
        return self.predicted / self.measured - 1


class LeftOut(Frozen):
    """Records that can't be compared, and why."""

    kind: str
    reason: str
    count: int


class Uncounted(Frozen):
    """So many records that can't be compared, and why."""

    reason: str
    count: int


def why(reasons: Mapping[str, Message], words: str) -> Message:
    """A reason of `reasons`, by the beginning of the benchmark's words; `name` in it is what follows."""
    start = next(start for start in reasons if words.startswith(start))
    return Message(reasons[start].template, name=words.removeprefix(start).lstrip(": "))


def said(rows: Iterable[LeftOut | Uncounted], reasons: Mapping[str, Message]) -> list[tuple[str, int]]:
    """Each reason as the reader's language has it, with its records, the most first."""
    counts = Counter[str]()
    for row in rows:
        counts[say(why(reasons, row.reason))] += row.count
    return counts.most_common()


def by(key: Callable[[T], K], rows: Iterable[T]) -> dict[K, list[T]]:
    """Rows by a key, in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def percentile(ordered: Sequence[float], share: int) -> float:
    """The smallest of ascending values that no more than the rest of 100 exceed."""
    return ordered[-(-share * len(ordered) // 100) - 1]


class Accuracy(Frozen):
    """All of them."""

    rows: tuple[Compared, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def tracked(self) -> int:
        """Figures that torch computed, without a GPU."""
        return len(self.by_kind()[COMPUTED])

    def by_kind(self) -> dict[str, list[Compared]]:
        return by(lambda row: row.kind, self.rows)


class Summary(Frozen):
    """Absolute errors of one kind, as shares."""

    kind: str
    records: int
    median: float
    p95: float
    worst: float


def summaries(accuracy: Accuracy) -> Iterator[Summary]:
    for kind, rows in accuracy.by_kind().items():
        errors = sorted(abs(row.error) for row in rows)
        middle, p95 = median(errors), percentile(errors, 95)
        yield Summary(kind=kind, records=len(errors), median=middle, p95=p95, worst=errors[-1])


class StartedLog(Frozen):
    """A start-up log and ours of it, in GiB."""

    engine: str
    version: str | None
    model: str
    gpu: str
    gpus: int
    total: float
    cache: float
    cache_low: float
    cache_high: float
    cache_logged: float | None
    weights_agree: bool
    graphs: float
    graphs_logged: float | None
    source: str

    @property
    def error(self) -> float | None:
        """Our cache more than the log's, as a share of the GPU; None where the log does not state it, or which modules
        stay in 16 bits."""
        if self.cache_logged is None or not self.weights_agree:
            return None
        return (self.cache - self.cache_logged) / self.total

    @property
    def is_inside(self) -> bool:
        """Whether the log's cache lies in our range, to the digits that it prints."""
        return self.cache_logged is not None and self.cache_low - 0.005 <= self.cache_logged <= self.cache_high + 0.005

    @property
    def graphs_error(self) -> float | None:
        return None if self.graphs_logged is None else self.graphs - self.graphs_logged

    @property
    def release(self) -> tuple[str, tuple[int, ...]]:
        """Engine and the first two numbers of its version: 0, 11 of 0.11.2."""
        return self.engine, () if self.version is None else tuple(map(int, self.version.split(".")[:2]))


class Length(Frozen):
    """The longest request that an engine printed when it refused a longer one, and ours."""

    version: str | None
    model: str
    gpu: str | None
    printed: int
    of_bytes: int  # that the log's own bytes hold
    end_to_end: int | None  # that we plan from its settings; None: the log does not state its GPU
    source: str


class Cell(Frozen):
    """So many configurations of an engine that start, or do not, by our word."""

    engine: str
    starts: bool
    word: VerdictWord
    count: int


class Miss(Frozen):
    """A configuration that starts and of which we say that it does not fit or run, or the reverse."""

    model: str
    gpu: str
    gpus: int
    engine: str
    starts: bool
    word: VerdictWord
    source: str


class Startups(Frozen):
    """All of them."""

    logs: tuple[StartedLog, ...]
    lengths: tuple[Length, ...]
    court: tuple[Cell, ...]
    misses: tuple[Miss, ...]
    left_out: tuple[Uncounted, ...]

    def judged(self, *, starts: bool, fits: bool, engine: str | None = None) -> int:
        """Configurations in a cell of the court; what is tight counts as one that fits."""
        return sum(
            cell.count
            for cell in self.court
            if cell.starts == starts
            and (cell.word not in ("does not fit", "does not run")) == fits
            and engine in (None, cell.engine)
        )


class Records(Frozen):
    """Rows of a file by the names of their columns, each with the number of its source."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sources: tuple[str, ...]

    def fields(self) -> Iterator[dict[str, Any]]:
        """Each row by column, with its source's address."""
        for cells in self.rows:
            row = dict(zip(self.columns, cells, strict=True))
            yield row | {"source": self.sources[row["source"]]}


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


class SpeedAccuracy(Records):
    """All of them."""

    by_kind: Mapping[str, SpeedSummary]
    by_engine: Mapping[str, SpeedSummary]
    by_gpu: Mapping[str, SpeedSummary]
    halves: int
    cross_validated: Mapping[str, CrossValidated]
    served: int
    measured_above_high: tuple[str, ...]
    left_out: tuple[LeftOut, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row by column, with its source's address and its error."""
        return (row | {"error": row["expected"] / row["measured"] - 1} for row in self.fields())


class SideBySide(Frozen):
    """Median errors of both tools on the points that both answer."""

    points: int
    weighbridge: float
    aiconfigurator: float


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
    left_out: tuple[Uncounted, ...]

    def servers(self) -> Iterator[Served]:
        return (Served(**row) for row in self.fields())


def reader(kind: type[ReadT], file: Path) -> Callable[[], ReadT]:
    """The contents of a file, read once."""
    return cache(lambda: kind.model_validate_json(file.read_bytes()))


accuracy, startups = reader(Accuracy, FILE), reader(Startups, STARTUPS)
speeds, servers = reader(SpeedAccuracy, SPEEDS), reader(Servers, SERVED)


@cache
def side_by_side() -> tuple[str, Mapping[str, SideBySide]]:
    """The other tool's version, and both by kind."""
    read = json.loads(SIDE_BY_SIDE.read_bytes())
    by_kind = {kind: SideBySide(**row) for kind, row in read["median_error"].items()}
    return read["aiconfigurator"], MappingProxyType(dict(sorted(by_kind.items(), key=lambda row: row[0] == "all")))
