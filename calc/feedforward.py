from typing import Literal, Self

from calc.frozen import Frozen
from calc.tensor import Shapes


class MLP(Frozen):
    """Dense feed-forward: gated as in SwiGLU, arXiv:2002.05202 (three matrices), or plain (two)."""

    kind: Literal["mlp"] = "mlp"
    intermediate: int
    gated: bool = True
    bias: bool = False

    def shapes(self, hidden: int) -> Shapes:
        """Weights by local checkpoint name, matrices as [out, in]."""
        rows: Shapes = {"up_proj": (self.intermediate, hidden), "down_proj": (hidden, self.intermediate)}
        if self.gated:
            rows = {"gate_proj": (self.intermediate, hidden)} | rows
        weights: Shapes = {f"{name}.weight": shape for name, shape in rows.items()}
        if self.bias:
            weights |= {f"{name}.bias": shape[:1] for name, shape in rows.items()}
        return weights

    def rank(self, tp: int) -> Self:
        """The part that one of tp tensor-parallel ranks holds."""
        return self.model_copy(update={"intermediate": self.intermediate // tp})


class MoE(Frozen):
    """Mixture of experts, arXiv:1701.06538: a router sends each token to top_k of n_experts equal MLPs.

    Shared experts (DeepSeekMoE, arXiv:2401.06066) see every token; `shared` is their joint MLP.
    """

    kind: Literal["moe"] = "moe"
    n_experts: int
    top_k: int
    expert: MLP
    shared: MLP | None = None
    shared_gate: bool = False  # a sigmoid gate of one row on the shared expert, Qwen2-MoE
    router_bias: bool = False
    router_correction: bool = False  # a bias that balances load, kept as a buffer: DeepSeek-V3 section 2.1.2
    stacked: bool = False  # the checkpoint holds all experts in one tensor [expert, in, out]

    def router_shapes(self, hidden: int) -> Shapes:
        """The router: one row an expert."""
        weights: Shapes = {"weight": (self.n_experts, hidden)}
        return weights | {"bias": (self.n_experts,)} if self.router_bias else weights

    def rank(self, tp: int) -> Self:
        """The part that one of tp ranks holds: each expert is divided, the router is not."""
        shared = None if self.shared is None else self.shared.rank(tp)
        return self.model_copy(update={"expert": self.expert.rank(tp), "shared": shared})


FeedForward = MLP | MoE
