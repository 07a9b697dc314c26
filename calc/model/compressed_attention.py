from typing import Any, Literal, Self

from calc.model.attention import Attention
from calc.model.tensor import Component, Shapes, WindowTokens


class CompressedAttention(Attention):
    """DeepSeek-V4's attention: one key that is also the value, a window of recent tokens, and beyond it one entry for
    each `rate` tokens (transformers `modeling_deepseek_v4.py`)."""

    kind: Literal["compressed"] = "compressed"
    component: Component = "attention"
    o_groups: int
    group_heads: int  # query heads of one output group
    d_head: int
    q_rank: int
    o_rank: int
    window: int
    rate: int | None = None  # tokens that one compressed entry stands for; None: the window only
    overlap: int = 1  # 2 where neighbouring entries overlap (compressed sparse attention)
    n_index: int | None = None  # heads of the indexer that picks entries; None: all are read
    d_index: int | None = None
    top_entries: int = 512  # how many of them it picks

    def shapes(self, hidden: int) -> Shapes:
        """Weights by local checkpoint name, matrices as [out, in]."""
        weights: Shapes = {
            "attn_sink": (self.o_groups * self.group_heads,),
            "wq_a.weight": (self.q_rank, hidden),
            "q_norm.weight": (self.q_rank,),
            "wq_b.weight": (self.o_groups * self.group_heads * self.d_head, self.q_rank),
            "wkv.weight": (self.d_head, hidden),
            "kv_norm.weight": (self.d_head,),
            "wo_a.weight": (self.o_groups * self.o_rank, self.group_heads * self.d_head),
            "wo_b.weight": (hidden, self.o_groups * self.o_rank),
        }
        if self.rate is not None:
            weights |= self._compressor("compressor", self.rate, self.d_head, hidden)
            if self.n_index is not None and self.d_index is not None:
                weights |= self._compressor("indexer.compressor", self.rate, self.d_index, hidden)
                weights |= {
                    "indexer.wq_b.weight": (self.n_index * self.d_index, self.q_rank),
                    "indexer.weights_proj.weight": (self.n_index, hidden),
                }
        return weights

    def _compressor(self, path: str, rate: int, width: int, hidden: int) -> Shapes:
        wide = self.overlap * width
        return {
            f"{path}.ape": (rate, wide),
            f"{path}.wkv.weight": (wide, hidden),
            f"{path}.wgate.weight": (wide, hidden),
            f"{path}.norm.weight": (width,),
        }

    def cached_elements(self) -> int:
        """Elements cached per token and layer within the window: one vector, key and value at once."""
        return self.d_head

    def compressed_elements(self) -> int:
        """Elements that each token adds beyond the window, on average: its share of one entry and of its index key."""
        return 0 if self.rate is None else self.entry_elements() // self.rate

    def entry_elements(self) -> int:
        """Elements of a compressed entry and of its index key."""
        return self.d_head + (self.d_index or 0)

    def waiting_elements(self) -> int:
        """Elements of a token until its entry is made: what goes into one or two overlapping entries, and its gate, as
        wide."""
        return 2 * self.overlap * self.entry_elements()

    def read_elements(self) -> dict[WindowTokens, Any]:
        """Elements that attention reads of each cached token, by how far back: the window's; of entries a token's
        share, of all or of those that the indexer picks, and of all index keys."""
        if self.rate is None:
            return {self.window: self.cached_elements()}
        entry, key = self.d_head / self.rate, (self.d_index or 0) / self.rate
        if self.n_index is None:
            return {self.window: self.cached_elements(), None: entry}
        return {self.window: self.cached_elements(), self.top_entries * self.rate: entry, None: key}

    def pair_flops(self, *, absorbed: bool = False) -> dict[WindowTokens, Any]:
        """FLOPs of one query-key pair over all heads, by how far back the pairs go: its score, and its value's share of
        the output; of an entry each of its tokens has a share."""
        pair = 4 * self.n_q * self.d_head
        if self.rate is None:
            return {self.window: pair}
        if self.n_index is None or self.d_index is None:
            return {self.window: pair, None: pair / self.rate}
        index = 2 * self.n_index * self.d_index / self.rate
        return {self.window: pair, self.top_entries * self.rate: pair / self.rate, None: index}

    @property
    def value_width(self) -> int:
        """Elements of one head's output."""
        return self.d_head

    @property
    def exchanged_width(self) -> int:
        """Elements of one head's query and output in decode."""
        return 2 * self.d_head

    @property
    def picks_tokens(self) -> bool:
        """Whether it chooses the tokens that it attends to."""
        return self.n_index is not None

    @property
    def n_q(self) -> int:
        return self.o_groups * self.group_heads

    def rank(self, tp: int) -> Self:
        """The part that one of tp ranks holds: output groups with their heads are divided, the cache is not."""
        return self.model_copy(update={"o_groups": self.o_groups // tp})

    def divides(self, tp: int) -> bool:
        """Whether tp ranks can share it evenly."""
        return self.o_groups % tp == 0
