from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from calc.errors import Frozen, Message
from calc.model.conventions import Kernels, Names
from calc.model.mixer_kind import LayerTensor, MixerKind
from calc.model.tensor import Component, Elements, Shapes, WindowTokens, weights

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "g_proj"]


Q, K, V = Message("Queries Q"), Message("Keys K"), Message("Values V")
SCORES, OUTPUT = Message("Scores QKᵀ"), Message("Output of the heads, joined")
MHA = Message(
    "**Multi-head attention (MHA)** gives every query head keys and values of its own "
    "([arXiv:1706.03762](https://arxiv.org/abs/1706.03762)). It caches the most."
)
MQA = Message(
    "**Multi-query attention (MQA)** has one KV head, which all query heads read "
    "([arXiv:1911.02150](https://arxiv.org/abs/1911.02150)). It caches the least of the kinds with plain keys and "
    "values, at some cost in quality."
)
SINKS = Message(
    "**Attention sinks**: a learned number for each query head joins the softmax, so that a head may look at nothing "
    "(as in [arXiv:2309.17453](https://arxiv.org/abs/2309.17453))."
)
CROSS = Message("**Cross attention**: keys and values are those of the image, computed once and not of the text.")
BOTH_WAYS = Message(
    "**Attention both ways**: each token sees the whole text, those behind it too, so that a text passes at once and "
    "leaves no cache ([arXiv:1810.04805](https://arxiv.org/abs/1810.04805))."
)
SHARED = Message(
    "**Shared cache**: this layer has no keys and values of its own and reads those of an earlier layer "
    "([arXiv:2405.12981](https://arxiv.org/abs/2405.12981))."
)


class Attention(MixerKind):
    """Base of mixers that cache something for each token."""

    def read_elements(self) -> dict[WindowTokens, Any]:
        """Elements that attention reads of each cached token, by how far back."""
        raise NotImplementedError

    def pair_flops(self, *, absorbed: bool = False) -> dict[WindowTokens, Any]:
        """FLOPs of one query-key pair over all heads, by how far back the pairs go; absorbed: on latents."""
        raise NotImplementedError

    @property
    def value_width(self) -> int:
        """Elements of one head's output."""
        raise NotImplementedError

    @property
    def picks_tokens(self) -> bool:
        """Whether it chooses the tokens that it attends to."""
        return False

    @property
    def attended_widths(self) -> tuple[int, int]:
        """Elements of a key and of a value of one head as decode attends to them."""
        raise NotImplementedError

    @property
    def exchanged_width(self) -> int:
        """Elements of one head's query and output in decode."""
        return sum(self.attended_widths)

    def rule_heads(self) -> tuple[int, int]:
        """KV heads and their width as the rule of thumb of articles takes them."""
        return 1, self.cached_elements() // 2

    def written_elements(self) -> Any:
        """Elements that a token adds to the cache, on average."""
        return self.cached_elements() + self.compressed_elements()


