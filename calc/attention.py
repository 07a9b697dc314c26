from typing import Literal, Self

from calc.frozen import Frozen
from calc.tensor import Shapes


class GQA(Frozen):
    """Grouped-query attention, arXiv:2305.13245; multi-head when n_kv == n_q, multi-query when n_kv == 1."""

    kind: Literal["gqa"] = "gqa"
    n_q: int
    n_kv: int
    d_head: int
    bias: frozenset[Literal["q_proj", "k_proj", "v_proj", "o_proj"]] = frozenset()
    qk_norm: bool = False  # one RMSNorm of d_head for all query heads, one for all key heads
    sinks: bool = False  # one learned logit a query head, gpt-oss
    window: int | None = None  # tokens a sliding-window layer looks back on; None: all

    def shapes(self, hidden: int) -> Shapes:
        """Weights by local checkpoint name, matrices as [out, in]."""
        q, kv = self.n_q * self.d_head, self.n_kv * self.d_head
        weights: Shapes = {
            "q_proj.weight": (q, hidden),
            "k_proj.weight": (kv, hidden),
            "v_proj.weight": (kv, hidden),
            "o_proj.weight": (hidden, q),
        }
        biases: Shapes = {"q_proj.bias": (q,), "k_proj.bias": (kv,), "v_proj.bias": (kv,), "o_proj.bias": (hidden,)}
        weights |= {name: shape for name, shape in biases.items() if name.removesuffix(".bias") in self.bias}
        if self.qk_norm:
            weights |= {"q_norm.weight": (self.d_head,), "k_norm.weight": (self.d_head,)}
        if self.sinks:
            weights |= {"sinks": (self.n_q,)}
        return weights

    def cached_elements(self) -> int:
        """Elements cached per token and layer: a key and a value for each KV head."""
        return 2 * self.n_kv * self.d_head

    def score_elements(self, tokens: int) -> int:
        """Elements of the matrix of scores that eager attention writes for one sequence in one layer."""
        return self.n_q * tokens * tokens

    def rank(self, tp: int) -> Self:
        """The part that one of tp tensor-parallel ranks holds: KV heads are replicated once ranks outnumber them."""
        return self.model_copy(update={"n_q": self.n_q // tp, "n_kv": max(1, self.n_kv // tp)})


class LatentAttention(Frozen):
    """Multi-head latent attention, DeepSeek-V2 section 2.1, arXiv:2405.04434."""

    kind: Literal["mla"] = "mla"
    n_q: int
    q_rank: int | None  # d_c'; None: queries are not compressed (V2-Lite)
    kv_rank: int  # d_c
    d_nope: int  # d_h
    d_rope: int  # d_h^R
    d_v: int
    bias: bool = False  # on the two down-projections and the output
    window: None = None

    def shapes(self, hidden: int) -> Shapes:
        """Weights by local checkpoint name, matrices as [out, in]."""
        q = self.n_q * (self.d_nope + self.d_rope)
        weights: Shapes
        if self.q_rank is None:
            weights = {"q_proj.weight": (q, hidden)}
        else:
            weights = {
                "q_a_proj.weight": (self.q_rank, hidden),
                "q_a_layernorm.weight": (self.q_rank,),
                "q_b_proj.weight": (q, self.q_rank),
            }
        weights |= {
            "kv_a_proj_with_mqa.weight": (self.kv_rank + self.d_rope, hidden),
            "kv_a_layernorm.weight": (self.kv_rank,),
            "kv_b_proj.weight": (self.n_q * (self.d_nope + self.d_v), self.kv_rank),
            "o_proj.weight": (hidden, self.n_q * self.d_v),
        }
        if self.bias:
            weights |= {"kv_a_proj_with_mqa.bias": (self.kv_rank + self.d_rope,), "o_proj.bias": (hidden,)}
            if self.q_rank is not None:
                weights |= {"q_a_proj.bias": (self.q_rank,)}
        return weights

    def cached_elements(self) -> int:
        """Elements cached per token and layer: one latent and one rotary key, whatever n_q is."""
        return self.kv_rank + self.d_rope

    def rank(self, tp: int) -> Self:
        """The part that one of tp ranks holds: heads are divided, the down-projections and the latent are not."""
        return self.model_copy(update={"n_q": self.n_q // tp})


Mixer = GQA | LatentAttention
