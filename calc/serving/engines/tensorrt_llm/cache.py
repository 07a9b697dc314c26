"""TensorRT-LLM's cache: blocks of tokens in layers that keep all, in layers with a window, and recurrent states.

Read in TensorRT-LLM 1.3: `_torch/pyexecutor/resource_manager.py` (`get_cache_size_per_token`),
`_torch/pyexecutor/_util.py` (`_derive_layer_type_attention_windows`) and
`_torch/pyexecutor/kv_cache/mamba_cache_manager` (`_max_resident_sequences`, `_minimum_live_gpu_quota`: a state for
every sequence that may run, of the layers of each stage).
"""

from collections.abc import Sequence
from math import ceil, inf

from calc.serving.engines.cache import Pool
from calc.serving.engines.sglang.cache import bits_with_index, slot_bytes
from calc.serving.engines.sizes import LaidOut, Limits
from calc.serving.kv_cache import growth

WINDOWED = frozenset("deepseek_v4 gemma3_text gemma4_text gemma4_unified_text gpt_oss inkling_text".split())
"""Model types that are cached by its second manager (`get_preferred_kv_cache_manager_version`) and have windows, which
get blocks of their own there; all others keep the whole context unless `max_attention_window` says otherwise."""


class BlockPool(Pool):
    """Blocks of one budget. A block is one of the layers that keep the whole context; one of layers with a window
    counts as the part of it that their bytes are, for both kinds are divided as sequences of one length need them."""

    def __init__(self, laid_out: LaidOut, limits: Limits, tokens_per_block: int) -> None:
        self.page = tokens_per_block
        windowed, kv = laid_out.whole.model_type in WINDOWED, laid_out.precision.kv
        stages = laid_out.of_each_stage(lambda stage: growth(laid_out.stages[stage].blocks, kv, bits_with_index))
        windows = {window for bits in stages for window in bits if window is not None and bits[window] and windowed}
        passing = [sum(bits.get(window, 0) for window in windows) // 8 for bits in stages]
        whole = [sum(bits.values()) // 8 - seen for bits, seen in zip(stages, passing, strict=True)]
        self.only_windows = not any(whole)
        self.window = max(windows, default=0)
        self.ratio = 0.0 if self.only_windows else sum(passing) / sum(whole)
        """Bytes of a token in layers with a window, per byte in those that keep the whole context."""
        each = zip(whole, passing, strict=True)
        tokens = [
            seen if self.only_windows else max(capacity, ceil(seen / (self.ratio or 1))) for capacity, seen in each
        ]
        self.block_bytes = tuple(self.page * nbytes for nbytes in tokens) if any(tokens) else (1,) * len(tokens)
        self.states = laid_out.of_each_stage(lambda stage: slot_bytes(laid_out.stages[stage].blocks))
        """Bytes of the recurrent states of a sequence on each stage."""
        self.sequences = limits.sequences
        self.slots = limits.sequences * len(stages) + 1 + (laid_out.layout.dp > 1)
        """States on each stage: one pads CUDA graphs, and one a rank that has no request while others do."""

    def block_size(self, length: int) -> int:
        return self.page

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.page)

    def fixed_bytes(self, stage: int) -> int:
        return self.slots * self.states[stage]

    def on_each_stage(self) -> int:
        return self.sequences * sum(self.states)

    def request_blocks(self, length: int) -> int:
        """A window that does not begin with a block reaches into one more."""
        passing = min(self.blocks_of(length), self.blocks_of(self.window) + 1)
        return max(1, passing) if self.only_windows else self.blocks_of(length) + ceil(self.ratio * passing)

    def most_requests(self, budgets: Sequence[int]) -> float:
        return self.sequences if any(self.states) else inf

    def tokens(self, blocks: int, length: int) -> int:
        """Tokens of sequences of that length, where some layers have a window."""
        return int(self.concurrency(blocks, length) * length) if self.window else blocks * self.page
