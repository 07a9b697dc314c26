"""The tensors that attention makes in one layer of a prefill, with their shapes: what a reader finds in a debugger."""

from collections.abc import Iterable, Iterator

from calc.errors import Frozen, Message
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mixers import Mixer, Recurrent
from calc.model.mla import LatentAttention

Sides = tuple[tuple[str, int], ...]
"""Each side of a tensor: what it counts, as a symbol or a word of the papers, and how many there are."""


class Made(Frozen):
    """A tensor that a layer makes."""

    name: Message
    sides: Sides
    cached: bool = False  # kept for the tokens to come

    @property
    def symbols(self) -> str:
        return f"[{', '.join(symbol for symbol, _ in self.sides)}]"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.sides)


Q, K, V = Message("Queries Q"), Message("Keys K"), Message("Values V")
SCORES, OUTPUT = Message("Scores QKᵀ"), Message("Output of the heads, joined")


def made(mixer: Mixer, hidden: int, batch: int, length: int) -> tuple[Made, ...]:
    """What one layer makes of `batch` sequences of `length` tokens, from its input to its output."""
    state: Sides = (("B", batch), ("L", length), ("h", hidden))
    return (
        Made(name=Message("Input"), sides=state),
        *_within(mixer, ("B", batch), ("L", length)),
        Made(name=Message("Output of the layer's mixer"), sides=state),
    )


def _within(mixer: Mixer, batch: tuple[str, int], length: tuple[str, int]) -> Iterator[Made]:
    tokens = (batch, length)
    if isinstance(mixer, Recurrent):
        yield Made(name=Message("State, of any length"), sides=(batch, ("state", mixer.state_elements())), cached=True)
        return
    heads = ("n_q", mixer.n_q)
    if isinstance(mixer, GQA):
        d, kv = ("d_head", mixer.d_head), ("n_kv", mixer.n_kv)
        d_v = d if mixer.d_v is None else ("d_v", mixer.d_v)
        yield Made(name=Q, sides=(batch, heads, length, d))
        if not mixer.cross:
            yield Made(name=K, sides=(batch, kv, length, d), cached=mixer.own_keys)
            yield Made(name=V, sides=(batch, kv, length, d_v), cached=mixer.own_keys)
            yield Made(name=SCORES, sides=(batch, heads, length, length))
    elif isinstance(mixer, LatentAttention):
        d_v, d = ("d_v", mixer.d_v), ("d_nope + d_rope", mixer.d_nope + mixer.d_rope)
        if mixer.q_rank is not None:
            yield Made(name=Message("Compressed queries"), sides=(*tokens, ("r_q", mixer.q_rank)))
        yield Made(name=Q, sides=(batch, heads, length, d))
        latent: Sides = (*tokens, ("r_kv", mixer.kv_rank))
        yield Made(name=Message("Latent of keys and values"), sides=latent, cached=mixer.own_latent)
        if mixer.d_rope:
            rotary: Sides = (batch, ("1", 1), length, ("d_rope", mixer.d_rope))
            yield Made(name=Message("Rotary key, of all heads"), sides=rotary, cached=mixer.own_latent)
        yield Made(name=K, sides=(batch, heads, length, d))
        yield Made(name=V, sides=(batch, heads, length, d_v))
        yield Made(name=SCORES, sides=(batch, heads, length, length))
    else:
        d_v = d = ("d_head", mixer.d_head)
        yield Made(name=Message("Compressed queries"), sides=(*tokens, ("r_q", mixer.q_rank)))
        yield Made(name=Q, sides=(batch, heads, length, d))
        yield Made(name=Message("Keys, which are the values too"), sides=(batch, ("1", 1), length, d), cached=True)
        seen = length
        if mixer.rate is not None:
            entries = ("L / m", length[1] // mixer.rate)
            yield Made(name=Message("Compressed entries"), sides=(batch, ("1", 1), entries, d), cached=True)
            seen = ("L + L / m", length[1] + entries[1])
        yield Made(name=SCORES, sides=(batch, heads, length, seen))
    yield Made(name=OUTPUT, sides=(*tokens, (f"n_q·{d_v[0]}", mixer.n_q * d_v[1])))


def group(mixer: GQA, query_head: int) -> int:
    """The KV head that a query head reads: neighbours share one (`repeat_kv` in transformers)."""
    return query_head // (mixer.n_q // mixer.n_kv)


def kinds(blocks: Iterable[Block]) -> dict[Mixer, tuple[int, ...]]:
    """Mixers that differ, each with the layers that run it."""
    layers: dict[Mixer, tuple[int, ...]] = {}
    for block in blocks:
        for mixer in block.mixers:
            layers[mixer] = tuple(sorted({*layers.get(mixer, ()), *block.runs_in}))
    return layers
