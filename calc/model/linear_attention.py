"""Attention without a softmax: a matrix of keys times values is the whole memory of a sequence."""

from typing import ClassVar, Literal

from calc.errors import Message
from calc.model.conventions import GGUFRules
from calc.model.recurrent import Recurrent
from calc.model.tensor import Shapes, joined


class GatedDeltaNet(Recurrent):
    """Gated delta rule, arXiv:2412.06464, as in Qwen3-Next and OLMo Hybrid."""

    word: ClassVar[Message] = Message("Gated DeltaNet")
    summary: ClassVar[Message] = Message(
        "**Gated DeltaNet** keeps a matrix for each head. Each token fades it by a gate and corrects what it says of "
        "the token's key ([arXiv:2412.06464](https://arxiv.org/abs/2412.06464))."
    )
    kind: Literal["gated_delta"] = "gated_delta"
    divided: ClassVar[tuple[str, ...]] = ("n_k", "n_v")
    element_flops: ClassVar[int] = 7  # a decay (1), an update of the delta rule, which first reads (4), a read (2)
    chunk: int = 64
    n_k: int
    n_v: int
    d_k: int
    d_v: int
    d_conv: int
    ngram_channels: int = 0  # of a further convolution, over embedded n-grams: Qwen4-Exp
    ngram_columns: int = 0  # that it looks back on
    ngram_tokens: int = 0  # whose ids the next n-gram starts with

    def shapes(self, hidden: int) -> Shapes:
        k, v = self.n_k * self.d_k, self.n_v * self.d_v
        return {
            "in_q.weight": (k, hidden),
            "in_k.weight": (k, hidden),
            "in_v.weight": (v, hidden),
            "in_z.weight": (v, hidden),
            "in_b.weight": (self.n_v, hidden),
            "in_a.weight": (self.n_v, hidden),
            "q_conv1d.weight": (k, 1, self.d_conv),
            "k_conv1d.weight": (k, 1, self.d_conv),
            "v_conv1d.weight": (v, 1, self.d_conv),
            "A_log": (self.n_v,),
            "dt_bias": (self.n_v,),
            "norm.weight": (self.d_v,),
            "out_proj.weight": (hidden, v),
        }

    def gguf_shapes(self, hidden: int, rules: GGUFRules) -> Shapes:
        """Weights with projections and convolutions of queries, keys and values as one each."""
        shapes = joined(self.shapes(hidden), ("in_q", "in_k", "in_v"), "in_qkv")
        shapes = joined(shapes, ("q_conv1d", "k_conv1d", "v_conv1d"), "conv1d")
        return joined(shapes, ("in_b", "in_a"), "in_ba") if rules.packs_beta_alpha else shapes

    def state_elements(self) -> int:
        return self.n_v * self.d_k * self.d_v

    def conv_elements(self) -> int:
        return (2 * self.n_k * self.d_k + self.n_v * self.d_v) * self.d_conv

    def memory_bytes(self) -> int:
        """Bytes a sequence and layer, with those of n-grams (`Qwen4ExpTextPLELayer`, ids in int64)."""
        ngrams = self.conv_width * self.ngram_channels * self.ngram_columns + 8 * self.ngram_tokens
        return super().memory_bytes() + ngrams


