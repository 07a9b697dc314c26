"""Rows of the table: how the configs of one model_type become an Architecture.

A row is made of values whose strings name config fields (attention_rows.py, feedforward_rows.py, recurrent_rows.py, and
below); a function stands where a family is like no other. What a field means where a config leaves it out stands in
defaults.json, which follows the classes of transformers, and in further_defaults.json.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calc.errors import Message
from calc.families.attention_rows import Attention, MixerOf
from calc.families.feedforward_rows import Dense, Experts, FeedForwardOf, Times, no_feedforward
from calc.families.fields import Fields, Flag, LayerRule, ShapeOf, Size, number, true
from calc.families.rotary import WHOLE_HEAD, Rotary
from calc.model.block import Block, Extra, PredictionModule
from calc.model.conventions import Kernels, Names
from calc.model.mixers import Mixer
from calc.model.tensor import Component, Excluded, Norm, Shape

LLAMA_ATTENTION, LLAMA_MLP = Attention(bias="attention_bias"), Dense()
PLAIN, LLAMA_NAMES = Kernels(), Names()
GPT_NAMES = Names(module="transformer", embedding="wte", layer="h.{layer}", attention="attn", final_norm="ln_f")
TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
GEMMA_NORMS = (*TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
PACKED_QKV = ("q_proj", "k_proj", "v_proj")
GATE_UP = ("gate_proj", "up_proj")
W123 = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
FC12 = {"up_proj": "fc1", "down_proj": "fc2"}
ENCODER_ATTENTION = {f"encoder_attn.{name}": 1 for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
QK_LAYERNORM = {"q_norm": "q_layernorm", "k_norm": "k_layernorm"}
QUERY_LAYERNORM = {"q_norm": "query_layernorm", "k_norm": "key_layernorm"}
STACKED_EXPERTS = Names(expert="mlp.experts", expert_packed={"gate_up_proj": GATE_UP})


def two_more_positions(c: Fields) -> int:
    """Rows of a learned position table that begins behind that of padding, as fairseq had it."""
    return c.size("max_position_embeddings", 0) + 2


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of one component that only one family has, by name within the layer or the model."""

    component: Component
    shapes: Mapping[str, ShapeOf]
    when: Flag = True
    layers: LayerRule = lambda c, layer: True  # that have them
    excluded_as: Excluded | None = None
    at: tuple[str, ...] = ("",)  # what stands before each name; several: all of them once for each
    before_layers: bool = False  # outside the layers: whether they stand with the embedding

    def __call__(self, c: Fields, layer: int = 0) -> tuple[Extra, ...]:
        return c.once(self, lambda: self.read(c)) if true(c, self.when) and self.layers(c, layer) else ()

    def read(self, c: Fields) -> tuple[Extra, ...]:
        sized = {name: tuple(number(c, side) for side in shape) for name, shape in self.shapes.items()}
        shapes = {f"{path}{name}": shape for path in self.at for name, shape in sized.items()}
        return extras(self.component, shapes, excluded_as=self.excluded_as, before_layers=self.before_layers)


def layer_norms(width: Size, *names: str) -> dict[str, ShapeOf]:
    """A LayerNorm's weight and bias, for each name."""
    return {f"{name}.{leaf}": (width,) for name in names for leaf in ("weight", "bias")}


def cross_attention(
    hidden: str, norm: str, matrices: Mapping[str, int], *, transposed: bool = False
) -> tuple[Weights, Weights]:
    """Weights that `add_cross_attention` puts into every layer: attention to the states of an encoder, with biases, and
    a norm before it. Of each matrix the rows are given in hidden sizes; transposed ones are stored as [in, out]."""
    attention: dict[str, ShapeOf] = {}
    for name, times in matrices.items():
        rows = Times(times, hidden)
        attention |= {f"{name}.weight": (hidden, rows) if transposed else (rows, hidden), f"{name}.bias": (rows,)}
    parts: dict[Component, dict[str, ShapeOf]] = {"attention": attention, "norms": layer_norms(hidden, norm)}
    first, second = (Weights(component, shapes, when="add_cross_attention") for component, shapes in parts.items())
    return first, second


def extras(
    component: Component,
    shapes: Mapping[str, Shape],
    *,
    experts: int = 1,
    top_k: int = 1,
    excluded_as: Excluded | None = None,
    before_layers: bool = False,
) -> tuple[Extra, ...]:
    """Weights of one component, by name and shape."""
    return tuple(
        Extra(
            name=name,
            shape=shape,
            component=component,
            experts=experts,
            top_k=top_k,
            excluded_as=excluded_as,
            before_layers=before_layers,
        )
        for name, shape in shapes.items()
    )


