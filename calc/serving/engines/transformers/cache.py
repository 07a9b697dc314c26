"""The cache as transformers keeps it (`cache_utils.py`)."""

from collections.abc import Sequence

from calc.formats import CACHE_BITS, CacheFormat, Precision
from calc.model.attention import BlockIndexer
from calc.model.block import Block
from calc.model.mla import LightningIndexer
from calc.serving.engines.cache import Cache
from calc.serving.kv_cache import compressions, growth, state_bytes

Indexer = BlockIndexer | LightningIndexer


class DynamicCache(Cache):
    """A tensor a layer, which grows token by token; layers with a window keep what was passed last whole, until the
    next pass (`DynamicSlidingWindowLayer`)."""

    def __init__(self, stages: Sequence[Sequence[Block]], precision: Precision) -> None:
        self.growth = [unpooled_growth(blocks, precision.kv) for blocks in stages]
        self.compressions = [list(compressions(blocks, precision.kv)) for blocks in stages]
        self.state = [state_bytes(blocks) for blocks in stages]
        self.views = [view_bytes(blocks) for blocks in stages]
        axes = [max((getattr(i, "position_axes", 0) for _, _, i in indexers(blocks)), default=0) for blocks in stages]
        self.axes = [n if n and not any(axes[:stage]) else 0 for stage, n in enumerate(axes)]
        """Positions of each token that are cached with index keys, in the first indexed layer."""

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        """While one more token of each sequence passes."""
        return self.allocated_bytes(stage, batch, length, batch)

    def allocated_bytes(self, stage: int, batch: int, length: int, tokens: int) -> int:
        """While so many tokens pass."""
        bits, passed = 0, max(1, tokens // batch)
        for window, of_a_token in self.growth[stage].items():
            positions = batch * length
            if window is not None:
                positions = min(positions, batch * (window - 1) + tokens)
            bits += positions * of_a_token
        bits += batch * sum(compression.bits(length, passed) for compression in self.compressions[stage])
        nbytes = bits // 8 + batch * self.state[stage]
        if passed == 1:
            nbytes += batch * self.views[stage]
        return nbytes + self.position_bytes(stage, batch, length, passed)

    def position_bytes(self, stage: int, batch: int, length: int, passed: int) -> int:
        """Bytes of the positions of tokens, in int64, that lie with the keys of the first indexed layer: those of the
        first pass once for all axes and sequences, which are alike (`Qwen4ExpTextModel`)."""
        if length == passed:
            return 8 * length if self.axes[stage] else 0
        return 8 * self.axes[stage] * batch * length


def indexers(blocks: Sequence[Block]) -> list[tuple[Block, int | None, Indexer]]:
    mixers = [(block, mixer) for block in blocks for mixer in block.mixers]
    indexed = [(block, mixer.window, getattr(mixer, "indexer", None)) for block, mixer in mixers]
    return [(block, window, indexer) for block, window, indexer in indexed if indexer is not None]


def keeps_every_token(blocks: Sequence[Block]) -> bool:
    """Whether every layer is one of full attention with a cache of its own (`get_layer_types_and_kwargs`)."""
    attentions = [mixer for block in blocks for mixer in block.attentions]
    plain = all(mixer.window is None and mixer.cached_elements() for mixer in attentions)
    return plain and not any(
        [*indexers(blocks), *compressions(blocks, "bf16"), *(mixer for block in blocks for mixer in block.recurrences)]
    )


def unpooled_growth(blocks: Sequence[Block], kv: CacheFormat) -> dict[int | None, int]:
    """Bits cached per token of all layers, by their window, with index keys as they are before tokens share one."""
    bits = growth(blocks, kv)
    for block, window, indexer in indexers(blocks):
        more = indexer.unpooled_elements() - indexer.cached_elements()
        bits[window] += len(block.runs_in) * int(more * CACHE_BITS[kv])
    return bits


def view_bytes(blocks: Sequence[Block]) -> int:
    """Bytes a sequence that convolutions' memories are views on while tokens are generated."""
    mixers = [(len(block.runs_in), mixer) for block in blocks for mixer in block.recurrences]
    return sum(n * mixer.conv_width * mixer.view_elements() for n, mixer in mixers)
