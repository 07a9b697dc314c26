"""The vocabulary of rows: attention, and which of its layers look back on a window. Strings name config fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from calc.errors import ConfigError, Message
from calc.families.fields import (
    RECURRENT_KINDS,
    WINDOWED_KINDS,
    Fields,
    Flag,
    If,
    LayerRule,
    Size,
    kind,
    nearest_divisors,
    number,
    true,
    unknown_word,
    value_of,
)
from calc.model.attention import GQA, Projection
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention, LightningIndexer

T = TypeVar("T")
QKV: frozenset[Projection] = frozenset({"q_proj", "k_proj", "v_proj"})
OUT: frozenset[Projection] = frozenset({"o_proj"})
GATE: frozenset[Projection] = frozenset({"g_proj"})
NONE: frozenset[Projection] = frozenset()

Gate = Literal["none", "heads", "channels"]
QKNorm = Literal["none", "head", "full", "heads"]
MixerOf = Callable[[Fields, int], Mixer | tuple[Mixer, ...] | None]
"""The mixers of layer i."""
WindowOf = Callable[[Fields, int], int | None]
"""Tokens that layer i looks back on; None: all."""


@dataclass(frozen=True, eq=False)
class Every:
    """Every n-th layer; `at`: the first of them, -1 for the last of each n."""

    step: Size
    at: Size = -1

    def __call__(self, c: Fields, layer: int) -> bool:
        step, at = number(c, self.step), number(c, self.at, 0)
        return layer % step == (step - 1 if at == -1 else at)


@dataclass(frozen=True, eq=False)
class Listed:
    """The layers whose indices a field lists; `absent`: all or none where it lists nothing."""

    field: str
    absent: bool = False

    def __call__(self, c: Fields, layer: int) -> bool:
        return self.absent if c.get(self.field) is None else layer in c.indices(self.field)


@dataclass(frozen=True, eq=False)
class Window:
    """One window in every layer; null in a config: none."""

    size: str = "sliding_window"
    when: Flag = True

    def __call__(self, c: Fields, layer: int) -> int | None:
        return c.maybe(self.size) if true(c, self.when) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sliding:
    """Layers with a window among layers that keep all: by `layer_types` where a config lists them, else by a pattern,
    which is not read otherwise."""

    full_every: int | str = 0  # layers in a pattern, of which one keeps all; 0: none of them, 1: every layer
    full_at: int = -1  # which one
    first_full: int = 0  # so many first layers keep all
    last_full: bool = False  # the last one does, too
    backwards: bool = False  # the pattern is counted back from the last layer
    slides_every: str | None = None  # the other way round: of so many layers one slides
    after: str | None = None  # slides from this layer on only
    before: str | None = None
    marks: str | None = None  # a list with 1 for each layer that slides, instead of a pattern
    when: Flag = True
    size: Size = "sliding_window"
    bidirectional: Flag = False  # where it looks ahead, too, half of the window lies behind

    def __call__(self, c: Fields, layer: int) -> int | None:
        if not true(c, self.when):
            return None
        word = kind(c, layer)
        if word is None:
            slides = self.full_every != 1 and self.reach(c) is not None and self.slides(c, layer)
        else:
            slides = word in WINDOWED_KINDS
        return self.reach(c) if slides else None

    def reach(self, c: Fields) -> int | None:
        """Tokens that a sliding layer looks back on."""
        window = c.maybe(self.size) if isinstance(self.size, str) else number(c, self.size)
        return window // 2 + 1 if window is not None and true(c, self.bidirectional) else window

    def slides(self, c: Fields, layer: int) -> bool:
        """Whether a layer slides, by the pattern."""
        last = c.size("num_hidden_layers") - 1
        mark = None if self.marks is None else c.mark(self.marks, layer)
        if mark is not None:
            return mark
        if layer < self.first_full or (self.last_full and layer == last):
            return False
        if (self.after and layer < c.size(self.after, 0)) or (self.before and layer >= c.size(self.before, 0)):
            return False
        if self.slides_every is not None:
            return Every(self.slides_every)(c, layer)
        step = pattern(c, self.full_every) if isinstance(self.full_every, str) else self.full_every
        if isinstance(step, str):
            return step[layer % len(step)] == "L"
        return not step or not Every(step, self.full_at)(c, last - layer if self.backwards else layer)


def pattern(c: Fields, name: str) -> int | str:
    """The number of layers in a pattern, or a letter for each: of EXAONE 4's LLLG, G keeps all."""
    value = c.get(name)
    if isinstance(value, str) and value and set(value) <= {"L", "G"}:
        return value
    return c.maybe(name, 0) or 0


