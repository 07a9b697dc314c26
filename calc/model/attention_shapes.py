"""The tensors that attention makes in one layer of a prefill, with their shapes: what a reader finds in a debugger."""

from collections.abc import Iterable

from calc.errors import Message
from calc.model.block import Block
from calc.model.mixer_kind import LayerTensor
from calc.model.mixers import Mixer
from calc.model.tensor import Sides


def made(mixer: Mixer, hidden: int, batch: int, length: int) -> tuple[LayerTensor, ...]:
    """Tensors of one layer on `batch` sequences of `length` tokens, from its input to its output."""
    state: Sides = (("B", batch), ("L", length), ("h", hidden))
    return (
        LayerTensor(name=Message("Input"), sides=state),
        *mixer.made(("B", batch), ("L", length)),
        LayerTensor(name=Message("Output of the layer's mixer"), sides=state),
    )


def group(mixer: Mixer, query_head: int) -> int:
    """The KV head that a query head reads: neighbours share one (`repeat_kv` in transformers)."""
    return query_head // (mixer.score_heads // mixer.cached_heads)


def kinds(blocks: Iterable[Block]) -> dict[Mixer, tuple[int, ...]]:
    """Mixers that differ, each with the layers that run it."""
    layers: dict[Mixer, tuple[int, ...]] = {}
    for block in blocks:
        for mixer in block.mixers:
            layers[mixer] = tuple(sorted({*layers.get(mixer, ()), *block.runs_in}))
    return layers