class KimiDelta(Recurrent):
    """Kimi delta attention, arXiv:2510.26692: a decay and an output gate for each channel, each through a bottleneck of
    `d_head`; Kimi K3 has none before the output gate, Ling before neither."""

    word: ClassVar[Message] = Message("Kimi Delta Attention")
    summary: ClassVar[Message] = Message(
        "**Kimi Delta Attention** is a gated delta rule with a gate of its own for each channel "
        "([arXiv:2510.26692](https://arxiv.org/abs/2510.26692))."
    )
    kind: Literal["kimi_delta"] = "kimi_delta"
    divided: ClassVar[tuple[str, ...]] = ("n_heads",)
    output: ClassVar[str] = "o_proj"
    element_flops: ClassVar[int] = 7  # a decay (1), an update of the delta rule, which first reads (4), a read (2)
    fp32_state: bool = True
    n_heads: int
    d_head: int
    d_conv: int
    low_rank: frozenset[Literal["f", "g"]] = frozenset(("f", "g"))  # decay, output gate: those behind a bottleneck
    decays: Literal["heads", "heads_4d", "d_head"] = "heads_4d"
    """Shape of a checkpoint's `A_log`, one number a head: flat, with sides of one around, or padded to `d_head`."""

    def shapes(self, hidden: int) -> Shapes:
        wide = self.n_heads * self.d_head
        weights: Shapes = {f"{name}_proj.weight": (wide, hidden) for name in ("q", "k", "v")}
        weights |= {f"{name}_conv1d.weight": (wide, 1, self.d_conv) for name in ("q", "k", "v")}
        for gate in ("f", "g"):
            if gate in self.low_rank:
                weights |= {
                    f"{gate}_a_proj.weight": (self.d_head, hidden),
                    f"{gate}_b_proj.weight": (wide, self.d_head),
                }
            else:
                weights |= {f"{gate}_proj.weight": (wide, hidden)}
        heads, padded = (self.n_heads,), (self.d_head,)
        return weights | {
            "A_log": {"heads": heads, "heads_4d": (1, 1, *heads, 1), "d_head": padded}[self.decays],
            "dt_bias": (wide,),
            "b_proj.weight": (self.n_heads, hidden),
            "o_norm.weight": (self.d_head,),
            "o_proj.weight": (hidden, wide),
        }

    def state_elements(self) -> int:
        return self.n_heads * self.d_head * self.d_head

    def conv_elements(self) -> int:
        return 3 * self.n_heads * self.d_head * self.d_conv


class LightningAttention(Recurrent):
    """Linear attention with decay, arXiv:2401.04658, as in MiniMax-01."""

    word: ClassVar[Message] = Message("Lightning attention")
    summary: ClassVar[Message] = Message(
        "**Lightning attention** is linear attention with decay, computed in blocks "
        "([arXiv:2401.04658](https://arxiv.org/abs/2401.04658))."
    )
    kind: Literal["lightning"] = "lightning"
    divided: ClassVar[tuple[str, ...]] = ("n_heads",)
    element_flops: ClassVar[int] = 5  # a decay (1), an update (2) and a read (2)
    state_width: ClassVar[int] = 2  # `MiniMaxLightningAttention` multiplies keys and values in their own type
    n_heads: int
    d_head: int

    def shapes(self, hidden: int) -> Shapes:
        wide = self.n_heads * self.d_head
        return {
            "qkv_proj.weight": (3 * wide, hidden),
            "output_gate.weight": (wide, hidden),
            "norm.weight": (wide,),
            "out_proj.weight": (hidden, wide),
        }

    def state_elements(self) -> int:
        return self.n_heads * self.d_head * self.d_head


class MLSTM(Recurrent):
    """The matrix memory of xLSTM 7B, arXiv:2503.13427."""

    word: ClassVar[Message] = Message("mLSTM")
    summary: ClassVar[Message] = Message(
        "**mLSTM**, the matrix memory of xLSTM, keeps a matrix for each head "
        "([arXiv:2503.13427](https://arxiv.org/abs/2503.13427))."
    )
    kind: Literal["mlstm"] = "mlstm"
    divided: ClassVar[tuple[str, ...]] = ("n_heads",)
    state_width: ClassVar[int] = 2  # `xLSTMCache` is made in the type of the hidden states
    fp32_state: bool = True
    n_heads: int
    d_k: int
    d_v: int
    bias: bool = False

    def shapes(self, hidden: int) -> Shapes:
        k, v = self.n_heads * self.d_k, self.n_heads * self.d_v
        matrices: Shapes = {"q": (k, hidden), "k": (k, hidden), "v": (v, hidden), "ogate_preact": (v, hidden)}
        weights: Shapes = {f"{name}.weight": shape for name, shape in matrices.items()}
        for gate in ("igate_preact", "fgate_preact"):
            weights |= {f"{gate}.weight": (self.n_heads, hidden), f"{gate}.bias": (self.n_heads,)}
        weights |= {"multihead_norm.weight": (v,), "out_proj.weight": (hidden, v)}
        if self.bias:
            weights |= {f"{name}.bias": shape[:1] for name, shape in matrices.items()}
            weights |= {"multihead_norm.bias": (v,), "out_proj.bias": (hidden,)}
        return weights

    def state_elements(self) -> int:
        """Elements of the state: for each head a matrix of keys times values, its normaliser and its stabiliser."""
        return self.n_heads * (self.d_k * self.d_v + self.d_k + 1)
