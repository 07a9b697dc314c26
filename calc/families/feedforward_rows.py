"""The vocabulary of rows: feed-forwards, and which layers have experts. Strings name config fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from calc.errors import ConfigError, Message
from calc.families.fields import (
    MLP_KINDS,
    AlikeInAllLayers,
    Fields,
    Flag,
    If,
    LayerRule,
    Size,
    number,
    true,
    value_of,
)
from calc.model.feedforward import MLP, FeedForward, MoE, Stacked

Correction = Literal["none", "buffer", "parameter", "row"]
FeedForwardOf = Callable[[Fields, int], FeedForward | None]
"""The feed-forward of layer i."""


@dataclass(frozen=True, eq=False)
class Times:
    """A width that is a multiple of another."""

    times: Size
    of: str = "hidden_size"

    def __call__(self, c: Fields) -> int:
        return number(c, self.times) * c.size(self.of)


@dataclass(frozen=True, eq=False)
class Half:
    """A field that counts both halves of a gated feed-forward."""

    field: str = "intermediate_size"

    def __call__(self, c: Fields) -> int:
        return c.size(self.field) // 2


@dataclass(frozen=True, eq=False)
class Dense(AlikeInAllLayers[MLP]):
    """Two matrices, or with a gate three."""

    width: Size = "intermediate_size"
    bias: Flag = "mlp_bias"
    gated: Flag = True

    def read(self, c: Fields) -> MLP:
        return MLP(intermediate=number(c, self.width), gated=true(c, self.gated), bias=true(c, self.bias))


@dataclass(frozen=True, eq=False)
class Experts:
    """A mixture of experts; in some layers, or in all."""

    n: str = "num_experts"
    width: str = "moe_intermediate_size"
    top_k: str = "num_experts_per_tok"
    bias: Flag = False
    gated: bool = True
    shared: str | None = None  # how many shared experts there are, which are one MLP as wide as all of them
    shared_width: str | None = None  # of one of them, where it is not that of the routed ones; without a number: of all
    shared_bias: Flag = False
    shared_gate: bool = False
    correction: Correction | If[Correction] = "none"
    router_bias: Flag = False
    d_router: str | None = None
    n_zero: Size = 0
    latent: str | None = None
    latent_bias: Flag = False
    stacked: Stacked = "no"
    first_dense: int | str | None = None  # so many first layers are dense, unless `mlp_layer_types` lists them
    marks: str | None = None  # a list with 1 for each layer that has experts, before these
    sparse: LayerRule | None = None  # another rule for layers that have experts; neither: all of them
    dense: FeedForwardOf = Dense()

    def __call__(self, c: Fields, layer: int) -> FeedForward | None:
        return self.experts(c) if self.is_sparse(c, layer) else self.dense(c, layer)

    def is_sparse(self, c: Fields, layer: int) -> bool:
        """Whether a layer has experts."""
        if self.sparse is not None:
            return self.sparse(c, layer)
        mark = None if self.marks is None else c.mark(self.marks, layer)
        if mark is not None:
            return mark
        return self.first_dense is None or is_sparse(c, layer, self.first_dense)

    def experts(self, c: Fields) -> MoE:
        """Experts of a layer that has them, one object for all."""
        return c.once(self, lambda: self.read(c))

    def read(self, c: Fields) -> MoE:
        """Experts of any layer."""
        n_experts, chosen = c.size(self.n), self.read_chosen(c)
        if chosen > n_experts:
            sentence = "{top_k} is {chosen:,}, but there are only {n_experts:,} experts ({name})."
            message = Message(sentence, top_k=self.top_k, chosen=chosen, n_experts=n_experts, name=self.n)
            raise ConfigError(message, self.top_k, [n_experts])
        return MoE(
            n_experts=n_experts,
            top_k=chosen,
            expert=MLP(intermediate=c.size(self.width), gated=self.gated, bias=true(c, self.bias)),
            shared=self.read_shared(c),
            shared_gate=self.shared_gate,
            router_bias=true(c, self.router_bias),
            router_correction=value_of(c, self.correction),
            d_router=None if self.d_router is None else c.size(self.d_router),
            n_zero=c.maybe(self.n_zero, 0) or 0 if isinstance(self.n_zero, str) else number(c, self.n_zero),
            latent=None if self.latent is None else c.maybe(self.latent),
            latent_bias=true(c, self.latent_bias),
            stacked=self.stacked,
        )

    def read_chosen(self, c: Fields) -> int:
        """Experts that a token passes through; one where the config says none and its class takes that for an answer,
        for it builds the model and fails only when it runs."""
        if c.get(self.top_k) is None and has_no_default(c, self.top_k):
            return 1
        return c.size(self.top_k)

    def read_shared(self, c: Fields) -> MLP | None:
        """The shared experts; None without."""
        if self.shared is None and self.shared_width is None:
            return None
        n = 1 if self.shared is None else c.maybe(self.shared, 0) or 0
        wide = n and n * c.size(self.shared_width or self.width, 0)
        return MLP(intermediate=wide, gated=self.gated, bias=true(c, self.shared_bias)) if wide else None


def is_sparse(c: Fields, layer: int, first_dense: int | str) -> bool:
    """Whether a layer has experts: by `mlp_layer_types` where listed, else after the first dense ones."""
    kinds = c.per_layer("mlp_layer_types", c.size("num_hidden_layers"), MLP_KINDS)
    if kinds:
        return kinds[layer] == "sparse"
    return layer >= (first_dense if isinstance(first_dense, int) else c.maybe(first_dense, 0) or 0)


def has_no_default(c: Fields, top_k: str) -> bool:
    """Whether a class has no default for the number of experts of a token."""
    name = c.aliases.get(top_k, top_k)
    return name in c.defaults and c.defaults[name] is None


def no_feedforward(c: Fields, layer: int) -> None:
    """Layers of a mixer alone: Mamba."""