LISTED_ONLY = Sliding(full_every=1)
"""Windows where `layer_types` says so, else none."""


@dataclass(frozen=True, eq=False)
class Either(Generic[T]):
    """One reader for layers where a flag of the config or a rule holds, another for the others."""

    rule: str | LayerRule
    yes: Callable[[Fields, int], T]
    no: Callable[[Fields, int], T]

    def __call__(self, c: Fields, layer: int = 0) -> T:
        holds = c.flag(self.rule) if isinstance(self.rule, str) else self.rule(c, layer)
        return (self.yes if holds else self.no)(c, layer)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention:
    """Grouped-query attention."""

    bias: Flag = False
    qkv_bias: Flag | None = None  # where they differ from that
    out_bias: Flag | None = None
    qk_norm: QKNorm | If[QKNorm] = "none"
    qk_norm_bias: bool = False
    window: WindowOf | None = None
    heads: Size = "num_attention_heads"
    kv: str | int | None = "num_key_value_heads"  # None, or null in a config: one for each query head
    head_dim: str | None = "head_dim"  # None, or null in a config: heads share the hidden size
    hidden: str = "hidden_size"
    d_v: str | None = None
    gated: bool = False
    gate: Gate | If[Gate] = "none"
    gate_bias: Flag = False
    sinks: bool = False
    delayed: bool = False
    cross: bool = False
    keys_are_values: Flag = False
    own_keys: LayerRule | None = None  # None: every layer has its own
    bidirectional: bool = False

    def __call__(self, c: Fields, layer: int = 0) -> GQA:
        window = None if self.window is None else self.window(c, layer)
        own = self.own_keys is None or self.own_keys(c, layer)
        return c.once((self, window, own), lambda: self.read(c, window, own))

    def read(self, c: Fields, window: int | None, own: bool) -> GQA:
        """All layers with one window."""
        n_q = number(c, self.heads)
        n_kv = (c.maybe(self.kv) if isinstance(self.kv, str) else self.kv) or n_q
        if n_q % n_kv:
            sentence = (
                "{kv} is {n_kv:,}, which does not divide {heads} {n_q:,}: every key-value head serves the same number "
                "of query heads."
            )
            message = Message(sentence, kv=self.kv, n_kv=n_kv, heads=self.heads, n_q=n_q)
            raise ConfigError(message, str(self.kv), nearest_divisors(n_q, n_kv))
        stated = None if self.head_dim is None else c.maybe(self.head_dim)
        return GQA(
            n_q=n_q,
            n_kv=n_kv,
            d_head=shared_width(c, self.hidden, self.heads) if stated is None else stated,
            d_v=None if self.d_v is None else c.size(self.d_v),
            bias=self.biases(c),
            qk_norm=value_of(c, self.qk_norm),
            qk_norm_bias=self.qk_norm_bias,
            gated=self.gated,
            gate=value_of(c, self.gate),
            own_keys=own,
            keys_are_values=true(c, self.keys_are_values),
            sinks=self.sinks,
            delayed=self.delayed,
            cross=self.cross,
            bidirectional=self.bidirectional,
            window=window,
        )

    def biases(self, c: Fields) -> frozenset[Projection]:
        """Projections that have a bias."""
        qkv, out = (self.bias if part is None else part for part in (self.qkv_bias, self.out_bias))
        flags = ((QKV, qkv), (OUT, out), (GATE, self.gate_bias))
        return NONE.union(*(projections for projections, flag in flags if true(c, flag)))


