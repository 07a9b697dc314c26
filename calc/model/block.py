from typing import Self

from calc.errors import Frozen
from calc.model.feedforward import MLP, FeedForward, MoE, RankGroups
from calc.model.mixers import AttentionMixer, Mixer, Recurrent, RecurrentMixer
from calc.model.tensor import Component, Excluded, Norm, Shape, Shapes


class Extra(Frozen):
    """A weight that only one family has, by its name within the layer or the model."""

    name: str
    shape: Shape
    component: Component
    excluded_as: Excluded | None = None
    experts: int = 1  # routed experts stacked in it
    top_k: int = 1
    before_layers: bool = False  # outside the layers: whether it stands with the embedding


class Block(Frozen):
    """Equal decoder layers: mixers (attention or recurrent, or both side by side) and a feed-forward, with norms."""

    layers: tuple[int, ...]  # indices
    mixers: tuple[Mixer, ...]
    ffn: FeedForward | None
    norms: tuple[str, ...]  # names; each holds hidden_size weights
    norm: Norm = "rms"
    extras: tuple[Extra, ...] = ()
    stack: str = ""  # where layers of a stack of their own lie, with {layer} counted from `begins`: HRM
    begins: int = 0
    path: str = ""  # module of the layer that norms and mixers lie in: Zamba's mamba_decoder
    places: tuple[int, ...] = ()
    """Layers that run it where they are more than the one that stores it: Zamba's shared block."""
    cache_layers: tuple[int, ...] | None = None
    """Layers, among those that run it, that write a cache, which the others read; None: all. Dory's last pass."""

    @property
    def norms_first(self) -> bool:
        """Whether mixer and feed-forward read a normed copy of the state, not the state itself as in OLMo 2."""
        return self.norms[:1] != ("post_attention_layernorm",)

    @property
    def per_layer_width(self) -> int:
        """Columns of the embedding of its own that each layer mixes in: Gemma 3n and 4."""
        gates = (extra.shape[0] for extra in self.extras if extra.name == "per_layer_input_gate.weight")
        return next(gates, 0)

    @property
    def runs_in(self) -> tuple[int, ...]:
        """Indices of the layers that run it."""
        return self.places or self.layers

    @property
    def cached_in(self) -> tuple[int, ...]:
        """Indices of the layers that leave something in the cache."""
        return self.runs_in if self.cache_layers is None else self.cache_layers

    @property
    def attentions(self) -> tuple[AttentionMixer, ...]:
        """Mixers that cache something of each token."""
        return tuple(mixer for mixer in self.mixers if not isinstance(mixer, Recurrent))

    @property
    def recurrences(self) -> tuple[RecurrentMixer, ...]:
        """Mixers that keep a state of fixed size."""
        return tuple(mixer for mixer in self.mixers if isinstance(mixer, Recurrent))

    @property
    def moe(self) -> MoE | None:
        """The feed-forward where it has routed experts, else None."""
        return self.ffn if isinstance(self.ffn, MoE) else None

    @property
    def dense(self) -> MLP | None:
        """The feed-forward where every token passes through all of it, else None."""
        return self.ffn if isinstance(self.ffn, MLP) else None

    def rank(self, tp: int, slices: int | None = None, spread: int = 1, groups: RankGroups | None = None) -> Self:
        """The part that one of tp tensor-parallel ranks holds; of the feed-forward as `MoE.rank` says."""
        mixers = tuple(mixer.rank(tp) for mixer in self.mixers)
        ffn = None if self.ffn is None else self.ffn.rank(tp, slices, spread, groups)
        return self.model_copy(update={"mixers": mixers, "ffn": ffn})


class PredictionModule(Frozen):
    """Multi-token prediction, DeepSeek-V3 section 2.2: further layers that the model answers without; listed apart."""

    block: Block
    norms: tuple[str, ...] = ("enorm", "hnorm", "shared_head.norm")
    projection: tuple[str, ...] = ("eh_proj",)  # of [state; next embedding]: one matrix, or one for each half
    linear: bool = False  # whether quantized checkpoints store the projection as they do the layer's matrices
    path: str | None = None  # module that norms and projection lie in; None: the layer
    embedding: str | None = None  # its own table and head; None: those of the model
    head: str | None = None

    def own_shapes(self, hidden: int, vocab: int, head_rows: int) -> Shapes:
        """Weights outside the layer by local checkpoint name, matrices as [out, in]."""
        weights: Shapes = {f"{name}.weight": (hidden,) for name in self.norms}
        width = 2 * hidden // len(self.projection)
        weights |= {f"{name}.weight": (hidden, width) for name in self.projection}
        tables = {self.embedding: vocab, self.head: head_rows}
        return weights | {f"{name}.weight": (rows, hidden) for name, rows in tables.items() if name is not None}
