"""Families with parts that no other has: DeepSeek-V4, Gemma 3n and 4, Nemotron-NAS, Zamba."""

from collections.abc import Mapping
from typing import Any

from calc.architecture import Block, Extra, PredictionModule
from calc.attention import GQA
from calc.compressed import CompressedAttention
from calc.errors import ConfigError
from calc.families.reading import (
    GEMMA_NORMS,
    TWO_NORMS,
    Family,
    attention_bias,
    every,
    gated,
    gqa,
    near_divisors,
    window,
)
from calc.feedforward import MLP, FeedForward, MoE
from calc.fields import Fields, shown
from calc.mixers import Mixer
from calc.names import Names
from calc.recurrent import Mamba, Mamba2
from calc.tensor import Component, Shape


def extras(component: Component, shapes: Mapping[str, Shape]) -> tuple[Extra, ...]:
    return tuple(Extra(name=name, shape=shape, component=component) for name, shape in shapes.items())


# DeepSeek-V4

V4_KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
V4_RATIOS = {0: V4_KINDS[0], 4: V4_KINDS[1], 128: V4_KINDS[2]}


def v4_kind(c: Fields, layer: int) -> str:
    """By `layer_types`, by the ratios that the checkpoints list, or the class's pattern."""
    listed = c.get("layer_types")
    if isinstance(listed, list) and len(listed) == c.size("num_hidden_layers"):
        words = c.per_layer("layer_types", len(listed), V4_KINDS)
        if words:
            return words[layer]
    ratios = c.get("compress_ratios")
    if isinstance(ratios, list) and layer < len(ratios):
        if ratios[layer] not in V4_RATIOS:
            raise ConfigError(
                f"compress_ratios holds {shown(ratios[layer])}; it must be 0, 4 or 128.", "compress_ratios"
            )
        return V4_RATIOS[ratios[layer]]
    return V4_KINDS[1] if layer >= 2 and layer % 2 else V4_KINDS[2]


def v4_mixer(c: Fields, layer: int) -> Mixer:
    return v4_attention(c, v4_kind(c, layer))


def v4_attention(c: Fields, what: str) -> CompressedAttention:
    n_q, groups = c.size("num_attention_heads"), c.size("o_groups")
    if n_q % groups:
        raise ConfigError(
            f"o_groups is {groups:,}, which does not divide num_attention_heads {n_q:,}.",
            "o_groups",
            near_divisors(n_q, groups),
        )
    sparse = what == "compressed_sparse_attention"
    return CompressedAttention(
        o_groups=groups,
        group_heads=n_q // groups,
        d_head=c.size("head_dim"),
        q_rank=c.size("q_lora_rank"),
        o_rank=c.size("o_lora_rank"),
        window=c.size("sliding_window"),
        rate=None if what == "sliding_attention" else 4 if sparse else 128,
        overlap=2 if sparse else 1,
        n_index=c.size("index_n_heads") if sparse else None,
        d_index=c.size("index_head_dim") if sparse else None,
    )


def v4_hashes(c: Fields, layer: int) -> bool:
    """The first layers choose experts by a table over the vocabulary."""
    listed = c.get("mlp_layer_types")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer] == "hash_moe")
    return layer < c.size("num_hash_layers", 0)


def v4_moe(c: Fields, layer: int) -> MoE:
    return MoE(
        n_experts=c.size("n_routed_experts"),
        top_k=c.size("num_experts_per_tok"),
        expert=MLP(intermediate=c.size("moe_intermediate_size")),
        shared=MLP(intermediate=c.size("n_shared_experts") * c.size("moe_intermediate_size"), bias=c.flag("mlp_bias")),
        router_correction="none" if v4_hashes(c, layer) else "buffer",
    )


