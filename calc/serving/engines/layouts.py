"""Pipeline stages, and rules by which engines refuse to share layers over ranks: what vLLM 0.33 and SGLang 0.5.23 check
at start."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import Precision
from calc.hardware.division import widths
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture

TILE = 128
"""Columns that one scale of block fp8 stands for; a rank's share of a feed-forward must be whole tiles."""
VOCABULARY = 64
"""Rows that vLLM pads the vocabulary to (`vocab_parallel_embedding.py`)."""


def even_stages(layers: int, pp: int, first: int) -> Iterator[range]:
    """The layers of each of pp pipeline stages. What does not divide goes one each to the stages from `first` on."""
    each, more = divmod(layers, pp)
    start = 0
    for stage in range(pp):
        stop = start + each + (first <= stage < first + more)
        yield range(start, stop)
        start = stop


def broken_tiles(architecture: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
    """With block fp8 each rank holds whole tiles (vLLM `fp8.py`, `create_weights`; SGLang has the same): Qwen3-235B's
    experts of 1,536 columns fail at tp 8."""
    if precision.weights != "fp8":
        return
    for wide, ranks in widths(architecture, layout.tp, layout.slices):
        if ranks > 1 and wide % (ranks * TILE):
            sentence = Message(
                "{n:,} columns over {ranks:,} GPUs are {each:g} each, not whole fp8 tiles of {tile:,}: "
                "spread experts (ep) or use pipeline stages.",
                n=wide,
                ranks=ranks,
                each=wide / ranks,
                tile=TILE,
            )
            yield Refusal(sentence, "tp")


def odd_vocabulary(architecture: Architecture, layout: Layout) -> Iterator[Refusal]:
    """vLLM pads the vocabulary to 64 rows, which are then divided; SGLang pads it for each rank."""
    padded = -(-architecture.vocab // VOCABULARY) * VOCABULARY
    if padded % layout.tp:
        sentence = "The vocabulary, padded to {n:,} rows, does not divide by tp {tp:,}."
        yield Refusal(Message(sentence, n=padded, tp=layout.tp), "tp")
