"""SGLang's pools of DeepSeek-V4's attention: of tokens in the window, of compressed entries, and of tokens that wait.

Read in SGLang 0.5.23: `model_executor/pool_configurator.py` (`DSV4PoolConfigurator`: `_get_bytes_per_swa_token`,
`_compressed_bytes_per_full_token`, `_get_c128_state_fixed_bytes`), `mem_cache/deepseek_v4_memory_pool.py`
(`get_compress_state_ring_size`) and `arg_groups/deepseek_v4_hook.py`. `--kv-cache-dtype` changes none of it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from calc.model.block import Block
from calc.model.mixers import CompressedAttention

COMPRESSED_REQUESTS = 256
"""Requests at once where no flag says how many."""
ROTARY, SCALES, ALIGNED = 64, 8, 576
"""Elements of a key that stay in 16 bits, bytes of its scales, and a page's bytes are a multiple of this (FlashMLA)."""
RING, LONG_RING = 8, 128
"""Tokens that wait: of a page of the window where entries overlap, of a request where they do not."""
FP32 = 4


class Compressed(NamedTuple):
    """Bytes of the layers of a stage that compress tokens."""

    entries: float  # a token of the context, by its share of entries and their index keys
    window: float  # a token of the window pool, with its share of those that wait there
    waiting: int  # a request's tokens that wait elsewhere, for each row of their ring


def compressing(blocks: Iterable[Block]) -> Iterator[tuple[int, CompressedAttention]]:
    """Each such attention, with the number of layers that have it."""
    for block in blocks:
        for mixer in block.mixers:
            if isinstance(mixer, CompressedAttention):
                yield len(block.runs_in), mixer


def key_bytes(mixer: CompressedAttention, tokens: int) -> float:
    """Bytes of a key in a page of so many: in fp8 but for its rotary elements."""
    page = tokens * (mixer.d_head + ROTARY + SCALES)
    return -(-page // ALIGNED) * ALIGNED / tokens


def compressed(blocks: Iterable[Block], page: int) -> Compressed:
    """What a stage keeps with pages of so many tokens."""
    entries, window, waiting = 0.0, 0.0, 0
    for layers, mixer in compressing(blocks):
        window += layers * key_bytes(mixer, page)
        if mixer.rate is None:
            continue
        index = 0 if mixer.d_index is None else mixer.d_index + FP32 * (mixer.d_index // 128)
        entries += layers * (key_bytes(mixer, page // mixer.rate) + index) / mixer.rate
        of_token = FP32 * mixer.waiting_elements()  # with its gate, for one entry or two
        if mixer.overlap > 1:
            window += layers * RING / page * of_token
        else:
            waiting += layers * of_token
    return Compressed(entries, window, waiting)


def ring_rows(requests: int) -> int:
    """Rows of the tokens that wait elsewhere, of so many requests and one for padding, and of one ring more."""
    rows = (requests + 2) * LONG_RING + 1
    return -(-rows // LONG_RING) * LONG_RING