def v4_layer_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Hyper-connections, arXiv:2409.19606, around attention and feed-forward; and the table of hashed layers."""
    hyper = hyper_connections(c)
    if not v4_hashes(c, layer):
        return hyper
    table = (c.size("vocab_size"), c.size("num_experts_per_tok"))
    hashed = Extra(name="mlp.gate.tid2eid", shape=table, component="router", apart="persistent_buffers")
    return (*hyper, hashed)


def hyper_connections(c: Fields) -> tuple[Extra, ...]:
    streams = c.size("hc_mult")
    rows = streams * streams + 2 * streams
    shapes: dict[str, Shape] = {}
    for around in ("attn_hc", "ffn_hc"):
        shapes |= {f"{around}.fn": (rows, streams * c.size("hidden_size")), f"{around}.base": (rows,)}
        shapes |= {f"{around}.scale": (3,)}
    return extras("other", shapes)


def v4_extras(c: Fields) -> tuple[Extra, ...]:
    streams = c.size("hc_mult")
    shapes = {"fn": (streams, streams * c.size("hidden_size")), "base": (streams,), "scale": (1,)}
    return extras("other", {f"model.hc_head.{name}": shape for name, shape in shapes.items()})


def v4_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    after, streams, hidden = c.size("num_hidden_layers"), c.size("hc_mult"), c.size("hidden_size")
    head: dict[str, Shape] = {
        "hc_head.fn": (streams, streams * hidden),
        "hc_head.base": (streams,),
        "hc_head.scale": (1,),
    }
    own = (*hyper_connections(c), *extras("other", head))
    return tuple(
        PredictionModule(
            block=Block(
                layers=(after + i,),
                mixers=(v4_attention(c, "sliding_attention"),),
                ffn=v4_moe(c, after),
                norms=TWO_NORMS,
                extras=own,
            )
        )
        for i in range(c.maybe("num_nextn_predict_layers", 0) or 0)
    )


# Gemma 3n and 4


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


def gemma4_ffn(c: Fields, layer: int) -> FeedForward:
    """A dense feed-forward, and beside it experts where `enable_moe_block` says so."""
    wide = 2 if c.flag("use_double_wide_mlp") and not keeps_cache(c, layer) else 1
    dense = MLP(intermediate=wide * c.size("intermediate_size"))
    if not c.flag("enable_moe_block"):
        return dense
    return MoE(
        n_experts=c.size("num_experts"),
        top_k=c.size("top_k_experts"),
        expert=MLP(intermediate=c.size("moe_intermediate_size")),
        beside=dense,
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


# Nemotron-NAS


def nas_part(c: Fields, layer: int, part: str) -> Fields:
    """The attention or the ffn of one layer in `block_configs`."""
    blocks = c.get("block_configs")
    layers = c.size("num_hidden_layers")
    if not isinstance(blocks, list) or len(blocks) != layers:
        raise ConfigError(f"block_configs must list the {layers:,} layers of the model.", "block_configs")
    found = blocks[layer].get(part) if isinstance(blocks[layer], dict) else None
    if not isinstance(found, dict):
        raise ConfigError(f"block_configs does not say the {part} of layer {layer}.", "block_configs")
    return c.within(found)


def nas_mixer(c: Fields, layer: int) -> Mixer | None:
    part = nas_part(c, layer, "attention")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return None
    n_q, group = c.size("num_attention_heads"), part.size("n_heads_in_group")
    if n_q % group:
        raise ConfigError(f"n_heads_in_group is {group:,}, which does not divide {n_q:,} heads.", "block_configs")
    return gqa(c.with_stated("num_key_value_heads", n_q // group), bias=attention_bias(c))


def nas_ffn(c: Fields, layer: int) -> FeedForward | None:
    part = nas_part(c, layer, "ffn")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return None
    multiple = part.get("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < 1000:
        raise ConfigError(f"ffn_mult is {shown(multiple)}; it must be a number such as 2.625.", "block_configs")
    width = int(2 * multiple * c.size("hidden_size") / 3)
    return MLP(intermediate=-(-width // 256) * 256, bias=c.flag("mlp_bias"))


def nas_norms(c: Fields, layer: int) -> tuple[str, ...]:
    parts = zip(("attention", "ffn"), TWO_NORMS, strict=True)
    return tuple(norm for part, norm in parts if not nas_part(c, layer, part).flag("no_op"))


def nas_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    hidden = c.size("hidden_size")
    found: list[Extra] = []
    for part, component, path in (("attention", "attention", "self_attn"), ("ffn", "mlp", "mlp")):
        if nas_part(c, layer, part).flag("replace_with_linear"):
            name = f"{path}.linear_attn.weight" if part == "attention" else f"{path}.linear_mlp.weight"
            found.append(Extra.model_validate({"name": name, "shape": (hidden, hidden), "component": component}))
    return tuple(found)


# Zamba


def zamba_is_hybrid(c: Fields, layer: int) -> bool:
    listed = c.get("layers_block_type")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer] == "hybrid")
    if "attn_layer_period" in c.defaults:
        period, offset = c.size("attn_layer_period"), c.size("attn_layer_offset", 0)
        return layer == 2 if layer < 3 else (layer - 3) % period == offset
    return layer in ZAMBA2_HYBRID


ZAMBA2_HYBRID = frozenset({6, 12, 18, 24, 30, 36, 42, 47, 51})
"""The class's default for Zamba2 of 54 layers."""


