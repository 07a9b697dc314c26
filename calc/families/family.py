"""From the fields of a config to mixers and feed-forwards: the readings that many families share."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from calc.errors import ConfigError, Frozen
from calc.families.fields import Fields
from calc.model.attention import GQA, Projection
from calc.model.block import Block, Extra, Norm, PredictionModule
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.names import Names
from calc.model.tensor import Component, Shape

QKV: frozenset[Projection] = frozenset({"q_proj", "k_proj", "v_proj"})
QKVO: frozenset[Projection] = QKV | {"o_proj"}
NO_BIAS: frozenset[Projection] = frozenset()
TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
PACKED_QKV = ("q_proj", "k_proj", "v_proj")
GATE_UP = ("gate_proj", "up_proj")
POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
GEMMA_NORMS = (*TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
LAYER_KINDS = (
    "reference_sliding_attention",
    "minimax_m3_sparse",
    "full_attention",
    "attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
)
RECURRENT_KINDS = ("linear_attention", "mamba", "conv")
MLP_KINDS = ("dense", "sparse")


class Family(Frozen):
    """How one model_type is read. What a field means where a config leaves it out stands in defaults.json."""

    mixer: Callable[[Fields, int], Mixer | tuple[Mixer, ...] | None]  # of layer i
    ffn: Callable[[Fields, int], FeedForward | None]
    norms: tuple[str, ...] | Callable[[Fields, int], tuple[str, ...]] = TWO_NORMS
    norm: Norm = "rms"
    kernels: Kernels | Callable[[Fields], Kernels] = Kernels()
    names: Names = Names()
    defaults: str | None = None  # the class that it shares its defaults with; None: its own
    own: dict[str, Any] = {}  # defaults that transformers has no class for
    aliases: dict[str, str] = {}  # other spellings that checkpoints use -> the class's own
    layers: str = "num_hidden_layers"
    count: Callable[[Fields], int] | None = None  # of layers, where it is not a field
    hidden: str = "hidden_size"
    extra_rows: int = 0  # of the embedding, beyond the vocabulary
    positions: Callable[[Fields], int] = lambda c: 0
    max_positions: str = "max_position_embeddings"
    d_embedding: str | None = None
    final_norm: Callable[[Fields], Norm] | None = None  # None: of the same kind as in the layers
    head_bias: Callable[[Fields], bool] = lambda c: False
    extras: Callable[[Fields], tuple[Extra, ...]] = lambda c: ()  # outside the layers
    layer_extras: Callable[[Fields, int], tuple[Extra, ...]] = lambda c, i: ()
    path: Callable[[Fields, int], str] = lambda c, i: ""  # module of layer i that norms and mixers lie in
    ties: bool = True  # False: `tie_word_embeddings` has no effect
    shared: Callable[[Fields], tuple[Block, ...]] = lambda c: ()  # run in several layers, stored once
    prediction: Callable[[Fields], tuple[PredictionModule, ...]] = lambda c: ()


# Attention


def head_dim(c: Fields, heads: str = "num_attention_heads", hidden: str = "hidden_size") -> int:
    """head_dim where it is stated, else hidden_size / num_attention_heads, which must then come out whole."""
    stated = c.maybe("head_dim")
    return shared_width(c, hidden, heads) if stated is None else stated


def shared_width(c: Fields, hidden_field: str, heads_field: str) -> int:
    """The width of a head when all of them share the hidden size."""
    hidden, heads = c.size(hidden_field), c.size(heads_field)
    if hidden % heads:
        raise ConfigError(
            f"{heads_field} is {heads:,}, which does not divide {hidden_field} {hidden:,}.",
            heads_field,
            near_divisors(hidden, heads),
        )
    return hidden // heads


def gqa(
    c: Fields,
    *,
    heads: str = "num_attention_heads",
    kv: str = "num_key_value_heads",
    d_head: int | None = None,
    **extra: Any,
) -> GQA:
    """Grouped-query attention with the usual field names."""
    n_q = c.size(heads)
    n_kv = c.maybe(kv) or n_q
    if n_q % n_kv:
        raise ConfigError(
            f"{kv} is {n_kv:,}, which does not divide {heads} {n_q:,}: "
            f"every key-value head serves the same number of query heads.",
            kv,
            near_divisors(n_q, n_kv),
        )
    return GQA(n_q=n_q, n_kv=n_kv, d_head=d_head or head_dim(c), **extra)


def mha(c: Fields, heads: str, hidden: str = "hidden_size", **extra: object) -> GQA:
    n_q = c.size(heads)
    return GQA.model_validate({"n_q": n_q, "n_kv": n_q, "d_head": shared_width(c, hidden, heads), **extra})


def plain_gqa(c: Fields, layer: int) -> GQA:
    """Biases on all four projections by `attention_bias`."""
    return gqa(c, bias=attention_bias(c))


def mla(c: Fields, layer: int = 0, **extra: Any) -> LatentAttention:
    """Latent attention with DeepSeek's field names."""
    return LatentAttention(
        n_q=c.size("num_attention_heads"),
        q_rank=c.maybe("q_lora_rank"),
        kv_rank=c.size("kv_lora_rank"),
        d_nope=c.size("qk_nope_head_dim"),
        d_rope=c.size("qk_rope_head_dim"),
        d_v=c.size("v_head_dim"),
        bias=c.flag("attention_bias"),
        **extra,
    )


def attention_bias(c: Fields, field: str = "attention_bias") -> frozenset[Projection]:
    return QKVO if c.flag(field) else NO_BIAS


