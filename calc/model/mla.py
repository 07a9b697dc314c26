from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from calc.errors import Message
from calc.model.attention import GQA, OUTPUT, SCORES, Attention, K, Q, SparseIndexer, V, by_window, limits
from calc.model.conventions import GGUFRules, Kernels
from calc.model.mixer_kind import LayerTensor
from calc.model.tensor import Component, Elements, Shapes, Sides, WindowTokens, weights

LATENT = Message(
    "**Multi-head latent attention (MLA)** caches one compressed vector for all heads, from which each head makes its "
    "keys and values, and one rotary key beside it ([arXiv:2405.04434](https://arxiv.org/abs/2405.04434)). The cache "
    "does not depend on the number of heads."
)


def fp8_vector_bytes(width: int) -> int:
    """Bytes of a vector in fp8 with an fp32 scale for each 128 elements."""
    return width + 4 * -(-width // 128)


class LatentAttention(Attention):
    """Multi-head latent attention, DeepSeek-V2 section 2.1, arXiv:2405.04434."""

    kind: Literal["mla"] = "mla"
    divided: ClassVar[tuple[str, ...]] = ("n_q",)
    component: Component = "attention"
    n_q: int
    q_rank: int | None  # d_c'; None: queries are not compressed (V2-Lite)
    kv_rank: int  # d_c
    d_nope: int  # d_h
    d_rope: int  # d_h^R; 0: no positions, GLM-5.3
    d_v: int
    bias: bool = False  # on the two down-projections and the output
    gate: Literal["none", "heads", "channels"] = "none"  # a projection of its own that gates the output: Ling, Hy4
    query_gate: bool = False  # the query's second projection reads twice its rank and also yields a gate: A.X K2
    sinks: bool = False  # one learned logit a query head
    indexer: "LightningIndexer | None" = None
    own_latent: bool = True  # False: reads the latent of an earlier layer, Mistral Large 4
    rope_norm: bool = False  # a norm of the rotary key, dots3
    window: int | None = None  # tokens a sliding-window layer looks back on; None: all

    def shapes(self, hidden: int) -> Shapes:
        q, out = self.n_q * (self.d_nope + self.d_rope), self.n_q * self.d_v
        rows: Shapes = {"q_proj": (q, hidden)}
        if self.q_rank is not None:
            second = (q + out, 2 * self.q_rank) if self.query_gate else (q, self.q_rank)
            rows = {"q_a_proj": (self.q_rank, hidden), "q_a_layernorm": (self.q_rank,), "q_b_proj": second}
        if self.own_latent:
            rows |= {"kv_a_proj_with_mqa": (self.kv_rank + self.d_rope, hidden), "kv_a_layernorm": (self.kv_rank,)}
        rows |= {"kv_b_proj": (self.n_q * (self.d_nope + self.d_v), self.kv_rank), "o_proj": (hidden, out)}
        shapes = weights(rows)
        if self.bias:
            with_bias = [name for name in ("o_proj", "kv_a_proj_with_mqa", "q_a_proj") if name in rows]
            shapes |= {f"{name}.bias": rows[name][:1] for name in with_bias}
        if self.gate != "none":
            shapes |= {"g_proj.weight": (self.n_q if self.gate == "heads" else out, hidden)}
        if self.sinks:
            shapes |= {"sinks": (self.n_q,)}
        if self.rope_norm:
            shapes |= {"k_rope_only_layernorm.weight": (self.d_rope,)}
        return shapes if self.indexer is None else shapes | self.indexer.shapes(hidden, self.q_rank)

    def cached_elements(self) -> int:
        """Elements cached per token and layer: one latent and one rotary key, whatever n_q is; and an index key."""
        index_keys = 0 if self.indexer is None else self.indexer.cached_elements()
        return self.kv_rank + self.d_rope + index_keys if self.own_latent else index_keys

    def read_elements(self) -> dict[WindowTokens, Any]:
        """Elements that attention reads of each cached token, by how far back: those of the window; or all index keys,
        and the rest of what the indexer picks."""
        index = 0 if self.indexer is None else self.indexer.cached_elements()
        return by_window(self.window, self.indexer, self.cached_elements() - index, index)

    def packed_bits(self) -> dict[WindowTokens, int]:
        """Bits of a cached token in fp8 as FlashMLA packs it: the latent with an fp32 scale for each 128, the rotary
        key in 16 bits, 656 bytes of 512 + 64 elements; an index key in fp8 with its scales (vLLM
        `flashmla_sparse.py`)."""
        latent = 8 * fp8_vector_bytes(self.kv_rank) + 16 * self.d_rope
        picks = self.indexer if self.picks_tokens else None
        key = 0 if picks is None else 8 * fp8_vector_bytes(picks.d_index)
        return by_window(self.window, self.indexer, latent, key)

    def pair_flops(self, *, absorbed: bool = False) -> dict[WindowTokens, Any]:
        """FLOPs of one query-key pair over all heads, by how far back the pairs go: its score, and its value's share of
        the output. Absorbed: attention works on the latents themselves, DeepSeek-V2 section 2.1.2."""
        pair = 2 * self.n_q * (self.exchanged_width if absorbed else self.d_nope + self.d_rope + self.d_v)
        return by_window(self.window, self.indexer, pair, 0 if self.indexer is None else self.indexer.pair_flops())

    @property
    def score_heads(self) -> int:
        return self.n_q

    @property
    def value_width(self) -> int:
        return self.d_v

    absorbs: ClassVar[bool] = True

    @property
    def attended_widths(self) -> tuple[int, int]:
        return self.kv_rank + self.d_rope, self.kv_rank

    @property
    def shared_parts(self) -> tuple[int, ...]:
        return (self.kv_rank, self.d_rope) if self.d_rope else (self.kv_rank,)

    def cached_vectors(self) -> tuple[int, ...]:
        return (self.kv_rank + self.d_rope,)

    @property
    def picks_tokens(self) -> bool:
        """Whether it chooses the tokens that it attends to, and does not take over another layer's choice."""
        return self.indexer is not None and self.indexer.owned

    def as_grouped(self) -> GQA:
        """Grouped attention with its heads' keys and values as computed."""
        return GQA(n_q=self.n_q, n_kv=self.n_q, d_head=self.d_nope + self.d_rope, d_v=self.d_v, window=self.window)

    def gguf_shapes(self, hidden: int, rules: GGUFRules) -> Shapes:
        """Weights with the up-projection of the latent as one of keys and one of values."""
        shapes = self.shapes(hidden)
        if not rules.whole_latent:
            del shapes["kv_b_proj.weight"]
            shapes["attn_k_b.weight"] = (self.n_q, self.kv_rank, self.d_nope)
            shapes["attn_v_b.weight"] = (self.n_q, self.d_v, self.kv_rank)
        return shapes

    def made(self, batch: tuple[str, int], length: tuple[str, int]) -> Iterator[LayerTensor]:
        tokens, heads = (batch, length), ("n_q", self.n_q)
        d_v, d = ("d_v", self.d_v), ("d_nope + d_rope", self.d_nope + self.d_rope)
        if self.q_rank is not None:
            yield LayerTensor(name=Message("Compressed queries"), sides=(*tokens, ("r_q", self.q_rank)))
        yield LayerTensor(name=Q, sides=(batch, heads, length, d))
        latent: Sides = (*tokens, ("r_kv", self.kv_rank))
        yield LayerTensor(name=Message("Latent of keys and values"), sides=latent, cached=self.own_latent)
        if self.d_rope:
            rotary: Sides = (batch, ("1", 1), length, ("d_rope", self.d_rope))
            yield LayerTensor(name=Message("Rotary key, of all heads"), sides=rotary, cached=self.own_latent)
        yield LayerTensor(name=K, sides=(batch, heads, length, d))
        yield LayerTensor(name=V, sides=(batch, heads, length, d_v))
        yield LayerTensor(name=SCORES, sides=(batch, heads, length, length))
        yield LayerTensor(name=OUTPUT, sides=(*tokens, (f"n_q·{d_v[0]}", self.n_q * d_v[1])))

    # What it is called

    @classmethod
    def terms(cls) -> tuple[Message, ...]:
        return (LATENT,)

    def title(self) -> Message:
        kind = Message("MLA")
        return kind if self.window is None else Message("{kind}, window of {n:,}", kind=kind, n=self.window)

    def about(self) -> Iterator[Message]:
        yield LATENT
        yield from limits(self.window, self.indexer)

    def readers(self) -> Message:
        return Message(
            "All {n_q:,} query heads read one latent of {latent:,} channels and one rotary key of {rope:,}; each makes "
            "its own keys and values of the latent.",
            n_q=self.n_q,
            latent=self.kv_rank,
            rope=self.d_rope,
        )

    def why_not_square(self, hidden: int) -> Message:
        return Message("Queries, keys and values pass through low ranks, as five matrices, not four square ones.")

    def rule_heads(self) -> tuple[int, int]:
        """Every query head, as if each had keys and values."""
        return self.n_q, self.d_v

    def why_not_cached(self) -> Message:
        return Message(
            "One latent of {rank} and one rotary key of {rope} are cached, however many heads there are.",
            rank=self.kv_rank,
            rope=self.d_rope,
        )

    # What is alive while it is computed

    def module_peaks(
        self, hidden: int, kernels: Kernels, rotated: int, *, eager: bool, cached: bool
    ) -> Iterator[tuple[Message, Elements]]:
        """Peak where channels made of the latent and rotated ones are joined."""
        key = self.d_nope + self.d_rope
        yield (
            Message("latent attention"),
            {
                "keys without positions and values": self.n_q * (self.d_nope + self.d_v),
                "queries and keys, before and after they are joined": self.n_q * 3 * key,
                "rotated channels": self.n_q * self.d_rope,
            },
        )

    def fused_elements(self, hidden: Any) -> Elements:
        key = self.d_nope + self.d_rope
        return {
            "queries": self.n_q * key,
            "keys": self.n_q * key,
            "values and output": self.n_q * 2 * self.d_v,
            "keys without positions, from the latent": self.n_q * self.d_nope,
        }

    def expanded_bytes(self, width: int, kernels: Kernels, *, eager: bool) -> Elements:
        """Keys without positions and values of every head; keys with them; and the scores, or values padded to the
        width of keys for a kernel that takes no other."""
        key, n = self.d_nope + self.d_rope, self.n_q
        parts = {
            "keys without positions and values": n * (self.d_nope + self.d_v) * width,
            "keys with positions": n * key * width,
        }
        if eager:
            return parts | {"scores and their softmax": n * self.softmax_bytes(width, kernels)}
        return parts | {"values, as wide as keys": n * key * width}


class LightningIndexer(SparseIndexer):
    """DeepSeek-V3.2's, arXiv:2512.02556. Replicated on every rank."""

    owned: bool = True  # False: the layer takes the choice of an earlier one, GLM-5.2
    from_hidden: bool = False  # queries are made from the state, not from its compression: Mistral Large 4
    pool: int = 1  # tokens that share one index key, GLM-5.3
    fp32: bool = False  # keys stay in fp32, as they are rotated: dots3

    def pair_flops(self) -> int:
        return super().pair_flops() if self.owned else 0

    def cached_elements(self) -> int:
        """Elements cached per token: a key, or its share of one; in fp32 they count twice."""
        if not self.owned:
            return 0
        key = 2 * self.d_index if self.fp32 else self.d_index
        return key if self.pool == 1 else key // self.pool

    def unpooled_elements(self) -> int:
        """Elements per token in the cache of transformers, which pools keys anew in each pass: the token's key, its
        gate, and whether it is padding (`Glm5NextTextIndexer`)."""
        return self.cached_elements() if self.pool == 1 else 2 * self.d_index + 1

    def shapes(self, hidden: int, q_rank: int | None) -> Shapes:
        """Queries from the compressed query, one key, a weight for each head."""
        width = hidden if self.from_hidden else q_rank
        if not self.owned or width is None:
            return {}
        return {
            "indexer.wq_b.weight": (self.n_index * self.d_index, width),
            "indexer.wk.weight": (self.d_index, hidden),
            "indexer.k_norm.weight": (self.d_index,),
            "indexer.k_norm.bias": (self.d_index,),
            "indexer.weights_proj.weight": (self.n_index, hidden),
        }


LatentAttention.model_rebuild()
