"""Families with recurrent mixers, alone or between or beside attention."""

from typing import Any

from calc.architecture import Block, Extra, PredictionModule
from calc.attention import GQA
from calc.errors import ConfigError
from calc.families.reading import (
    POST_NORMS,
    Family,
    attention_bias,
    every,
    gated,
    gqa,
    is_sparse,
    kind,
    mla,
    moe,
    next_layers,
    plain,
    plain_gqa,
    shared_mlp,
    shared_width,
)
from calc.families.sparse import GRANITE_MOE_NAMES, gated_shared_moe, granite_moe, qwen2_moe
from calc.feedforward import MLP, FeedForward, MoE
from calc.fields import Fields
from calc.mixers import Mixer
from calc.names import Names
from calc.recurrent import GatedDeltaNet, GatedLRU, KimiDelta, LightningAttention, Mamba, Mamba2, ShortConv

# Recurrent mixers by the field names of their families


def mamba(c: Fields, layer: int = 0) -> Mamba:
    stated = c.maybe("intermediate_size") if "intermediate_size" in c.stated else None
    hidden = c.size("hidden_size")
    rank = c.get("time_step_rank")
    return Mamba(
        d_inner=stated or c.size("expand") * hidden,
        d_state=c.size("state_size"),
        d_conv=c.size("conv_kernel"),
        dt_rank=-(-hidden // 16) if rank == "auto" else c.size("time_step_rank"),
        conv_bias=c.flag("use_conv_bias"),
        bias=c.flag("use_bias"),
    )


def mamba2(c: Fields, layer: int = 0) -> Mamba2:
    return Mamba2(
        n_heads=c.size("num_heads"),
        d_head=c.size("head_dim"),
        d_state=c.size("state_size"),
        n_groups=c.size("n_groups"),
        d_conv=c.size("conv_kernel"),
        conv_bias=c.flag("use_conv_bias"),
        bias=c.flag("use_bias"),
    )


def bamba_mamba2(c: Fields, layer: int = 0, **extra: Any) -> Mamba2:
    """As Bamba, Granite 4 and Falcon-H1 name it; `mamba_d_head` may be left to the others."""
    n_heads = c.size("mamba_n_heads")
    inner = c.maybe("mamba_d_ssm") or c.size("mamba_expand") * c.size("hidden_size")
    d_head = inner // n_heads if c.get("mamba_d_head") == "auto" else c.size("mamba_d_head")
    return Mamba2(
        n_heads=n_heads,
        d_head=d_head,
        d_state=c.size("mamba_d_state"),
        n_groups=c.size("mamba_n_groups"),
        d_conv=c.size("mamba_d_conv"),
        conv_bias=c.flag("mamba_conv_bias"),
        bias=c.flag("mamba_proj_bias"),
        **extra,
    )


def falcon_h1_mamba2(c: Fields) -> Mamba2:
    return bamba_mamba2(c, norm=c.flag("mamba_rms_norm"), out_bias=c.flag("projectors_bias"))


def jamba_mamba(c: Fields) -> Mamba:
    hidden = c.size("hidden_size")
    return Mamba(
        d_inner=c.size("mamba_expand") * hidden,
        d_state=c.size("mamba_d_state"),
        d_conv=c.size("mamba_d_conv"),
        dt_rank=-(-hidden // 16) if c.get("mamba_dt_rank") == "auto" else c.size("mamba_dt_rank"),
        conv_bias=c.flag("mamba_conv_bias"),
        bias=c.flag("mamba_proj_bias"),
        inner_norms=True,
    )


def delta_net(c: Fields) -> GatedDeltaNet:
    return GatedDeltaNet(
        n_k=c.size("linear_num_key_heads"),
        n_v=c.size("linear_num_value_heads"),
        d_k=c.size("linear_key_head_dim"),
        d_v=c.size("linear_value_head_dim"),
        d_conv=c.size("linear_conv_kernel_dim"),
    )


def olmo_delta_net(c: Fields) -> GatedDeltaNet:
    heads = c.size("num_attention_heads")
    n_k = c.maybe("linear_num_key_heads") or heads
    d_k = c.maybe("linear_key_head_dim") or 3 * c.size("hidden_size") // (4 * n_k)
    return GatedDeltaNet(
        n_k=n_k,
        n_v=c.maybe("linear_num_value_heads") or heads,
        d_k=d_k,
        d_v=c.maybe("linear_value_head_dim") or 2 * d_k,
        d_conv=c.size("linear_conv_kernel_dim"),
    )


# Which layer is what


def qwen_next_mixer(c: Fields, layer: int) -> Mixer:
    """Gated delta nets, and gated attention in every fourth layer."""
    default = every(c, layer, c.size("full_attention_interval"), "linear_attention")
    if kind(c, layer, default) != "full_attention":
        return delta_net(c)
    return gqa(c, bias=attention_bias(c), qk_norm="head", gated=True)


def qwen_next_prediction_mixer(c: Fields) -> GQA:
    return gqa(c, bias=attention_bias(c), qk_norm="head", gated=True)


def jamba_attends(c: Fields, layer: int) -> bool:
    return layer % c.size("attn_layer_period") == c.size("attn_layer_offset", 0)


def jamba_ffn(c: Fields, layer: int) -> FeedForward:
    sparse = c.size("num_experts") > 1
    if sparse and layer % c.size("expert_layer_period") == c.size("expert_layer_offset", 0):
        return moe(c, "num_experts", "intermediate_size")
    return gated(c)


def granite_hybrid_ffn(c: Fields, layer: int) -> FeedForward:
    shared = MLP(intermediate=c.size("shared_intermediate_size"))
    if not c.size("num_local_experts", 0):
        return shared
    return granite_moe(c, layer, shared)


def lfm2_mixer(c: Fields, layer: int) -> Mixer:
    full = c.indices("full_attn_idxs") if c.get("full_attn_idxs") is not None else None
    default = "full_attention" if full is None or layer in full else "conv"
    if kind(c, layer, default) == "full_attention":
        return gqa(c, qk_norm="head", d_head=shared_width(c, "hidden_size", "num_attention_heads"))
    return ShortConv(d_inner=c.size("hidden_size"), d_conv=c.size("conv_L_cache"), bias=c.flag("conv_bias"))


def lfm2_ffn(c: Fields, layer: int) -> MLP:
    """The width is cut to two thirds and rounded up where `block_auto_adjust_ff_dim` says so."""
    width = c.maybe("block_ff_dim") or c.size("intermediate_size")
    if c.flag("block_auto_adjust_ff_dim"):
        multiple, multiplier = c.size("block_multiple_of"), c.get("block_ffn_dim_multiplier")
        width = 2 * width // 3
        if isinstance(multiplier, int | float) and not isinstance(multiplier, bool) and 0 < multiplier < 1000:
            width = int(multiplier * width)
        width = -(-width // multiple) * multiple
    return MLP(intermediate=width)


def lfm2_moe_ffn(c: Fields, layer: int) -> FeedForward:
    if layer < c.size("num_dense_layers", 0):
        return gated(c)
    correction = "buffer" if c.flag("use_expert_bias") else "none"
    return moe(c, "num_experts", "moe_intermediate_size", router_correction=correction)


def kimi_full_layers(c: Fields) -> frozenset[int] | None:
    """`linear_attn_config` counts layers from 1."""
    stated = c.get("linear_attn_config")
    return (
        None if not isinstance(stated, dict) else frozenset(i - 1 for i in c.within(stated).indices("full_attn_layers"))
    )


def kimi_mixer(c: Fields, layer: int) -> Mixer:
    full = kimi_full_layers(c)
    attends = layer in full if full is not None else layer > 0 and layer % 4 == 0
    default = "full_attention" if attends else "linear_attention"
    if kind(c, layer, default) == "full_attention":
        return mla(c)
    stated = c.get("linear_attn_config")
    linear = c.within(stated if isinstance(stated, dict) else {})
    return KimiDelta(
        n_heads=linear.maybe("num_heads") or c.size("linear_num_heads"),
        d_head=linear.maybe("head_dim") or c.size("linear_head_dim"),
        d_conv=linear.maybe("short_conv_kernel_size") or c.size("linear_conv_kernel_dim"),
    )


def kimi_moe(c: Fields) -> MoE:
    shared = shared_mlp(c)
    return moe(c, "num_local_experts", "moe_intermediate_size", shared=shared, router_correction="buffer")


def kimi_ffn(c: Fields, layer: int) -> FeedForward:
    return kimi_moe(c) if is_sparse(c, layer, c.size("first_k_dense_replace", 0)) else gated(c)


def bailing_mixer(c: Fields, layer: int) -> Mixer:
    default = every(c, layer, c.size("layer_group_size"), "linear_attention")
    if kind(c, layer, default) == "full_attention":
        return bailing_attention(c)
    return KimiDelta(
        n_heads=c.maybe("linear_num_heads") or c.size("num_attention_heads"),
        d_head=c.maybe("linear_head_dim") or 128,
        d_conv=c.size("short_conv_kernel_size"),
        low_rank_gates=False,
    )


def bailing_attention(c: Fields) -> Mixer:
    return mla(c, head_gate=True)


def minimax_mixer(c: Fields, layer: int) -> Mixer:
    default = "full_attention" if (layer + 1) % 2 else "linear_attention"
    if kind(c, layer, default) == "full_attention":
        return gqa(c)
    attention = gqa(c)
    return LightningAttention(n_heads=attention.n_q, d_head=attention.d_head)


def lightning_decays(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The decays of lightning attention, computed once and kept as buffers."""
    mixer = minimax_mixer(c, layer)
    if not isinstance(mixer, LightningAttention):
        return ()
    n, block = mixer.n_heads, c.size("block_size")
    shapes = {
        "slope_rate": (n, 1, 1),
        "query_decay": (n, block, 1),
        "key_decay": (n, 1, block),
        "diagonal_decay": (1, n, block, block),
    }
    return tuple(
        Extra(name=f"self_attn.{name}", shape=shape, component="ssm_linear", apart="persistent_buffers")
        for name, shape in shapes.items()
    )


def recurrent_gemma_mixer(c: Fields, layer: int) -> Mixer:
    kinds = c.get("block_types")
    if not isinstance(kinds, list) or not kinds or not all(word in ("recurrent", "attention") for word in kinds):
        raise ConfigError("block_types must list “recurrent” and “attention”, which then repeat.", "block_types")
    heads = c.size("num_attention_heads")
    if kinds[layer % len(kinds)] == "attention":
        return gqa(
            c,
            bias=attention_bias(c) | {"o_proj"},
            window=c.size("attention_window_size"),
        )
    width = c.maybe("lru_width") or c.size("hidden_size")
    return GatedLRU(n_blocks=heads, d_block=width // heads, d_conv=c.size("conv1d_width"))


NEMOTRON_KINDS = ["mamba", "moe", "attention", "mlp"]
"""The class's default."""
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_layers(c: Fields) -> int:
    """`num_hidden_layers` is ignored where the layers are listed, and where nothing is: then there are four."""
    listed = c.get("layers_block_type")
    if isinstance(listed, list) and listed:
        return len(listed)
    return c.size("num_hidden_layers") if isinstance(c.get("hybrid_override_pattern"), str) else len(NEMOTRON_KINDS)


def nemotron_kinds(c: Fields) -> list[str]:
    """What each layer is: letters in `hybrid_override_pattern`, or words."""
    layers = nemotron_layers(c)
    pattern = c.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        if len(pattern) != layers or not set(pattern) <= set(LETTERS):
            raise ConfigError(
                f"hybrid_override_pattern must have one of the letters M * - E for each of {layers:,} layers.",
                "hybrid_override_pattern",
            )
        return [LETTERS[letter] for letter in pattern]
    words = ("linear_attention", "mamba", "full_attention", "attention", "mlp", "moe")
    listed = c.per_layer("layers_block_type", layers, words) or NEMOTRON_KINDS
    return [{"linear_attention": "mamba", "full_attention": "attention"}.get(word, word) for word in listed]


def nemotron_mixer(c: Fields, layer: int) -> Mixer | None:
    what = nemotron_kinds(c)[layer]
    if what == "attention":
        stated = c.maybe("attention_head_dim") or c.maybe("head_dim")
        return gqa(c, d_head=stated)
    if what != "mamba":
        return None
    return Mamba2(
        n_heads=c.size("mamba_num_heads"),
        d_head=c.size("mamba_head_dim"),
        d_state=c.size("ssm_state_size"),
        n_groups=c.size("n_groups"),
        d_conv=c.size("conv_kernel"),
        conv_bias=c.flag("use_conv_bias"),
        bias=c.flag("use_bias"),
    )


def nemotron_ffn(c: Fields, layer: int) -> FeedForward | None:
    what = nemotron_kinds(c)[layer]
    if what == "mlp":
        return plain(c, bias=c.flag("mlp_bias"))
    return nemotron_moe(c) if what == "moe" else None


def nemotron_moe(c: Fields) -> MoE:
    bias = c.flag("mlp_bias")
    shared = MLP(intermediate=c.size("moe_shared_expert_intermediate_size"), gated=False, bias=bias)
    return moe(
        c,
        "n_routed_experts",
        "moe_intermediate_size",
        gate=False,
        shared=shared,
        router_correction="buffer",
        latent=c.maybe("moe_latent_size"),
        latent_bias=bias,
    )


def nemotron_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    """An attention layer and one with experts for each further token."""
    after = nemotron_layers(c)
    mixer = gqa(c, d_head=c.maybe("attention_head_dim") or c.maybe("head_dim"))
    return tuple(
        PredictionModule(
            block=Block(layers=(after + i,), mixers=(mixer,), ffn=nemotron_moe(c), norms=("norm", "moe_norm")),
            norms=("enorm", "hnorm", "final_layernorm"),
        )
        for i in range(c.maybe("num_nextn_predict_layers", 0) or 0)
    )


FF_NORMS = ("input_layernorm", "pre_ff_layernorm")
LFM2_NAMES = Names(
    recurrent="conv",
    mlp="feed_forward",
    router="feed_forward.gate",
    correction="feed_forward.expert_bias",
    expert="feed_forward.experts.{expert}",
    final_norm="model.embedding_norm",
    renamed={
        "o_proj": "out_proj",
        "q_norm": "q_layernorm",
        "k_norm": "k_layernorm",
        "gate_proj": "w1",
        "up_proj": "w3",
        "down_proj": "w2",
    },
)
MAMBA_NAMES = Names(
    embedding="backbone.embeddings",
    layer="backbone.layers.{layer}",
    recurrent="mixer",
    attention="mixer",
    mlp="mixer",
    router="mixer.gate",
    correction="mixer.gate.e_score_correction_bias",
    expert="mixer.experts.{expert}",
    shared_expert="mixer.shared_experts",
    final_norm="backbone.norm_f",
)
BAMBA_NAMES = Names(recurrent="mamba", mlp="feed_forward", final_norm="model.final_layernorm")
KIMI_NAMES = Names(
    recurrent="self_attn",
    router="block_sparse_moe.gate",
    correction="block_sparse_moe.gate.e_score_correction_bias",
    expert="block_sparse_moe.experts.{expert}",
    shared_expert="block_sparse_moe.shared_experts",
    expert_renamed={"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
)
BAILING_NAMES = Names(
    embedding="model.word_embeddings",
    attention="attention",
    recurrent="attention",
    correction="mlp.gate.expert_bias",
    renamed={"o_proj": "dense"},
)
CONVS = ("q_conv1d", "k_conv1d", "v_conv1d")
QWEN_NEXT_NAMES = Names(
    shared_expert="mlp.shared_expert",
    packed={"in_proj_qkvz": ("in_q", "in_k", "in_v", "in_z"), "in_proj_ba": ("in_b", "in_a"), "conv1d": CONVS},
)
QWEN35_NAMES = Names(
    shared_expert="mlp.shared_expert",
    packed={"in_proj_qkv": ("in_q", "in_k", "in_v"), "conv1d": CONVS},
    renamed={"in_z": "in_proj_z", "in_b": "in_proj_b", "in_a": "in_proj_a"},
)
OLMO_HYBRID_NAMES = Names(
    renamed={f"in_{letter}": f"{letter}_proj" for letter in "qkvba"}
    | {"in_z": "g_proj", "norm": "o_norm", "out_proj": "o_proj"},
)

HYBRID: dict[str, Family] = {
    "mamba": Family(
        mixer=mamba, ffn=lambda c, i: None, norms=("norm",), names=MAMBA_NAMES, own={"max_position_embeddings": None}
    ),
    "falcon_mamba": Family(
        mixer=mamba, ffn=lambda c, i: None, norms=("norm",), names=MAMBA_NAMES, own={"max_position_embeddings": None}
    ),
    "mamba2": Family(
        mixer=mamba2, ffn=lambda c, i: None, norms=("norm",), names=MAMBA_NAMES, own={"max_position_embeddings": None}
    ),
    "jamba": Family(
        mixer=lambda c, i: gqa(c) if jamba_attends(c, i) else jamba_mamba(c),
        ffn=jamba_ffn,
        norms=FF_NORMS,
        names=Names(
            recurrent="mamba",
            mlp="feed_forward",
            router="feed_forward.router",
            expert="feed_forward.experts.{expert}",
            final_norm="model.final_layernorm",
        ),
    ),
    "bamba": Family(
        mixer=lambda c, i: plain_gqa(c, i) if i in c.indices("attn_layer_indices") else bamba_mamba2(c),
        ffn=gated,
        norms=FF_NORMS,
        names=BAMBA_NAMES,
    ),
    "falcon_h1": Family(
        mixer=lambda c, i: (plain_gqa(c, i), falcon_h1_mamba2(c)),
        ffn=gated,
        norms=FF_NORMS,
        names=BAMBA_NAMES,
        own={"head_dim": None},
    ),
    "granitemoehybrid": Family(
        mixer=lambda c, i: (
            bamba_mamba2(c) if kind(c, i, "linear_attention") in ("linear_attention", "mamba") else plain_gqa(c, i)
        ),
        ffn=granite_hybrid_ffn,
        names=GRANITE_MOE_NAMES,
    ),
    "lfm2": Family(
        mixer=lfm2_mixer,
        ffn=lfm2_ffn,
        norms=("operator_norm", "ffn_norm"),
        names=LFM2_NAMES,
        own={"block_ff_dim": None},
        aliases={"tie_embedding": "tie_word_embeddings"},
    ),
    "lfm2_moe": Family(
        mixer=lfm2_mixer,
        ffn=lfm2_moe_ffn,
        norms=("operator_norm", "ffn_norm"),
        names=LFM2_NAMES,
        aliases={"tie_embedding": "tie_word_embeddings"},
    ),
    "qwen3_next": Family(
        mixer=qwen_next_mixer,
        ffn=qwen2_moe,
        names=QWEN_NEXT_NAMES,
        own={"full_attention_interval": 4},
    ),
    "qwen3_5_text": Family(
        mixer=qwen_next_mixer,
        ffn=gated,
        names=QWEN35_NAMES,
        own={"full_attention_interval": 4, "mtp_num_hidden_layers": 0},
        prediction=lambda c: next_layers(
            c, qwen_next_prediction_mixer(c), gated(c), "mtp_num_hidden_layers", own_tables=False
        ),
    ),
    "qwen3_5_moe_text": Family(
        mixer=qwen_next_mixer,
        ffn=lambda c, i: gated_shared_moe(c),
        names=QWEN35_NAMES,
        own={"full_attention_interval": 4, "mtp_num_hidden_layers": 0},
        prediction=lambda c: next_layers(
            c, qwen_next_prediction_mixer(c), gated_shared_moe(c), "mtp_num_hidden_layers", own_tables=False
        ),
    ),
    "olmo_hybrid": Family(
        mixer=lambda c, i: (
            gqa(c, bias=attention_bias(c), qk_norm="full")
            if kind(c, i, every(c, i, 4, "linear_attention")) == "full_attention"
            else olmo_delta_net(c)
        ),
        ffn=gated,
        norms=lambda c, i: (
            POST_NORMS
            if kind(c, i, every(c, i, 4, "linear_attention")) == "full_attention"
            else ("attention_layer_norm", "feedforward_layer_norm")
        ),
        names=OLMO_HYBRID_NAMES,
    ),
    "kimi_linear": Family(
        mixer=kimi_mixer, ffn=kimi_ffn, own={"first_k_dense_replace": 1}, ties=False, names=KIMI_NAMES
    ),
    "bailing_hybrid": Family(
        mixer=bailing_mixer,
        ffn=kimi_ffn,
        own={"q_lora_rank": None, "linear_head_dim": None, "linear_num_heads": None},
        ties=False,
        names=BAILING_NAMES,
        prediction=lambda c: next_layers(
            c, bailing_attention(c), kimi_moe(c), "num_nextn_predict_layers", own_tables=False
        ),
    ),
    "minimax": Family(
        mixer=minimax_mixer,
        ffn=lambda c, i: moe(c, "num_local_experts", "intermediate_size"),
        names=Names(recurrent="self_attn"),
        layer_extras=lightning_decays,
    ),
    "recurrent_gemma": Family(
        mixer=recurrent_gemma_mixer,
        ffn=lambda c, i: MLP(intermediate=c.size("intermediate_size") // 2, bias=True),
        norms=("temporal_pre_norm", "channel_pre_norm"),
        names=Names(
            attention="temporal_block", recurrent="temporal_block", mlp="mlp_block", final_norm="model.final_norm"
        ),
    ),
    "nemotron_h": Family(
        mixer=nemotron_mixer,
        ffn=nemotron_ffn,
        count=nemotron_layers,
        ties=False,
        norms=("norm",),
        names=MAMBA_NAMES,
        own={"num_hidden_layers": None, "hybrid_override_pattern": None, "attention_head_dim": None},
        prediction=nemotron_prediction,
    ),
}