class GQA(Attention):
    """Grouped-query attention, arXiv:2305.13245; multi-head when n_kv == n_q, multi-query when n_kv == 1."""

    kind: Literal["gqa"] = "gqa"
    divided: ClassVar[tuple[str, ...]] = ("n_q",)
    replicated: ClassVar[tuple[str, ...]] = ("n_kv",)
    component: Component = "attention"
    n_q: int
    n_kv: int
    d_head: int
    d_v: int | None = None  # width of a value head where it differs: MiMo-V2
    bias: frozenset[Projection] = frozenset()
    qk_norm: Literal["none", "head", "full", "heads"] = "none"
    """One norm of d_head for all heads (Qwen3), of the full width (OLMo 2), or of its own for each head (Cohere)."""
    qk_norm_bias: bool = False  # LayerNorm instead of RMSNorm
    gated: bool = False  # the query projection also yields a gate for each output, Qwen3-Next
    gate: Literal["none", "heads", "channels"] = "none"  # a projection of its own that gates the output
    own_keys: bool = True  # False: reads the cache of an earlier layer, Gemma 3n
    cross: bool = False  # keys and values are those of an image, not of the text: Llama 3.2 Vision
    bidirectional: bool = False  # a token sees later ones too; a text passes at once and leaves no cache: BERT
    keys_are_values: bool = False  # one projection for both, Gemma 4
    sinks: bool = False  # one learned logit a query head, gpt-oss
    delayed: bool = False  # half of each value is made from the token before: ZAYA
    routed: bool = False  # queries and outputs are projected by experts, stored apart: JetMoE
    window: int | None = None  # tokens a sliding-window layer looks back on; None: all
    d_in: int | None = None  # width of the input where it is not hidden_size: Zamba
    indexer: "BlockIndexer | None" = None

    def shapes(self, hidden: int) -> Shapes:
        width = self.d_in or hidden
        q, k = self.n_q * self.d_head, self.n_kv * self.d_head
        v, out = self.n_kv * self.value_width, self.n_q * self.value_width
        rows: Shapes = {"q_proj": (2 * q if self.gated else q, width)}
        halves = ("v_proj_current", "v_proj_delayed") if self.delayed else ("v_proj",)
        if self.own_keys:
            rows |= {"k_proj": (k, width)}
            if not self.keys_are_values:
                rows |= {name: (v // len(halves), width) for name in halves}
        rows |= {"o_proj": (hidden, out)}
        if self.gate != "none":
            rows |= {"g_proj": (self.n_q if self.gate == "heads" else out, width)}
        elsewhere = ("q_proj", "o_proj") if self.routed else ()
        with_bias = self.bias | (set(halves) if "v_proj" in self.bias else set())
        shapes = weights({name: shape for name, shape in rows.items() if name not in elsewhere})
        shapes |= {f"{name}.bias": shape[:1] for name, shape in rows.items() if name in with_bias}
        if self.qk_norm != "none":
            kinds: dict[str, Shapes] = {
                "head": {"q_norm": (self.d_head,), "k_norm": (self.d_head,)},
                "full": {"q_norm": (q,), "k_norm": (k,)},
                "heads": {"q_norm": (self.n_q, self.d_head), "k_norm": (self.n_kv, self.d_head)},
            }
            norms = kinds[self.qk_norm]
            if not self.own_keys:
                del norms["k_norm"]
            leaves = ("weight", "bias") if self.qk_norm_bias else ("weight",)
            shapes |= {f"{name}.{leaf}": shape for leaf in leaves for name, shape in norms.items()}
        if self.sinks:
            shapes |= {"sinks": (self.n_q,)}
        return shapes if self.indexer is None else shapes | self.indexer.shapes(hidden)

    def cached_elements(self) -> int:
        """Elements cached per token and layer: a key and a value for each KV head."""
        if not self.caches:
            return 0
        index_keys = 0 if self.indexer is None else self.indexer.cached_elements()
        return self.n_kv * (self.d_head + self.value_width) + index_keys

    def read_elements(self) -> dict[WindowTokens, Any]:
        """Elements that attention reads of each cached token, by how far back: those of the window; or all index keys,
        and the rest of what the indexer picks."""
        index = 0 if self.indexer is None else self.indexer.cached_elements()
        return by_window(self.window, self.indexer, self.cached_elements() - index, index)

    def pair_flops(self, *, absorbed: bool = False) -> dict[WindowTokens, Any]:
        """FLOPs of one query-key pair over all heads, by how far back the pairs go: its score, and its value's share of
        the output. An image's keys and values are not counted."""
        if self.cross:
            return {}
        pair = 2 * self.n_q * (self.d_head + self.value_width)
        return by_window(self.window, self.indexer, pair, 0 if self.indexer is None else self.indexer.pair_flops())

    @property
    def caches(self) -> bool:
        """Whether it keeps keys and values of the text for the tokens to come."""
        return self.own_keys and not self.cross and not self.bidirectional

    def cached_vectors(self) -> tuple[int, ...]:
        if not self.caches:
            return ()
        return self.n_kv * self.d_head, self.n_kv * self.value_width

    @property
    def sees_ahead(self) -> bool:
        return self.bidirectional

    @property
    def score_heads(self) -> int:
        return self.n_q

    @property
    def value_width(self) -> int:
        return self.d_v or self.d_head

    @property
    def attended_widths(self) -> tuple[int, int]:
        return self.d_head, self.value_width

    @property
    def cached_heads(self) -> int:
        return self.n_kv

    @property
    def head_width(self) -> int | None:
        return self.d_head

    def rule_heads(self) -> tuple[int, int]:
        return self.n_kv, self.d_head

    @property
    def picks_tokens(self) -> bool:
        return self.indexer is not None

    def path(self, names: Names, number: int) -> str:
        """Module that the weights lie in: one of its own where keys are those of an image."""
        return names.cross if self.cross else super().path(names, number)

    def as_grouped(self) -> "GQA | None":
        """Itself, unless its keys and values are those of an image."""
        return None if self.cross else self

    def made(self, batch: tuple[str, int], length: tuple[str, int]) -> Iterator[LayerTensor]:
        heads, kv, d = ("n_q", self.n_q), ("n_kv", self.n_kv), ("d_head", self.d_head)
        d_v = d if self.d_v is None else ("d_v", self.d_v)
        yield LayerTensor(name=Q, sides=(batch, heads, length, d))
        if not self.cross:
            yield LayerTensor(name=K, sides=(batch, kv, length, d), cached=self.caches)
            yield LayerTensor(name=V, sides=(batch, kv, length, d_v), cached=self.caches)
            yield LayerTensor(name=SCORES, sides=(batch, heads, length, length))
        yield LayerTensor(name=OUTPUT, sides=(batch, length, (f"n_q·{d_v[0]}", self.n_q * d_v[1])))

    # What it is called

    @classmethod
    def terms(cls) -> tuple[Message, ...]:
        return (MHA, MQA, SINKS, CROSS, BOTH_WAYS, SHARED)

    def title(self) -> Message:
        """Papers' name for so many query and KV heads, and what is special."""
        kind = Message("MQA") if self.n_kv == 1 else Message("GQA-{n}", n=self.n_kv)
        kind = Message("MHA") if self.n_kv == self.n_q else kind
        if self.cross:
            return Message("{kind}, cross attention", kind=kind)
        if not self.own_keys:
            return Message("{kind}, shared cache", kind=kind)
        if self.bidirectional and self.window is None:
            return Message("{kind}, both ways", kind=kind)
        if self.bidirectional:
            return Message("{kind}, both ways, window of {n:,}", kind=kind, n=self.window)
        return kind if self.window is None else Message("{kind}, window of {n:,}", kind=kind, n=self.window)

    def about(self) -> Iterator[Message]:
        """Kind, by how many query heads share a KV head, and what is special."""
        if self.bidirectional:  # the others are sentences about a cache
            yield BOTH_WAYS
            return
        shared = self.n_q // self.n_kv
        if shared == 1:
            yield MHA
        elif self.n_kv == 1:
            yield MQA
        else:
            yield Message(
                "**Grouped-query attention (GQA)** lies between multi-head and multi-query attention: each KV head "
                "serves a group of query heads ([arXiv:2305.13245](https://arxiv.org/abs/2305.13245)). Here {n} query "
                "heads share one, so that the cache is 1/{n} of multi-head attention's: {saved:.4g}% less.",
                n=shared,
                saved=100 - 100 / shared,
            )
        if self.cross:
            yield CROSS
        if not self.own_keys:
            yield SHARED
        if self.sinks:
            yield SINKS
        yield from limits(self.window, self.indexer)

    def readers(self) -> Message:
        shared = self.n_q // self.n_kv
        if self.n_kv == 1:
            return Message("All {n_q:,} query heads read the one KV head.", n_q=self.n_q)
        if shared == 1:
            return Message("Each of the {n_q:,} query heads reads a KV head of its own.", n_q=self.n_q)
        return Message(
            "{n_q:,} query heads read {n_kv:,} KV heads, {shared:,} each: query heads 0 to {last:,} read KV head 0, "
            "and so on.",
            n_q=self.n_q,
            n_kv=self.n_kv,
            shared=shared,
            last=shared - 1,
        )

    def why_not_square(self, hidden: int) -> Message:
        return Message(
            "{n_q} query heads and {n_kv} KV heads of {width} beside a hidden width of {hidden:,}; biases and norms.",
            n_q=self.n_q,
            n_kv=self.n_kv,
            width=self.d_head,
            hidden=hidden,
        )

    # What is alive while it is computed

    def repeated_elements(self) -> Any:
        return 0 if self.n_q == self.n_kv else 2 * self.n_q * self.d_head

    def softmax_bytes(self, width: int, kernels: Kernels) -> int:
        """Bytes of each score: twice in 16 bits, with sinks thrice, where the softmax is not in fp32."""
        if self.sinks or not kernels.fp32_softmax:
            return (2 + self.sinks) * width
        return super().softmax_bytes(width, kernels)

    def module_peaks(
        self, hidden: int, kernels: Kernels, rotated: int, *, eager: bool, cached: bool
    ) -> Iterator[tuple[Message, Elements]]:
        """Peak at the softmax where scores are written out, with keys and values repeated; else where queries and keys
        are rotated."""
        if eager:
            yield Message("the softmax of attention"), self._at_softmax(kernels, rotated, cached=cached)
        else:
            yield from self._at_rotation(kernels, cached=cached)

    def _at_softmax(self, kernels: Kernels, rotated: int, *, cached: bool) -> Elements:
        q, kv = self.n_q * self.d_head, self.n_kv * self.d_head
        elements: Elements = {"queries": q}
        if repeated := self.repeated_elements():
            elements["keys and values, repeated for every query head"] = repeated
        if kernels.joins_rotated:
            elements["queries and keys, joined after rotation"] = q + kv + (self.n_q + self.n_kv) * rotated
        if not cached:
            elements["keys and values"] = 2 * kv
        return elements

    def _at_rotation(self, kernels: Kernels, *, cached: bool) -> Iterator[tuple[Message, Elements]]:
        """Elements in 16 bits, of which one in fp32 counts as two. In fp32 the projections stay next to the two
        products and their sum (or what is turned by 90 degrees) of queries, or next to rotated queries those of keys;
        keys and values are not in the cache yet, which counts them."""
        q, kv = self.n_q * self.d_head, self.n_kv * self.d_head
        if kernels.rotation == "16_bits":
            if self.qk_norm == "none":
                yield Message("the rotation of queries"), {"queries, and rotated": 2 * q, "keys and values": 2 * kv}
            else:
                yield Message("the norm of queries, in fp32"), {"queries, in 16 bits and twice in fp32": 5 * q}
            return
        projected: Elements = {"queries": q} if cached else {"queries": q, "keys and values": 2 * kv}
        if kernels.rotation == "fp32_copies":
            projected["copies in fp32"] = 2 * (q + kv)
        if kernels.rotation == "fp32_spread":
            projected["cosines and sines, spread over pairs"] = 4 * self.d_head
        yield Message("the rotation of queries, in fp32"), projected | {"products of queries and their sum": 6 * q}
        yield (
            Message("the rotation of keys, in fp32"),
            projected | {"rotated queries": 2 * q, "products of keys and their sum": 6 * kv},
        )

    def fused_elements(self, hidden: Any) -> Elements:
        return {"queries and output": 2 * self.n_q * self.d_head, "keys and values": 2 * self.n_kv * self.d_head}


class SparseIndexer(Frozen):
    """Base of what picks the tokens that sparse attention looks at."""

    n_index: int
    d_index: int
    top_tokens: int = 2048  # how many are picked

    def pair_flops(self) -> int:
        """FLOPs of one query-key pair over all its heads."""
        return 2 * self.n_index * self.d_index


def by_window(
    window: WindowTokens, indexer: SparseIndexer | None, attended: Any, looked_through: Any
) -> dict[WindowTokens, Any]:
    """Cost of a token, by how far back: in the window; or among those that the indexer picks, and among all that it
    looks through."""
    return {window: attended} if indexer is None else {indexer.top_tokens: attended, None: looked_through}


def limits(window: WindowTokens, indexer: SparseIndexer | None) -> Iterator[Message]:
    """Sentences on a sliding window and on an indexer, for those that there are."""
    if window is not None:
        yield Message(
            "**Sliding window**: each token sees itself and the {n:,} before it at most; the cache of the layer stops "
            "growing there. Layers above still reach further, by a window a layer "
            "([arXiv:2310.06825](https://arxiv.org/abs/2310.06825)).",
            n=window - 1,
        )
    if indexer is not None:
        yield Message(
            "**Sparse attention**: an indexer picks {n:,} tokens that each query looks at; the cache still holds all "
            "of them ([arXiv:2512.02556](https://arxiv.org/abs/2512.02556)).",
            n=indexer.top_tokens,
        )


class BlockIndexer(SparseIndexer):
    """Picks blocks of tokens: MiniMax-M3 (transformers `modeling_minimax_m3_vl.py`)."""

    pool: int = 1  # tokens that share one index key, Qwen4-Exp
    position_axes: int = 0  # positions of each token that transformers caches with the keys of the first such layer

    def cached_elements(self) -> int:
        """Elements cached per token: a key, or its share of one."""
        return self.d_index if self.pool == 1 else self.d_index // self.pool

    def unpooled_elements(self) -> int:
        """Elements per token in transformers' cache, which pools keys anew in each pass (`Qwen4ExpTextIndexer`)."""
        return self.d_index

    def shapes(self, hidden: int) -> Shapes:
        """Queries and one key, with their norms."""
        return {
            "index_q_proj.weight": (self.n_index * self.d_index, hidden),
            "index_k_proj.weight": (self.d_index, hidden),
            "index_q_norm.weight": (self.d_index,),
            "index_k_norm.weight": (self.d_index,),
        }


GQA.model_rebuild()
