"""DeepSeek-V4's cache: pages of several sizes side by side in one block (`models/deepseek_v4/`)."""

from collections.abc import Sequence

from calc.model.compressed_attention import CompressedAttention
from calc.serving.engines.vllm.blocks import Spec, Specs
from calc.serving.engines.vllm.layers import with_scales
from calc.serving.engines.vllm.pool import AlikeLayers, Group, uniform_type

BLOCK = 256
WINDOW_BLOCK = 64
STATE_BLOCKS = {4: 4, 128: 8}
"""Tokens of a block of a compressor's raw states, by its rate: its page is then about as large as the others."""
PAGE = 576
"""Bytes of which a page is a multiple."""
ROTARY, GROUP = 64, 64
"""Of each vector, elements that stay in 16 bits; of the others, how many share a scale of one byte."""


def packed_specs(mixer: CompressedAttention, places: Sequence[int]) -> Specs:
    """A window of vectors; beyond it one for each `rate` tokens, with an index key where entries are picked; and the
    raw keys and gates, in fp32, of the entries that are not whole yet."""
    vector = packed_vector(mixer.d_head)
    by_spec: Specs = {spec("window", WINDOW_BLOCK, vector, mixer.window): list(places)}
    if mixer.rate is None:
        return by_spec
    reach, tokens = mixer.overlap * mixer.rate, STATE_BLOCKS[mixer.rate]
    if mixer.d_index is not None:
        by_spec[spec("mla", BLOCK, with_scales(mixer.d_index), rate=mixer.rate)] = list(places)
        by_spec[spec("window", tokens, raw(mixer.overlap, mixer.d_index), reach)] = list(places)
    by_spec[spec("mla", BLOCK, vector, rate=mixer.rate)] = list(places)
    by_spec[spec("window", tokens, raw(mixer.overlap, mixer.d_head), reach)] = list(places)
    return by_spec


def packed_vector(width: int) -> int:
    """Bytes of a vector: the rotary part in 16 bits, the rest in fp8, a scale of one byte for each 64 and one to
    spare."""
    plain = width - ROTARY
    return plain + 2 * ROTARY + plain // GROUP + 1


def raw(overlap: int, width: int) -> int:
    """Bytes of a token's keys and gates, in fp32."""
    return 4 * 2 * overlap * width


def spec(kind: str, block: int, nbytes: int, reach: int = 0, rate: int = 1) -> Spec:
    page = -(-(block // rate * nbytes) // PAGE) * PAGE
    return Spec("window" if kind == "window" else "mla", block, page, reach, shape=(nbytes, rate))


def packed_groups(specs: Specs) -> tuple[Group, ...]:
    """Layers that take as many blocks a request are a group. Those in which each size of page occurs as often repeat a
    pattern, and are split into groups of so many repeats that the least is padded."""
    buckets: dict[tuple[object, ...], list[AlikeLayers]] = {}
    for layer_spec, layers in specs.items():
        buckets.setdefault(uniform_type(layer_spec), []).append(AlikeLayers(layer_spec, tuple(layers)))
    balanced = [parts for parts in buckets.values() if len({len(part.layers) for part in parts}) == 1]
    least = max((len(parts[0].layers) for parts in balanced if len(parts) > 1), default=0)
    repeats = least_padding([len(parts[0].layers) for parts in balanced], least) if least else 0
    grouped = []
    for parts in buckets.values():
        n = -(-len(parts[0].layers) // repeats) if repeats and parts in balanced else 1
        grouped += [Group(tuple(AlikeLayers(part.spec, part.layers[i::n]) for part in parts)) for i in range(n)]
    return tuple(grouped)


def least_padding(counts: Sequence[int], least: int) -> int:
    """The size, of at least so many, whose multiples pad these counts least; the largest of several."""
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))