def looped(
    layers: int, first: int, end: int, passes: int, block: Callable[[int], Block], *, last_cached: bool = False
) -> tuple[Block, ...]:
    """Layers of the checkpoint, of which those from `first` to before `end` run several times, pass after pass, and
    keep a cache for each, or for the last alone."""
    blocks, length = [], end - first
    for i in range(layers):
        runs = passes if first <= i < end else 1
        begins = (passes - 1) * length if i >= end else 0
        places = tuple(begins + i + run * length for run in range(runs))
        where: dict[str, Any] = {"layers": places[:1], "begins": begins}
        if runs > 1:
            where |= {"places": places, "cache_layers": places[-1:] if last_cached else None}
        blocks.append(block(i).model_copy(update=where))
    return tuple(blocks)


def extras_of(parts: Iterable[tuple[Component, Mapping[str, Shape]]]) -> tuple[Extra, ...]:
    """Weights of several components, in their order."""
    return tuple(extra for component, shapes in parts for extra in extras(component, shapes))


@dataclass(frozen=True, eq=False)
class MTP:
    """Layers of multi-token prediction that stand after the last one in a checkpoint."""

    attention: Callable[[Fields, int], Mixer]
    ffn: FeedForwardOf
    field: str = "num_nextn_predict_layers"  # how many
    own_tables: bool = False  # an embedding and a head of their own
    layer_norms: tuple[str, ...] = TWO_NORMS
    norms: tuple[str, ...] = ("enorm", "hnorm", "shared_head.norm")
    projection: tuple[str, ...] = ("eh_proj",)
    linear: bool = False
    layer: str = ""  # name of its layers, {layer} counted from 0; empty: they are numbered on from the model's
    path: str | None = None  # module that norms and projection lie in; None: the layer
    after: Size = "num_hidden_layers"
    extras: tuple[Callable[[Fields], tuple[Extra, ...]], ...] = ()

    def __call__(self, c: Fields) -> tuple[PredictionModule, ...]:
        after, n = number(c, self.after), c.maybe(self.field, 0) or 0
        return tuple(
            PredictionModule(
                block=Block(
                    layers=(after + i,),
                    mixers=(self.attention(c, after),),
                    ffn=self.ffn.experts(c) if isinstance(self.ffn, Experts) else self.ffn(c, after),
                    norms=self.layer_norms,
                    extras=tuple(extra for weights in self.extras for extra in weights(c)),
                    stack=self.layer,
                    begins=after if self.layer else 0,
                ),
                norms=self.norms,
                projection=self.projection,
                linear=self.linear,
                path=self.path,
                embedding="embed_tokens" if self.own_tables else None,
                head="shared_head.head" if self.own_tables else None,
            )
            for i in range(n)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """Reader of one model_type: Llama's, but for what its row says."""

    mixer: MixerOf = LLAMA_ATTENTION
    ffn: FeedForwardOf = LLAMA_MLP
    norms: tuple[str, ...] | Callable[[Fields, int], tuple[str, ...]] = TWO_NORMS
    norm: Norm | Callable[[Fields], Norm] = "rms"
    kernels: Kernels | Callable[[Fields], Kernels] = PLAIN
    names: Names | Callable[[Fields], Names] = LLAMA_NAMES
    rotary: Rotary | Callable[[Fields], Rotary | None] | None = WHOLE_HEAD  # None: no rotary positions
    section: str | None = None  # where the decoder's own fields lie; the others are read too
    mixture: str | None = None  # model_type of the family that has the same layers with experts
    assumption: Message | None = None  # what every number of it depends on
    layers: str = "num_hidden_layers"
    count: Callable[[Fields], int] | None = None  # of layers, where it is not a field
    hidden: str = "hidden_size"
    vocab: Size = "vocab_size"  # tokens that the head tells apart
    extra_rows: Size = 0  # of the embedding, beyond the vocabulary
    positions: Size | None = None  # rows of a learned position table
    max_positions: str | Callable[[Fields], int] = "max_position_embeddings"
    d_embedding: Size | None = None
    d_positions: Size | None = None
    final_norm: Norm | Callable[[Fields], Norm] | None = None  # None: of the same kind as in the layers
    head_bias: Flag = False
    extras: tuple[Callable[[Fields], tuple[Extra, ...]], ...] = ()  # weights outside the layers
    layer_extras: tuple[Callable[[Fields, int], tuple[Extra, ...]], ...] = ()
    path: Callable[[Fields, int], str] | None = None  # module of layer i that norms and mixers lie in
    pools: bool = False  # encoders for text, whatever stands behind them; a decoder does where its class says so
    ties: bool = True  # False: `tie_word_embeddings` has no effect
    shared: Callable[[Fields], tuple[Block, ...]] | None = None  # run in several layers, stored once
    prediction: Callable[[Fields], tuple[PredictionModule, ...]] | None = None
    follows: Mapping[str, Size] = field(default_factory=dict)  # fields that must be what others say, where stated


LOOPED = Family(mixer=lambda c, layer: None, ffn=no_feedforward, norms=())
"""A family whose layers are all in `shared`: some of them run several times."""