# What kind of layer i is: None where it keeps the whole context


def kind(c: Fields, layer: int, default: str) -> str:
    """The word for a layer in `layer_types` where the config lists them, else the class's default pattern."""
    kinds = c.per_layer("layer_types", c.size("num_hidden_layers"), (*LAYER_KINDS, *RECURRENT_KINDS))
    return kinds[layer] if kinds else default


def window(c: Fields, layer: int, default: str = "full_attention", field: str = "sliding_window") -> int | None:
    """The tokens that a layer looks back on."""
    return c.maybe(field) if kind(c, layer, default) in ("sliding_attention", "chunked_attention") else None


def every(c: Fields, layer: int, step: int, rest: str, nth: str = "full_attention") -> str:
    """One kind for every `step`-th layer, another for the rest."""
    return nth if step and (layer + 1) % step == 0 else rest


def one_window(c: Fields, layer: int) -> int | None:
    """Mistral, Phi-3: `sliding_window` holds for all layers."""
    return c.maybe("sliding_window")


def qwen_window(c: Fields, layer: int) -> int | None:
    """Qwen2, Qwen3: off unless `use_sliding_window`; then from layer `max_window_layers` on."""
    if not c.flag("use_sliding_window"):
        return None
    return window(c, layer, "sliding_attention" if layer >= c.size("max_window_layers", 0) else "full_attention")


# Feed-forwards


def gated(c: Fields, layer: int = 0, width: str = "intermediate_size", bias: str | None = "mlp_bias") -> MLP:
    return MLP(intermediate=c.size(width), bias=bias is not None and c.flag(bias))


def plain(c: Fields, layer: int = 0, width: str = "intermediate_size", *, bias: bool = True) -> MLP:
    """Two matrices instead of three."""
    return MLP(intermediate=c.size(width), gated=False, bias=bias)


def squared(c: Fields, layer: int = 0) -> MLP:
    """Two matrices, with a squared relu between."""
    return plain(c, bias=c.flag("mlp_bias"))


def moe(
    c: Fields,
    experts: str,
    width: str,
    *,
    top_k: str = "num_experts_per_tok",
    bias: bool = False,
    gate: bool = True,
    **extra: Any,
) -> MoE:
    n_experts, chosen = c.size(experts), c.size(top_k)
    if chosen > n_experts:
        raise ConfigError(
            f"{top_k} is {chosen:,}, but there are only {n_experts:,} experts ({experts}).", top_k, [n_experts]
        )
    expert = MLP(intermediate=c.size(width), gated=gate, bias=bias)
    return MoE(n_experts=n_experts, top_k=chosen, expert=expert, **extra)


def shared_mlp(
    c: Fields, count: str = "n_shared_experts", width: str = "moe_intermediate_size", bias: str | None = None
) -> MLP | None:
    """Shared experts, which are one MLP as wide as all of them; None without."""
    n_shared = c.maybe(count, 0) or 0
    biased = bias is not None and c.flag(bias)
    return MLP(intermediate=n_shared * c.size(width), bias=biased) if n_shared else None


def is_sparse(c: Fields, layer: int, first_dense: int) -> bool:
    """Whether layer i has experts: by `mlp_layer_types` where they are listed, else after the first dense ones."""
    kinds = c.per_layer("mlp_layer_types", c.size("num_hidden_layers"), MLP_KINDS)
    return kinds[layer] == "sparse" if kinds else layer >= first_dense


def deepseek_ffn(
    c: Fields,
    layer: int,
    *,
    correction: Literal["none", "buffer"] = "buffer",
    first_dense: int | None = None,
    bias: str | None = None,
) -> FeedForward:
    """DeepSeek's: dense first layers, then routed and shared experts. Only V2 can have biases there."""
    dense = c.size("first_k_dense_replace", 0) if first_dense is None else first_dense
    sparse = is_sparse(c, layer, dense)
    return deepseek_moe(c, correction=correction, bias=bias) if sparse else gated(c, bias=bias)


def deepseek_moe(c: Fields, *, correction: Literal["none", "buffer"] = "buffer", bias: str | None = None) -> MoE:
    shared = shared_mlp(c, bias=bias)
    return moe(
        c,
        "n_routed_experts",
        "moe_intermediate_size",
        shared=shared,
        router_correction=correction,
    )


def next_layers(
    c: Fields, mixer: Mixer, ffn: FeedForward, field: str = "num_nextn_predict_layers", *, own_tables: bool
) -> tuple[PredictionModule, ...]:
    """The multi-token-prediction layers that stand after the last one in a checkpoint."""
    after = c.size("num_hidden_layers")
    return tuple(
        PredictionModule(
            block=Block(layers=(after + i,), mixers=(mixer,), ffn=ffn, norms=TWO_NORMS),
            embedding="embed_tokens" if own_tables else None,
            head="shared_head.head" if own_tables else None,
        )
        for i in range(c.maybe(field, 0) or 0)
    )


def extras(component: Component, shapes: Mapping[str, Shape], experts: int = 1, top_k: int = 1) -> tuple[Extra, ...]:
    return tuple(
        Extra(name=name, shape=shape, component=component, experts=experts, top_k=top_k)
        for name, shape in shapes.items()
    )


def near_divisors(of: int, near: int) -> list[int]:
    """The closest divisor of a number on each side of a value that does not divide it."""
    divisors = [d for d in range(1, min(of, 65536) + 1) if of % d == 0]
    below, above = [d for d in divisors if d < near], [d for d in divisors if d > near]
    return below[-1:] + above[:1]
