"""Figures of a start-up log, and what each is compared with."""

from typing import Any, Literal

from calc.errors import Frozen, Message
from calc.serving.engines.startup_log import LogSettings, RefusalKind
from calc.units import GIB
from calc.verify.logs.out_of_memory import OutOfMemory, TrainingFailure


class Log(Frozen):
    """Figures of a start-up log; None: not stated.

    Sizes are bytes on one rank: of several ranks the largest of each size, and the least cache and free memory, which
    is what the most loaded one has; `notes` say so. Most figures have two decimals, hence `ROUNDING`.
    """

    engine: str  # whose log it is; torch: a message of PyTorch alone
    version: str | None = None
    settings: LogSettings = LogSettings()
    weights: int | None = None
    kv_bytes: int | None = None
    kv_tokens: int | None = None
    concurrency: float | None = None  # requests of `concurrency_length` tokens that the cache holds
    concurrency_length: int | None = None
    kv_needed: int | None = None  # for one request of max_model_len tokens, when the engine refused to start
    estimated_max_model_len: int | None = None
    activations: int | None = None
    non_torch: int | None = None
    cuda_graphs: int | None = None
    total: int | None = None
    free: int | None = None
    states: int | None = None  # recurrent states, without one for padding
    state_bytes: int | None = None
    left: int | None = None  # free once the cache is there
    graph_batch: int | None = None  # sequences of the largest CUDA graph
    checkpoint: int | None = None  # the files of the weights
    consumed: int | None = None  # weights and non-torch memory together
    graphs_estimated: int | None = None  # CUDA graphs, before they are captured
    encoder_tokens: int | None = None  # that the vision encoder's cache is profiled with
    attention_block: int | None = None  # tokens of a block of attention, where recurrent states set it
    state_blocks: int | None = None  # that are left for recurrent states, when the engine refused to start
    refusal: RefusalKind | None = None  # why the engine did not start; None: it did, or the log ends before
    ranks: int = 1
    starts: int = 1
    out_of_memory: OutOfMemory | None = None
    training: TrainingFailure | None = None  # where a trainer ran out of memory; None: it is no trainer's text
    notes: tuple[Message, ...] = ()


ROUNDING = GIB // 200
"""Half of the last digit of a size with two decimals, 0.005 GiB."""
CLOSE = 0.003
"""Share of the weights by which ours miss what vLLM logs: of 34 public records, 31 are closer. The others are an NVFP4
checkpoint that leaves more in 16 bits, a model tuned for another length, and a draft model."""


Unit = Literal["bytes", "tokens", "sequences"]
UNITS: dict[str, Unit] = {
    "tokens": "tokens",
    "max length": "tokens",
    "attention block": "tokens",
    "concurrency": "tokens",
    "state blocks": "sequences",
    "graph batch": "sequences",
}
"""Units of terms that are no bytes."""


class Difference(Frozen):
    """A term in the log and ours; the sentence says whether they agree, and if not, why that is so."""

    term: str
    unit: Unit
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


def compared(
    term: str, log: int, ours: int, agree: str, differ: str, values: dict[str, Any], *, agrees: bool
) -> Difference:
    """A term with the sentence that holds of it, the one where both agree or the one where they differ."""
    sentence, unit = Message(agree if agrees else differ, **{"stated": log} | values), UNITS.get(term, "bytes")
    return Difference(term=term, unit=unit, log=log, ours=ours, agrees=agrees, sentence=sentence)


def in_range(
    term: str, log: int, ours: tuple[int, int, int], agree: str, differ: str, values: dict[str, Any], rounding: int = 0
) -> Difference:
    """A term of which ours is a range: low, middle and high. Its sentence may say the ends, and the log's size, in
    GiB."""
    low, middle, high = ours
    agrees = low - rounding <= log <= high + rounding
    known = {"low": low / GIB, "high": high / GIB, "size": log / GIB} | values
    row = compared(term, log, middle, agree, differ, known, agrees=agrees)
    return row.model_copy(update={"low": low, "high": high})


def span(low: int, high: int) -> Message | str:
    """A range of counts in a sentence; one count where both ends are the same."""
    return f"{low:,}" if low == high else Message("{low} to {high}", low=f"{low:,}", high=f"{high:,}")
