from typing import Literal

from calc.errors import Frozen, Message

Term = Literal[
    "weights",
    "bytes per token",
    "tokens",
    "one request",
    "max length",
    "state blocks",
    "attention block",
    "concurrency",
    "activations",
    "cuda_graphs",
    "graph batch",
    "libraries",
    "states",
    "KV budget",
    "left",
    "memory",
]


class Difference(Frozen):
    """A term in the log and ours; the sentence says whether they agree, and if not, why that is so."""

    term: Term
    unit: Literal["bytes", "tokens", "sequences"]
    log: int
    ours: int  # the middle, where ours is a range
    low: int | None = None
    high: int | None = None
    agrees: bool
    sentence: Message

    @property
    def difference(self) -> int:
        return self.log - self.ours

    @property
    def share(self) -> float:
        return self.difference / max(self.ours, 1)


def span(low: int, high: int) -> Message | str:
    """A range of counts in a sentence; one count where both ends are the same."""
    return f"{low:,}" if low == high else Message("{low} to {high}", low=f"{low:,}", high=f"{high:,}")