def zamba_places(c: Fields) -> tuple[int, ...]:
    return tuple(i for i in range(c.size("num_hidden_layers")) if zamba_is_hybrid(c, i))


def zamba_mamba(c: Fields, layer: int) -> Mamba:
    hidden = c.size("hidden_size")
    return Mamba(
        d_inner=c.size("mamba_expand") * hidden,
        d_state=c.size("mamba_d_state"),
        d_conv=c.size("mamba_d_conv"),
        dt_rank=-(-hidden // 16) if c.get("mamba_dt_rank") == "auto" else c.size("mamba_dt_rank"),
        conv_bias=c.flag("mamba_conv_bias"),
        bias=c.flag("mamba_proj_bias"),
    )


def zamba2_mamba(c: Fields, layer: int) -> Mamba2:
    n_heads = c.size("n_mamba_heads")
    return Mamba2(
        n_heads=n_heads,
        d_head=c.size("mamba_expand") * c.size("hidden_size") // n_heads,
        d_state=c.size("mamba_d_state"),
        n_groups=c.size("mamba_ngroups"),
        d_conv=c.size("mamba_d_conv"),
        conv_bias=c.flag("use_conv_bias"),
        bias=c.flag("add_bias_linear"),
    )


def zamba_attention(c: Fields) -> GQA:
    """Its input is the hidden state beside the embedding: twice as wide."""
    twice, n_q = 2 * c.size("hidden_size"), c.size("num_attention_heads")
    d_head = c.maybe("attention_head_dim") or twice // n_q
    return GQA(n_q=n_q, n_kv=c.maybe("num_key_value_heads") or n_q, d_head=d_head, d_in=twice)


def zamba_linear(c: Fields, layer: int) -> tuple[Extra, ...]:
    hidden = c.size("hidden_size")
    return extras("other", {"linear.weight": (hidden, hidden)}) if zamba_is_hybrid(c, layer) else ()


def zamba_shared(c: Fields) -> tuple[Block, ...]:
    places = zamba_places(c)
    return (
        (zamba_block(c, places, MLP(intermediate=c.size("intermediate_size")), "shared_transf", ()),) if places else ()
    )


def zamba_block(c: Fields, places: tuple[int, ...], ffn: MLP, path: str, adapters: tuple[Extra, ...]) -> Block:
    hidden = c.size("hidden_size")
    norms: dict[str, Shape] = {
        f"{path}.input_layernorm.weight": (2 * hidden,),
        f"{path}.pre_ff_layernorm.weight": (hidden,),
    }
    return Block(
        layers=places[:1],
        mixers=(zamba_attention(c),),
        ffn=ffn,
        norms=(),
        extras=(*extras("norms", norms), *adapters),
        places=places,
    )


def zamba2_shared(c: Fields) -> tuple[Block, ...]:
    """`num_mem_blocks` blocks take turns; each place that runs one has low-rank adapters of its own."""
    places, number = zamba_places(c), c.size("num_mem_blocks")
    width = c.maybe("intermediate_size") or 4 * c.size("hidden_size")
    return tuple(
        zamba_block(
            c,
            places[block::number],
            MLP(intermediate=width, bias=c.flag("add_bias_linear")),
            "shared_transformer",
            zamba2_adapters(c, range(block, len(places), number), width),
        )
        for block in range(min(number, len(places)))
    )


def zamba2_adapters(c: Fields, turns: range, width: int) -> tuple[Extra, ...]:
    hidden, rank = c.size("hidden_size"), c.size("adapter_rank")
    attention: dict[str, Shape] = {}
    mlp: dict[str, Shape] = {}
    for turn in turns:
        path = f"shared_transformer.feed_forward.gate_up_proj_adapter_list.{turn}"
        mlp |= {f"{path}.0.weight": (rank, hidden), f"{path}.1.weight": (2 * width, rank)}
        if c.flag("use_shared_attention_adapter"):
            for part in ("q", "k", "v"):
                path = f"shared_transformer.self_attn.linear_{part}_adapter_list.{turn}"
                attention |= {f"{path}.0.weight": (rank, 2 * hidden), f"{path}.1.weight": (2 * hidden, rank)}
    return (*extras("attention", attention), *extras("mlp", mlp))


def zamba_names(path: str, **more: Any) -> Names:
    return Names(
        recurrent="mamba",
        attention=f"{path}.self_attn",
        mlp=f"{path}.feed_forward",
        final_norm="model.final_layernorm",
        **more,
    )


SPECIAL: dict[str, Family] = {
    "deepseek_v4": Family(
        mixer=v4_mixer,
        ffn=v4_moe,
        own={"num_hash_layers": 3, "compress_ratios": None},
        extras=v4_extras,
        layer_extras=v4_layer_extras,
        prediction=v4_prediction,
    ),
    "gemma3n_text": Family(
        mixer=gemma3n_attention,
        ffn=gemma3n_mlp,
        norms=GEMMA_NORMS,
        extras=gemma3n_extras,
        layer_extras=gemma3n_layer_extras,
    ),
    "gemma4_text": Family(
        mixer=gemma4_attention,
        ffn=gemma4_ffn,
        norms=GEMMA_NORMS,
        names=Names(router="router.proj", expert="experts.{expert}"),
        own={"global_head_dim": 512, "num_global_key_value_heads": None},
        extras=lambda c: per_layer_extras(c) if c.maybe("hidden_size_per_layer_input", 0) else (),
        layer_extras=gemma4_layer_extras,
    ),
    "nemotron-nas": Family(
        mixer=nas_mixer,
        ffn=nas_ffn,
        norms=nas_norms,
        defaults="llama",
        own={"block_configs": None},
        layer_extras=nas_extras,
    ),
    "zamba": Family(
        mixer=zamba_mamba,
        ffn=lambda c, i: None,
        norms=("input_layernorm",),
        names=zamba_names("shared_transf"),
        shared=zamba_shared,
        layer_extras=zamba_linear,
    ),
    "zamba2": Family(
        mixer=zamba2_mamba,
        ffn=lambda c, i: None,
        norms=("input_layernorm",),
        names=zamba_names("shared_transformer", packed={"gate_up_proj": ("gate_proj", "up_proj")}),
        shared=zamba2_shared,
        layer_extras=zamba_linear,
    ),
}