def shared_width(c: Fields, hidden_field: str, heads_field: Size) -> int:
    """The width of a head when all of them share the hidden size, which must then come out whole."""
    hidden, heads = c.size(hidden_field), number(c, heads_field)
    if hidden % heads:
        sentence = "{name} is {heads:,}, which does not divide {hidden_name} {hidden:,}."
        message = Message(sentence, name=heads_field, heads=heads, hidden_name=hidden_field, hidden=hidden)
        raise ConfigError(message, str(heads_field), nearest_divisors(hidden, heads))
    return hidden // heads


@dataclass(frozen=True, kw_only=True, eq=False)
class MLA:
    """Latent attention, with DeepSeek's field names."""

    heads: Size = "num_attention_heads"
    q_rank: Size | None = "q_lora_rank"
    kv_rank: Size = "kv_lora_rank"
    d_nope: Size = "qk_nope_head_dim"
    d_rope: Size = "qk_rope_head_dim"
    d_v: Size = "v_head_dim"
    gate: Gate | If[Gate] = "none"
    query_gate: bool = False
    sinks: bool = False
    indexer: bool = False  # DeepSeek-V3.2's
    owns_indexer: LayerRule | None = None  # where some layers share an earlier one's choice
    index_pool: str | None = None
    indexes_hidden: bool = False
    fp32_index: bool = False
    own_latent: LayerRule | None = None  # where some layers read an earlier one's latent
    rope_norm: bool = False
    window: WindowOf | None = None

    def __call__(self, c: Fields, layer: int = 0) -> LatentAttention:
        owned = self.owns_indexer is None or self.owns_indexer(c, layer)
        own_latent = self.own_latent is None or self.own_latent(c, layer)
        window = None if self.window is None else self.window(c, layer)
        return c.once((self, owned, own_latent, window), lambda: self.read(c, owned, own_latent, window))

    def read(self, c: Fields, owned: bool, own_latent: bool, window: int | None) -> LatentAttention:
        """All layers that are alike in these."""
        return LatentAttention(
            n_q=number(c, self.heads),
            q_rank=c.maybe(self.q_rank) if isinstance(self.q_rank, str) else self.q_rank and number(c, self.q_rank),
            kv_rank=number(c, self.kv_rank),
            d_nope=number(c, self.d_nope),
            d_rope=number(c, self.d_rope, 0),
            d_v=number(c, self.d_v),
            own_latent=own_latent,
            rope_norm=self.rope_norm,
            window=window,
            bias=c.flag("attention_bias"),
            gate=value_of(c, self.gate),
            query_gate=self.query_gate,
            sinks=self.sinks,
            indexer=LightningIndexer(
                n_index=c.size("index_n_heads"),
                d_index=c.size("index_head_dim"),
                owned=owned,
                from_hidden=self.indexes_hidden,
                fp32=self.fp32_index,
                pool=1 if self.index_pool is None else c.size(self.index_pool),
                top_tokens=c.maybe("index_topk") or LightningIndexer.model_fields["top_tokens"].default,
            )
            if self.indexer
            else None,
        )


@dataclass(frozen=True, eq=False)
class Hybrid:
    """Attention in some layers and something recurrent in the others: by `layer_types` where a config lists them, else
    by a rule."""

    attention: MixerOf
    recurrent: MixerOf
    attends: LayerRule
    words: tuple[str, ...] = ("full_attention", "linear_attention", "attention", "mamba")  # that `layer_types` may hold

    def __call__(self, c: Fields, layer: int) -> Mixer | tuple[Mixer, ...] | None:
        return (self.attention if self.is_attention(c, layer) else self.recurrent)(c, layer)

    def is_attention(self, c: Fields, layer: int) -> bool:
        """Whether a layer attends. Raises ConfigError for a word that the family has no layer for."""
        word = kind(c, layer)
        if word is not None and word not in self.words:
            raise unknown_word(word, self.words)
        return self.attends(c, layer) if word is None else word not in RECURRENT_KINDS
