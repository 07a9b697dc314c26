"""What `python -m benchmarks.accuracy` found: our figures beside every public record."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

from calc.errors import Frozen

FILE = Path(__file__).parents[3] / "docs" / "accuracy.json"
KINDS = {
    "weights, 16 bits": "vLLM's “model loading took”",
    "weights, quantised": "the same; checkpoints differ in what they keep in 16 bits",
    "KV tokens given KV bytes": "vLLM's “GPU KV cache size” from its own bytes",
    "vLLM KV budget": "bytes that vLLM leaves for the cache, from the settings alone",
    "transformers peaks, 16 bits": "torch's peak of a generation",
    "transformers peaks, quantised": "the same with GPTQ and AWQ, whose kernels need memory of their own",
    "cache of other engines": "SGLang and llama.cpp",
    "training peaks": "torch's or the driver's peak of a training step",
}
"""Kinds of figures, and what is compared."""


class Compared(Frozen):
    """One figure of a public record beside ours."""

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


class Accuracy(Frozen):
    """All of them."""

    rows: tuple[Compared, ...]
    left_out: tuple[LeftOut, ...]

    def by_kind(self) -> dict[str, list[Compared]]:
        kinds: dict[str, list[Compared]] = {}
        for row in self.rows:
            kinds.setdefault(row.kind, []).append(row)
        return kinds


class Summary(Frozen):
    """How large the errors of one kind are, whatever their sign."""

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
