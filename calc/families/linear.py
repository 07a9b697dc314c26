"""Families with linear attention, short convolutions or gated recurrences between attention."""

from calc.errors import ConfigError
from calc.families.family import (
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
    shared_mlp,
    shared_width,
    window,
)
from calc.families.fields import Fields
from calc.families.sparse import MIXTRAL_NAMES, gated_shared_moe, local_moe, qwen2_moe
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.linear_attention import GatedDeltaNet, KimiDelta, LightningAttention
from calc.model.mixers import Mixer
from calc.model.names import Names
from calc.model.recurrent import GatedLRU, ShortConv


def delta_net(c: Fields) -> GatedDeltaNet:
    return GatedDeltaNet(
        n_k=c.size("linear_num_key_heads"),
        n_v=c.size("linear_num_value_heads"),
        d_k=c.size("linear_key_head_dim"),
        d_v=c.size("linear_value_head_dim"),
        d_conv=c.size("linear_conv_kernel_dim"),
    )


def qwen35_mixer(c: Fields, layer: int) -> Mixer:
    """Qwen3-Next's; the published configs ask for an fp32 state (`mamba_ssm_dtype`)."""
    mixer = qwen_next_mixer(c, layer)
    return mixer.model_copy(update={"fp32_state": True}) if isinstance(mixer, GatedDeltaNet) else mixer


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


def olmo_attends(c: Fields, layer: int) -> bool:
    """Every fourth layer, and the last one of a model that has no fourth."""
    layers = c.size("num_hidden_layers")
    default = every(c, layer, min(4, layers), "linear_attention")
    return kind(c, layer, default) == "full_attention"


def qwen_next_mixer(c: Fields, layer: int) -> Mixer:
    """Gated delta nets, and gated attention in every fourth layer."""
    default = every(c, layer, c.size("full_attention_interval"), "linear_attention")
    if kind(c, layer, default) != "full_attention":
        return delta_net(c)
    return gqa(c, bias=attention_bias(c), qk_norm="head", gated=True)


def qwen_next_prediction_mixer(c: Fields) -> GQA:
    return gqa(c, bias=attention_bias(c), qk_norm="head", gated=True)


def lfm2_mixer(c: Fields, layer: int) -> Mixer:
    full = c.indices("full_attn_idxs") if c.get("full_attn_idxs") is not None else None
    default = "full_attention" if full is None or layer in full else "conv"
    if kind(c, layer, default) == "full_attention":
        return gqa(c, qk_norm="head", d_head=shared_width(c, "hidden_size", "num_attention_heads"))
    return ShortConv(d_inner=c.size("hidden_size"), d_conv=c.size("conv_L_cache"), bias=c.flag("conv_bias"))


def lfm3_mixer(c: Fields, layer: int) -> Mixer:
    """Of four layers one keeps all, one slides, two are short convolutions."""
    default = ("sliding_attention" if layer else "conv", "conv", "full_attention", "conv")[layer % 4]
    if kind(c, layer, default) == "conv":
        return ShortConv(d_inner=c.size("hidden_size"), d_conv=c.size("conv_L_cache"), bias=c.flag("conv_bias"))
    gate = "heads" if c.flag("use_attention_gate") else "none"
    return gqa(c, bias=attention_bias(c), qk_norm="head", gate=gate, window=window(c, layer, default))


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
        d_head=c.maybe("linear_head_dim") or c.size("head_dim"),
        d_conv=c.maybe("linear_conv_kernel_dim") or c.size("short_conv_kernel_size"),
        low_rank_gates=False,
    )


def bailing_attention(c: Fields) -> Mixer:
    return mla(c, gate="heads")


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
        "key_decay": (n, block, 1),
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
    expert_renamed={"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
)


LFM3_NORMS = ("operator_norm", "ffn_norm", "post_operator_norm", "post_ffn_norm")


LFM3_NAMES = Names(
    recurrent="conv",
    mlp="feed_forward",
    final_norm="model.embedding_norm",
    renamed={"g_proj": "gate_proj", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
)


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


LINEAR: dict[str, Family] = {
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
        kernels=Kernels(fp32_weights=False, fp32_router=False),
    ),
    "lfm3": Family(
        mixer=lfm3_mixer,
        ffn=lambda c, i: gated(c, bias=None),
        norms=lambda c, i: LFM3_NORMS if c.flag("use_sandwich_norm") else LFM3_NORMS[:2],
        own={"use_sandwich_norm": True, "use_attention_gate": True},
        names=LFM3_NAMES,
    ),
    "qwen3_next": Family(
        mixer=qwen_next_mixer,
        ffn=qwen2_moe,
        names=QWEN_NEXT_NAMES,
        own={"full_attention_interval": 4},
        kernels=Kernels(norm="rms32", shared_first=True),
    ),
    "qwen3_5_text": Family(
        mixer=qwen35_mixer,
        ffn=gated,
        names=QWEN35_NAMES,
        own={"full_attention_interval": 4, "mtp_num_hidden_layers": 0},
        prediction=lambda c: next_layers(
            c, qwen_next_prediction_mixer(c), gated(c), "mtp_num_hidden_layers", own_tables=False
        ),
        kernels=Kernels(norm="rms32"),
    ),
    "qwen3_5_moe_text": Family(
        mixer=qwen35_mixer,
        ffn=lambda c, i: gated_shared_moe(c),
        names=QWEN35_NAMES,
        own={"full_attention_interval": 4, "mtp_num_hidden_layers": 0},
        prediction=lambda c: next_layers(
            c, qwen_next_prediction_mixer(c), gated_shared_moe(c), "mtp_num_hidden_layers", own_tables=False
        ),
        kernels=Kernels(norm="rms32", shared_first=True),
    ),
    "olmo_hybrid": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="full") if olmo_attends(c, i) else olmo_delta_net(c),
        ffn=gated,
        norms=lambda c, i: POST_NORMS if olmo_attends(c, i) else ("attention_layer_norm", "feedforward_layer_norm"),
        names=OLMO_HYBRID_NAMES,
    ),
    "kimi_linear": Family(
        mixer=kimi_mixer, ffn=kimi_ffn, own={"first_k_dense_replace": 1}, ties=False, names=KIMI_NAMES
    ),
    "bailing_hybrid": Family(
        mixer=bailing_mixer,
        ffn=kimi_ffn,
        own={"q_lora_rank": None, "linear_head_dim": None, "linear_num_heads": None, "linear_conv_kernel_dim": None},
        ties=False,
        names=BAILING_NAMES,
        prediction=lambda c: next_layers(
            c, bailing_attention(c), kimi_moe(c), "num_nextn_predict_layers", own_tables=False
        ),
    ),
    "minimax": Family(
        mixer=minimax_mixer,
        ffn=local_moe,
        names=MIXTRAL_NAMES.model_copy(update={"recurrent": "self_attn"}),
        layer_extras=lightning_decays,
    ),
    "recurrent_gemma": Family(
        mixer=recurrent_gemma_mixer,
        ffn=lambda c, i: MLP(intermediate=c.size("intermediate_size") // 2, bias=True),
        norms=("temporal_pre_norm", "channel_pre_norm"),
        names=Names(
            attention="temporal_block", recurrent="temporal_block", mlp="mlp_block", final_norm="model.final_norm"
        ),
        kernels=Kernels(norm="rms32", capped_logits=True),
    ),
}
