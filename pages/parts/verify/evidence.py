"""Results of `python -m benchmarks.accuracy`: our figures next to every public record and every computed step."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

from calc.errors import Frozen, Message

FOLDER = Path(__file__).parents[2] / "evidence"
"""Files of figures that pages show, each written by a benchmark."""
FILE = FOLDER / "accuracy.json"
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


class Compared(Frozen):
    """One figure of a public record, or of a step that torch computed, beside ours."""

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


def reason(reasons: Mapping[str, Message], words: str) -> Message:
    """Why a record is left out, by the beginning of the benchmark's words."""
    return next(why for start, why in reasons.items() if words.startswith(start))


class Accuracy(Frozen):
    """All of them."""

    rows: tuple[Compared, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def tracked(self) -> int:
        """Figures that torch computed, without a GPU."""
        return len(self.by_kind()[COMPUTED])

    def by_kind(self) -> dict[str, list[Compared]]:
        kinds: dict[str, list[Compared]] = {}
        for row in self.rows:
            kinds.setdefault(row.kind, []).append(row)
        return kinds


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
        p95 = errors[-(-95 * len(errors) // 100) - 1]  # the smallest that no more than 5 % exceed
        yield Summary(kind=kind, records=len(errors), median=median(errors), p95=p95, worst=errors[-1])


@cache
def accuracy() -> Accuracy:
    return Accuracy.model_validate_json(FILE.read_bytes())
