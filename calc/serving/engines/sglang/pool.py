"""SGLang's cache: a pool of tokens, one of tokens in layers with a window, and one of recurrent states.

Read in SGLang 0.5.23: `model_executor/pool_configurator.py` (`HybridSWAPoolConfigurator`: the window pool has its share
of the tokens) and `mem_cache/kv_cache_configurator.py` (`_handle_max_mamba_cache`: states get a share of the memory;
`_calculate_mamba_ratio`: states of a request).
"""

from collections.abc import Sequence

from calc.formats import CacheFormat
from calc.hardware.solver import largest
from calc.model.block import Block
from calc.serving.engines.engine import Pool
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.kv_cache import growth, state_bytes

WINDOWED = frozenset(
    "deepseek_v4 gemma4_text gemma4_unified_text gpt_oss granitemoe_swa granite_swa inkling_text laguna llama4_text "
    "mellum mimo_v2_flash muse_glimmer_text step3p5".split()
)
"""Model types whose windows get a pool of their own (`is_hybrid_swa_model`); all others keep the whole context."""
FEW = frozenset({"deepseek_v4", "inkling_text"})
"""Those whose window pool has a tenth of the tokens (`arg_groups/model_overrides`)."""
STATES = 5
"""States of a request: three, and two that follow it for the prefix cache (`extra_buffer`)."""


class TokenPool(Pool):
    """All pools grow together: a block is a page of tokens with its shares of the window pool and of the states.
    `budgets` are the bytes of all of them on each stage."""

    def __init__(
        self, model_type: str, stages: Sequence[Sequence[Block]], kv: CacheFormat, options: SGLangOptions
    ) -> None:
        self.page = options.page_size
        self.window_share = options.swa_full_tokens_ratio or (0.1 if model_type in FEW else 0.8)
        bits = [growth(blocks, kv) for blocks in stages]
        windows = {window for stage in bits for window in stage if window is not None and stage[window]}
        self.window = max(windows, default=None) if model_type in WINDOWED else None
        whole = [stage.get(None, 0) / 8 for stage in bits]
        windowed = [sum(stage.values()) / 8 - kept for stage, kept in zip(bits, whole, strict=True)]
        self.only_windows = not any(whole)
        share = 1.0 if self.window is None or self.only_windows else self.window_share
        self.cells = [kept + share * passing for kept, passing in zip(whole, windowed, strict=True)]
        self.states = [state_bytes(blocks) for blocks in stages]
        self.state_share = options.mamba_full_memory_ratio
        self.states_per_token = self.state_share * max(self.cells) / max(self.states) if any(self.states) else 0.0
        self.block_bytes = tuple(map(self.page_bytes, self.cells, self.states))

    def block_size(self, length: int) -> int:
        return self.page

    def page_bytes(self, cell: float, state: int) -> int:
        """Bytes of a block on a stage, by those of a token and of a state."""
        if not any(self.cells):  # states alone; the share of the tokens stays empty
            return round(STATES * state * (1 + self.state_share) / self.state_share)
        return round(self.page * (cell + self.states_per_token * state))

    def request_blocks(self, length: int) -> int:
        """As many as every pool needs. The window pool keeps a page beside the window of each request."""
        if not any(self.cells):
            return 1
        tokens: float = length
        if self.window is not None:
            passing = min(length, self.window) + self.page
            tokens = passing if self.only_windows else max(length, passing / self.window_share)
        if self.states_per_token:
            tokens = max(tokens, STATES / self.states_per_token)
        return -int(-tokens // self.page)

    def tokens(self, blocks: int, length: int) -> int:
        return blocks * (self.page if any(self.cells) else length)

    def starts(self, budgets: Sequence[int], length: int) -> bool:
        return self.blocks(budgets) >= self.request_blocks(length)

    def max_length(self, budgets: Sequence[int], most: int) -> int:
        return largest(lambda length: self.starts(budgets, length), most)
