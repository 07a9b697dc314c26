from typing import Any, Literal, Self

from calc.errors import Frozen
from calc.model.tensor import Component, Shapes, WindowTokens

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "g_proj"]


class Attention(Frozen):
    """Base of mixers that cache something for each token."""

    def cached_elements(self) -> int:
        """Elements cached per token and layer."""
        raise NotImplementedError

    def compressed_elements(self) -> int:
        """Elements that each token adds beyond the window, on average."""
        return 0

    def written_elements(self) -> Any:
        """Elements that a token adds to the cache, on average."""
        return self.cached_elements() + self.compressed_elements()


class GQA(Attention):
    """Grouped-query attention, arXiv:2305.13245; multi-head when n_kv == n_q, multi-query when n_kv == 1."""

    kind: Literal["gqa"] = "gqa"
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
    keys_are_values: bool = False  # one projection for both, Gemma 4
    sinks: bool = False  # one learned logit a query head, gpt-oss
    delayed: bool = False  # half of each value is made from the token before: ZAYA
    routed: bool = False  # queries and outputs are projected by experts, which stand beside: JetMoE
    window: int | None = None  # tokens a sliding-window layer looks back on; None: all
    d_in: int | None = None  # width of the input where it is not hidden_size: Zamba
    indexer: "BlockIndexer | None" = None

    def shapes(self, hidden: int) -> Shapes:
        """Weights by local checkpoint name, matrices as [out, in]."""
        width = self.d_in or hidden
        d_v = self.d_v or self.d_head
        q, k, v = self.n_q * self.d_head, self.n_kv * self.d_head, self.n_kv * d_v
        weights: Shapes = {} if self.routed else {"q_proj.weight": (2 * q if self.gated else q, width)}
        biases: Shapes = {"q_proj.bias": (2 * q if self.gated else q,)}
        if self.own_keys:
            weights |= {"k_proj.weight": (k, width)}
            biases |= {"k_proj.bias": (k,)}
            if not self.keys_are_values:
                halves = ("v_proj_current", "v_proj_delayed") if self.delayed else ("v_proj",)
                weights |= {f"{name}.weight": (v // len(halves), width) for name in halves}
                biases |= {f"{name}.bias": (v // len(halves),) for name in halves}
        weights |= {} if self.routed else {"o_proj.weight": (hidden, self.n_q * d_v)}
        biases |= {"o_proj.bias": (hidden,)}
        if self.gate != "none":
            gates = self.n_q if self.gate == "heads" else self.n_q * d_v
            weights |= {"g_proj.weight": (gates, width)}
            biases |= {"g_proj.bias": (gates,)}
        biased = self.bias | ({"v_proj_current", "v_proj_delayed"} if "v_proj" in self.bias else set())
        weights |= {name: shape for name, shape in biases.items() if name.removesuffix(".bias") in biased}
        if self.qk_norm != "none":
            kinds: dict[str, Shapes] = {
                "head": {"q_norm": (self.d_head,), "k_norm": (self.d_head,)},
                "full": {"q_norm": (q,), "k_norm": (k,)},
                "heads": {"q_norm": (self.n_q, self.d_head), "k_norm": (self.n_kv, self.d_head)},
            }
            norms = kinds[self.qk_norm]
            if not self.own_keys:
                norms.pop("k_norm")
            weights |= {f"{name}.weight": shape for name, shape in norms.items()}
            if self.qk_norm_bias:
                weights |= {f"{name}.bias": shape for name, shape in norms.items()}
        if self.sinks:
            weights |= {"sinks": (self.n_q,)}
        if self.indexer is not None:
            weights |= self.indexer.shapes(hidden)
        return weights

    def cached_elements(self) -> int:
        """Elements cached per token and layer: a key and a value for each KV head."""
        if not self.own_keys or self.cross:
            return 0
        index_keys = 0 if self.indexer is None else self.indexer.cached_elements()
        return self.n_kv * (self.d_head + self.value_width) + index_keys

    def read_elements(self) -> dict[WindowTokens, Any]:
        """Elements that attention reads of each cached token, by how far back: those of the window; or all index keys,
        and the rest of what the indexer picks."""
        if self.indexer is None:
            return {self.window: self.cached_elements()}
        index = self.indexer.cached_elements()
        return {self.indexer.top_tokens: self.cached_elements() - index, None: index}

    def pair_flops(self, *, absorbed: bool = False) -> dict[WindowTokens, Any]:
        """FLOPs of one query-key pair over all heads, by how far back the pairs go: its score, and its value's share of
        the output. An image's keys and values are not counted."""
        if self.cross:
            return {}
        pair = 2 * self.n_q * (self.d_head + self.value_width)
        if self.indexer is None:
            return {self.window: pair}
        return {self.indexer.top_tokens: pair, None: 2 * self.indexer.n_index * self.indexer.d_index}

    @property
    def value_width(self) -> int:
        """Elements of one head's output."""
        return self.d_v or self.d_head

    @property
    def exchanged_width(self) -> int:
        """Elements of one head's query and output in decode."""
        return self.d_head + self.value_width

    @property
    def picks_tokens(self) -> bool:
        """Whether it chooses the tokens that it attends to."""
        return self.indexer is not None

    def rank(self, tp: int) -> Self:
        """The part that one of tp tensor-parallel ranks holds: KV heads are replicated once ranks outnumber them."""
        return self.model_copy(update={"n_q": self.n_q // tp, "n_kv": max(1, self.n_kv // tp)})

    def divides(self, tp: int) -> bool:
        """Whether tp ranks can share it evenly."""
        return self.n_q % tp == 0 and (self.n_kv % tp == 0 or tp % self.n_kv == 0)


class BlockIndexer(Frozen):
    """Picks the blocks that sparse attention looks at: MiniMax-M3 (transformers `modeling_minimax_m3_vl.py`)."""

    n_index: int
    d_index: int
    pool: int = 1  # tokens that share one index key, Qwen4-Exp
    position_axes: int = 0  # positions of each token that transformers caches with the keys of the first such layer
    top_tokens: int = 2048  # of the blocks that are picked

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
