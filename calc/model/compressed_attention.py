from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from calc.errors import Message
from calc.model.attention import OUTPUT, SCORES, Attention, Q, limits
from calc.model.conventions import Kernels
from calc.model.mixer_kind import LayerTensor
from calc.model.tensor import Component, Elements, Shapes, WindowTokens

COMPRESSED = Message(
    "**Compressed attention** has one key that is also the value. It looks at a window of recent tokens, and beyond it "
    "at compressed entries, each of which stands for several tokens (DeepSeek-V4)."
)


class CompressedAttention(Attention):
    """DeepSeek-V4's attention: one key that is also the value, a window of recent tokens, and beyond it one entry for
    each `rate` tokens (transformers `modeling_deepseek_v4.py`)."""

    kind: Literal["compressed"] = "compressed"
    divided: ClassVar[tuple[str, ...]] = ("o_groups",)
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
    def score_heads(self) -> int:
        return self.n_q

    @property
    def value_width(self) -> int:
        return self.d_head

    @property
    def attended_widths(self) -> tuple[int, int]:
        return self.d_head, self.d_head

    @property
    def shared_parts(self) -> tuple[int, ...]:
        return (self.d_head,)

    def cached_vectors(self) -> tuple[int, ...]:
        return (self.d_head,)

    @property
    def picks_tokens(self) -> bool:
        return self.n_index is not None

    @property
    def n_q(self) -> int:
        return self.o_groups * self.group_heads

    def as_grouped(self) -> None:
        """None: its key is the value, and entries stand for several tokens."""
        return None

    def made(self, batch: tuple[str, int], length: tuple[str, int]) -> Iterator[LayerTensor]:
        tokens, heads, d = (batch, length), ("n_q", self.n_q), ("d_head", self.d_head)
        yield LayerTensor(name=Message("Compressed queries"), sides=(*tokens, ("r_q", self.q_rank)))
        yield LayerTensor(name=Q, sides=(batch, heads, length, d))
        yield LayerTensor(
            name=Message("Keys, which are the values too"), sides=(batch, ("1", 1), length, d), cached=True
        )
        seen = length
        if self.rate is not None:
            entries = ("L / m", length[1] // self.rate)
            yield LayerTensor(name=Message("Compressed entries"), sides=(batch, ("1", 1), entries, d), cached=True)
            seen = ("L + L / m", length[1] + entries[1])
        yield LayerTensor(name=SCORES, sides=(batch, heads, length, seen))
        yield LayerTensor(name=OUTPUT, sides=(*tokens, (f"n_q·{d[0]}", self.n_q * d[1])))

    # What it is called

    @classmethod
    def terms(cls) -> tuple[Message, ...]:
        return (COMPRESSED,)

    def title(self) -> Message:
        if self.rate is None:
            return Message("Window of {n:,}", n=self.window)
        return Message("Window of {n:,}, compressed by {rate:,}", n=self.window, rate=self.rate)

    def about(self) -> Iterator[Message]:
        yield COMPRESSED
        yield from limits(self.window, None)

    def readers(self) -> Message:
        return Message(
            "All {n_q:,} query heads read one vector of {width:,} channels, key and value at once.",
            n_q=self.n_q,
            width=self.d_head,
        )

    # What is alive while it is computed

    def module_peaks(
        self, hidden: int, kernels: Kernels, rotated: int, *, eager: bool, cached: bool
    ) -> Iterator[tuple[Message, Elements]]:
        yield Message("compressed attention"), {"queries, rotated, and output": 3 * self.n_q * self.d_head}

    def fused_elements(self, hidden: Any) -> Elements:
        return {"queries and output": 2 * self.n_q * self.d_head}
