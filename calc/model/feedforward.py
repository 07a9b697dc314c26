from collections.abc import Iterator
from typing import Literal, NamedTuple, Self

from calc.errors import Frozen, Message
from calc.model.tensor import Component, Shape, Shapes, Sides, biased

Stacked = Literal["no", "in_out", "out_in", "module", "module_in_out"]


class RankGroups(NamedTuple):
    """Ranks that hold a part of a model together, each a share of its columns or rows, and take the tokens of all of
    them; 1: each holds it whole for its own tokens."""

    dense: int  # dense feed-forwards
    shared: int  # shared experts; routers, which stand whole on each, take the same tokens
    head: int

    @classmethod
    def of(cls, ranks: int) -> Self:
        """All parts held by so many ranks together."""
        return cls(ranks, ranks, ranks)


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
        return biased(self.bias, rows)

    @property
    def active_width(self) -> int:
        """Columns that one token passes through."""
        return self.intermediate

    def inner_sides(self, component: Component) -> Sides:
        """Sides, beyond the tokens, of what a component of it makes inside."""
        return (("f", self.intermediate),) if component == "mlp" else ()

    def divided_columns(self, groups: RankGroups, slices: int) -> Iterator[tuple[int, int]]:
        """Columns of each matrix in, and over how many ranks they are divided: those of a group, or the slices of an
        expert."""
        yield self.intermediate, groups.dense

    def why_not_square(self, hidden: int) -> Message:
        """Why it is not two matrices of four times the hidden width."""
        if self.gated:
            return Message(
                "Three matrices of width {width:,} (gated), not two of {four:,}.",
                width=self.intermediate,
                four=4 * hidden,
            )
        return Message(
            "Two matrices of width {width:,}; the rule takes {four:,} and no biases.",
            width=self.intermediate,
            four=4 * hidden,
        )

    def rank(self, tp: int, slices: int | None = None, spread: int = 1, groups: RankGroups | None = None) -> Self:
        """The part that one of tp tensor-parallel ranks holds, or of those of its group; slices and spread are those of
        experts."""
        return self.model_copy(update={"intermediate": self.intermediate // (groups.dense if groups else tp)})

    def divides(self, tp: int) -> bool:
        """Whether tp ranks can share its columns evenly."""
        return self.intermediate % tp == 0


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
    router_correction: Literal["none", "buffer", "parameter", "row"] = "none"
    """A bias to balance load, DeepSeek-V3 section 2.1.2: a buffer there, a parameter in AFMoE, in ERNIE 4.5 a row."""
    d_router: int | None = None  # width that the router chooses in where it is not hidden_size: ZAYA
    n_zero: int = 0  # experts that compute nothing, which the router may choose too: LongCat-Flash
    local_experts: int | None = None  # routed experts on one rank; None: all
    chosen: int | None = None  # experts that a token chooses, wherever they are; None: top_k
    latent: int | None = None  # width that the routed experts work in, behind two projections: Nemotron 3
    latent_bias: bool = False
    parallel_mlp: MLP | None = None  # a dense MLP that every token passes through in the same layer: Gemma 4
    image_expert: MLP | None = None  # one of as many more, which only tokens of images pass through: ERNIE 4.5 VL
    stacked: Stacked = "no"
    """Whether the checkpoint holds all experts in one tensor: [expert, in, out] or [expert, out, in], under
    the bare name or, of a module, under its `.weight`."""

    def router_shapes(self, hidden: int) -> Shapes:
        """The router: one row an expert; ERNIE 4.5 VL's two lie turned."""
        rows = self.n_experts + self.n_zero
        if self.image_expert is not None:
            return {"weight": (hidden, rows), "weight_1": (hidden, rows)}
        weights: Shapes = {"weight": (rows, self.d_router or hidden)}
        return weights | {"bias": (rows,)} if self.router_bias else weights

    def correction_shape(self) -> Shape:
        rows = self.n_experts + self.n_zero
        return (1, rows) if self.router_correction == "row" else (rows,)

    def expert_shapes(self, hidden: int) -> Shapes:
        return self.expert.shapes(self.latent or hidden)

    def latent_shapes(self, hidden: int) -> Shapes:
        """The projections into and out of the experts' width, where it is not hidden_size."""
        if self.latent is None:
            return {}
        projections: Shapes = {"fc1_latent_proj": (self.latent, hidden), "fc2_latent_proj": (hidden, self.latent)}
        return biased(self.latent_bias, projections)

    @property
    def gated(self) -> bool:
        return self.expert.gated

    @property
    def choices(self) -> int:
        """Routed experts that a token chooses, on whatever ranks they are."""
        return self.top_k if self.chosen is None else self.chosen

    @property
    def active_width(self) -> int:
        """Columns that one token passes through: its routed experts', and those of what every token does."""
        dense = sum(part.intermediate for part in (self.shared, self.parallel_mlp) if part is not None)
        return self.top_k * self.expert.intermediate + dense

    def inner_sides(self, component: Component) -> Sides:
        """Sides, beyond the tokens, of what a component of it makes inside."""
        if component == "experts_routed":
            return (("K", self.top_k), ("f_e", self.expert.intermediate))
        if component == "experts_shared" and self.shared is not None:
            return (("f_s", self.shared.intermediate),)
        if component == "mlp" and self.parallel_mlp is not None:
            return (("f_b", self.parallel_mlp.intermediate),)
        return ()

    def divided_columns(self, groups: RankGroups, slices: int) -> Iterator[tuple[int, int]]:
        """Columns of each matrix in, and over how many ranks they are divided: those of a group, or the slices of an
        expert."""
        yield self.expert.intermediate, slices
        parts = ((self.shared, groups.shared), (self.parallel_mlp, groups.dense), (self.image_expert, groups.shared))
        for part, ranks in parts:
            if part is not None:
                yield part.intermediate, ranks

    def why_not_square(self, hidden: int) -> Message:
        """Why it is not two matrices of four times the hidden width."""
        return Message("{n:,} routed experts a layer, of which a token uses {k}.", n=self.n_experts, k=self.top_k)

    def rank(self, tp: int, slices: int | None = None, spread: int = 1, groups: RankGroups | None = None) -> Self:
        """The part that one of tp ranks holds: each expert is divided, the router is not. Routed experts may be cut
        into another number of slices, and these be spread over further ranks, which share the tokens; what every token
        passes through may be divided over other groups of ranks."""
        slices = tp if slices is None else slices
        over = groups or RankGroups.of(tp)
        parts = {"shared": (self.shared, over.shared), "parallel_mlp": (self.parallel_mlp, over.dense)}
        return self.model_copy(
            update={name: part.rank(ranks) for name, (part, ranks) in parts.items() if part is not None}
            | {
                "expert": self.expert.rank(slices),
                "image_expert": None if self.image_expert is None else self.image_expert.rank(slices),
                "local_experts": None if spread == 1 else -(-self.n_experts // spread),
                "top_k": -(-self.top_k * slices // tp),
                "chosen": self.top_k,
            }
        )

    def divides(self, tp: int) -> bool:
        """Whether tp ranks can share each expert evenly."""
        parts = (self.expert, self.shared, self.parallel_mlp, self.image_expert)
        return all(part.divides(tp) for part in parts if part is not None)


FeedForward = MLP | MoE
