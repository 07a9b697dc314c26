"""Gemma, Gemma 2, 3, 3n and 4."""

from typing import Any

from calc.errors import ConfigError
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    Family,
    attention_bias,
    every,
    extras,
    gated,
    gqa,
    plain_gqa,
    window,
)
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.names import Names
from calc.model.tensor import Shape


def alternating_window(c: Fields, layer: int) -> int | None:
    """Gemma 2, gpt-oss: every second layer slides, from the first on."""
    return window(c, layer, every(c, layer, 2, "sliding_attention"))


def gemma3_window(c: Fields, layer: int) -> int | None:
    """Gemma 3: five sliding layers, then a full one. Looking both ways, a window has half on each side."""
    slides = window(c, layer, every(c, layer, c.size("sliding_window_pattern"), "sliding_attention"))
    return slides // 2 + 1 if slides is not None and c.flag("use_bidirectional_attention") else slides


def keeps_cache(c: Fields, layer: int) -> bool:
    """The last layers read the cache of earlier ones."""
    return layer < c.size("num_hidden_layers") - (c.maybe("num_kv_shared_layers", 0) or 0)


def gemma3n_attention(c: Fields, layer: int) -> GQA:
    return gqa(
        c,
        bias=attention_bias(c),
        window=window(c, layer, every(c, layer, 5, "sliding_attention")),
        qk_norm="head",
        own_keys=keeps_cache(c, layer),
    )


def gemma3n_mlp(c: Fields, layer: int) -> MLP:
    widths = c.get("intermediate_size")
    if isinstance(widths, list):
        if len(widths) != c.size("num_hidden_layers"):
            raise ConfigError(
                f"intermediate_size lists {len(widths)} layers, but the model has {c.size('num_hidden_layers')}.",
                "intermediate_size",
            )
        c = c.with_stated("intermediate_size", widths[layer])
    return gated(c)


def per_layer_input(c: Fields) -> dict[str, Shape]:
    """What each layer needs for the embedding of its own that is mixed in."""
    hidden, narrow = c.size("hidden_size"), c.maybe("hidden_size_per_layer_input", 0) or 0
    return {"per_layer_input_gate.weight": (narrow, hidden), "per_layer_projection.weight": (hidden, narrow)}


def per_layer_extras(c: Fields) -> tuple[Extra, ...]:
    hidden, narrow, layers = c.size("hidden_size"), c.size("hidden_size_per_layer_input"), c.size("num_hidden_layers")
    table: Shape = (c.size("vocab_size_per_layer_input"), layers * narrow)
    return (
        *extras("embedding", {"model.embed_tokens_per_layer.weight": table}),
        *extras("other", {"model.per_layer_model_projection.weight": (layers * narrow, hidden)}),
        *extras("norms", {"model.per_layer_projection_norm.weight": (narrow,)}),
    )


def gemma3n_layer_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """AltUp, arXiv:2301.13310, LAuReL, arXiv:2411.07501, and the per-layer embedding."""
    hidden, inputs, rank = c.size("hidden_size"), c.size("altup_num_inputs"), c.size("laurel_rank")
    other: dict[str, Shape] = {
        "altup.correction_coefs.weight": (inputs, inputs),
        "altup.prediction_coefs.weight": (inputs * inputs, inputs),
        "altup.modality_router.weight": (inputs, hidden),
        "altup.router_norm.weight": (hidden,),
        "laurel.linear_left.weight": (rank, hidden),
        "laurel.linear_right.weight": (hidden, rank),
        "laurel.post_laurel_norm.weight": (hidden,),
    }
    if c.flag("altup_correct_scale"):
        other |= {"altup.correct_output_scale": (hidden,)}
    return (
        *extras("other", other | per_layer_input(c)),
        *extras("norms", {"post_per_layer_input_norm.weight": (hidden,)}),
    )


def gemma3n_extras(c: Fields) -> tuple[Extra, ...]:
    hidden, inputs = c.size("hidden_size"), c.size("altup_num_inputs")
    shapes: dict[str, Shape] = {f"model.altup_projections.{i}.weight": (hidden, hidden) for i in range(inputs - 1)}
    back: dict[str, Shape] = {
        f"model.altup_unembed_projections.{i}.weight": (hidden, hidden) for i in range(inputs - 1)
    }
    return (*per_layer_extras(c), *extras("other", shapes), *extras("embedding", back))


def gemma4_window(c: Fields, layer: int) -> int | None:
    """Five sliding layers, then a full one; the last is always full."""
    if layer == c.size("num_hidden_layers") - 1:
        return None
    slides = window(c, layer, every(c, layer, 6, "sliding_attention"))
    both_ways = c.get("use_bidirectional_attention") == "all"
    return slides // 2 + 1 if slides is not None and both_ways else slides


def gemma4_attention(c: Fields, layer: int) -> GQA:
    """Full layers have wider heads, fewer of them for keys, and may use keys as values."""
    slides = gemma4_window(c, layer)
    common: dict[str, Any] = {"bias": attention_bias(c), "qk_norm": "head", "own_keys": keeps_cache(c, layer)}
    if slides is not None:
        return gqa(c, window=slides, **common)
    same = c.flag("attention_k_eq_v")
    kv = "num_global_key_value_heads" if same and c.maybe("num_global_key_value_heads") else "num_key_value_heads"
    return gqa(c, kv=kv, d_head=c.size("global_head_dim"), keys_are_values=same, **common)


def gemma4_mlp(c: Fields, layer: int) -> MLP:
    """The last layers may be twice as wide."""
    wide = 2 if c.flag("use_double_wide_mlp") and not keeps_cache(c, layer) else 1
    return MLP(intermediate=wide * c.size("intermediate_size"))


def gemma4_ffn(c: Fields, layer: int) -> FeedForward:
    """A dense feed-forward, and beside it experts where `enable_moe_block` says so."""
    dense = gemma4_mlp(c, layer)
    if not c.flag("enable_moe_block"):
        return dense
    return MoE(
        n_experts=c.size("num_experts"),
        top_k=c.size("top_k_experts"),
        expert=MLP(intermediate=c.size("moe_intermediate_size")),
        beside=dense,
        stacked="out_in",
    )


def gemma4_layer_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    hidden = c.size("hidden_size")
    found = [Extra(name="layer_scalar", shape=(1,), component="other", apart="persistent_buffers")]
    if c.flag("enable_moe_block"):
        found += extras("router", {"router.scale": (hidden,), "router.per_expert_scale": (c.size("num_experts"),)})
        more = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
        found += extras("norms", {f"{name}.weight": (hidden,) for name in more})
    if c.maybe("hidden_size_per_layer_input", 0):
        found += extras("other", per_layer_input(c))
        found += extras("norms", {"post_per_layer_input_norm.weight": (hidden,)})
    return tuple(found)


GEMMA: dict[str, Family] = {
    "gemma": Family(mixer=plain_gqa, ffn=gated, kernels=Kernels(norm="rms32")),
    "gemma2": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=alternating_window(c, i)),
        ffn=gated,
        norms=GEMMA_NORMS,
        kernels=Kernels(norm="rms32", capped_logits=True, capped_scores=True, scaled_embedding=True),
    ),
    "vaultgemma": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=alternating_window(c, i)),
        ffn=gated,
        norms=("input_layernorm", "pre_feedforward_layernorm"),
        kernels=Kernels(norm="rms32"),
    ),
    "gemma3_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=gemma3_window(c, i), qk_norm="head"),
        ffn=gated,
        norms=GEMMA_NORMS,
        own={"sliding_window_pattern": 6},
        kernels=Kernels(norm="rms32"),
    ),
    "gemma3n_text": Family(
        mixer=gemma3n_attention,
        ffn=gemma3n_mlp,
        norms=GEMMA_NORMS,
        extras=gemma3n_extras,
        layer_extras=gemma3n_layer_extras,
        kernels=Kernels(norm="rms32", capped_logits=True),
    ),
    "gemma4_text": Family(
        mixer=gemma4_attention,
        ffn=gemma4_ffn,
        norms=GEMMA_NORMS,
        names=Names(router="router.proj", expert="experts", expert_packed={"gate_up_proj": GATE_UP}),
        own={"global_head_dim": 512, "num_global_key_value_heads": None},
        extras=lambda c: per_layer_extras(c) if c.maybe("hidden_size_per_layer_input", 0) else (),
        layer_extras=gemma4_layer_extras,
        kernels=Kernels(
            norm="rms32",
            fp32_weights=True,
            scaled_embedding=True,
            norms_unweighted=frozenset({"values", "router"}),
            scaled_layers=True,
        ),
    ),
    "gemma4_unified_text": Family(
        mixer=gemma4_attention,
        ffn=gemma4_mlp,
        norms=GEMMA_NORMS,
        own={"global_head_dim": 512, "num_global_key_value_heads": None},
        layer_extras=lambda c, i: (
            Extra(name="layer_scalar", shape=(1,), component="other", apart="persistent_buffers"),
        ),
        kernels=Kernels(norm="rms32"),
    ),
}
