"""Language models that come only inside a model of images or sound, and those that wrap nothing but hold a tower."""

from calc.errors import ConfigError
from calc.families.dense import GLM_NAMES
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    PACKED_QKV,
    QKV,
    TWO_NORMS,
    Family,
    attention_bias,
    deepseek_ffn,
    extras,
    gated,
    gqa,
    is_sparse,
    moe,
    one_window,
    plain_gqa,
    shared_mlp,
    shared_width,
    squared,
    window,
)
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.feedforward import FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.names import Names


def shared_width_gqa(c: Fields, layer: int) -> GQA:
    """Whatever head_dim says, heads share the hidden size."""
    return gqa(c, d_head=shared_width(c, "hidden_size", "num_attention_heads"), bias=attention_bias(c))


def ernie_vl_ffn(c: Fields, layer: int) -> FeedForward:
    """ERNIE 4.5 VL: as many narrower experts again, which only tokens of images pass through."""
    if not is_sparse(c, layer, 1):
        return gated(c, bias="use_bias")
    widths = c.get("moe_intermediate_size") or [1536, 512]
    if not isinstance(widths, list) or len(widths) != 2:
        raise ConfigError(
            "moe_intermediate_size must list two widths, of the experts for text and for images.",
            "moe_intermediate_size",
        )
    text, image = (c.with_stated("moe_intermediate_size", width) for width in widths)
    return moe(
        text,
        "moe_num_experts",
        "moe_intermediate_size",
        top_k="moe_k",
        shared=shared_mlp(text, "moe_num_shared_experts", bias="use_bias"),
        image_expert=gated(image, width="moe_intermediate_size", bias=None),
    )


def ernie_vl_routers(c: Fields, layer: int) -> tuple[Extra, ...]:
    """A bias that balances load for each kind of expert."""
    if not is_sparse(c, layer, 1):
        return ()
    return extras("router", {"mlp.moe_statics.e_score_correction_bias": (2, c.size("moe_num_experts"))})


def aria_moe(c: Fields, layer: int) -> MoE:
    shared = shared_mlp(c, "moe_num_shared_experts", "intermediate_size", bias="mlp_bias")
    return moe(c, "moe_num_experts", "intermediate_size", top_k="moe_topk", shared=shared, stacked="module_in_out")


def chameleon_attention(c: Fields, layer: int) -> GQA:
    return gqa(
        c,
        d_head=shared_width(c, "hidden_size", "num_attention_heads"),
        bias=attention_bias(c),
        qk_norm="heads",
        qk_norm_bias=True,
    )


def ada_norm(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Voxtral Realtime scales the feed-forward's input by how far the text lags behind the sound."""
    hidden, rank = c.size("hidden_size"), 32
    shapes = {"ada_rms_norm.linear1.weight": (rank, hidden), "ada_rms_norm.linear2.weight": (hidden, rank)}
    return extras("norms", shapes)


def molmo_attention(c: Fields, layer: int) -> GQA:
    qk_norm = "head" if c.get("qk_norm_type") == "qwen3" else "full"
    return gqa(c, bias=QKV if c.flag("attention_bias") else frozenset(), qk_norm=qk_norm)


def molmo_words(c: Fields) -> tuple[Extra, ...]:
    """Words that stand for images: in the embedding, not in the head."""
    shape = (c.size("additional_vocab_size"), c.size("hidden_size"))
    return extras("embedding", {"model.transformer.wte.new_embedding": shape})


def muse_window(c: Fields, layer: int) -> int | None:
    """Every fourth layer keeps all, counted back from the last."""
    back = c.size("num_hidden_layers") - 1 - layer
    return window(c, layer, "sliding_attention" if back % 4 else "full_attention")


def muse_attention(c: Fields, layer: int) -> GQA:
    return gqa(c, bias=attention_bias(c), gate="channels", window=muse_window(c, layer))


def muse_spark_ffn(c: Fields, layer: int) -> FeedForward:
    """The experts work in a width of their own."""
    if not is_sparse(c, layer, 0):
        return gated(c, bias=None)
    return moe(
        c,
        "num_local_experts",
        "moe_intermediate_size",
        latent=c.size("moe_hidden_size"),
        router_correction="buffer",
        stacked="out_in",
    )


def muse_spark_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Gates of the residual stream, and the norms round the experts."""
    gates = ("post_attention_residual_gate.gate", "post_feedforward_residual_gate.gate")
    found = extras("other", {name: (c.size("hidden_size"),) for name in gates})
    if is_sparse(c, layer, 0):
        norms = ("mlp.pre_expert_norm.weight", "mlp.experts.post_expert_norm.weight")
        found += extras("norms", {name: (c.size("moe_hidden_size"),) for name in norms})
    return found


VOXTRAL = {
    "vocab_size": 131072,
    "hidden_size": 3072,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": 8192,
}
"""What its wrapper puts where a config leaves it out."""
MULTIMODAL: dict[str, Family] = {
    "phi4_multimodal": Family(
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=gated,
        names=Names(packed={"qkv_proj": PACKED_QKV, "gate_up_proj": GATE_UP}),
    ),
    "glm_ocr_text": Family(
        mixer=lambda c, i: gqa(c),
        ffn=gated,
        norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        names=GLM_NAMES,
    ),
    "paddleocr_vl_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "use_bias")), ffn=lambda c, i: gated(c, bias="use_bias")
    ),
    "ernie4_5_vl_moe_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "use_bias")),
        ffn=ernie_vl_ffn,
        layer_extras=ernie_vl_routers,
    ),
    "deepseek_ocr2_text": Family(
        mixer=shared_width_gqa,
        ffn=lambda c, i: deepseek_ffn(c, i, correction="none", bias="mlp_bias"),
        kernels=Kernels(fp32_weights=True),
        own={"first_k_dense_replace": 0},
    ),
    "unlimited_ocr_text": Family(  # the prompt stays in the cache whole; what is generated slides
        mixer=shared_width_gqa,
        ffn=lambda c, i: deepseek_ffn(c, i, correction="none", bias="mlp_bias"),
        kernels=Kernels(fp32_weights=True),
        own={"first_k_dense_replace": 1},
    ),
    "hunyuan_vl_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=lambda c, i: gated(c, bias=None),
        names=Names(renamed={"q_norm": "query_layernorm", "k_norm": "key_layernorm"}),
    ),
    "granite_docling_text": Family(mixer=plain_gqa, ffn=gated),
    "granite4_vision_text": Family(mixer=plain_gqa, ffn=gated),
    "cosmos3_edge_text": Family(
        mixer=plain_gqa,
        ffn=squared,
        kernels=Kernels(activation="squared"),
        ties=False,
        names=Names(
            embedding="embed_tokens",
            layer="layers.{layer}",
            final_norm="norm",
            renamed={"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "o_proj": "to_out"},
        ),
    ),
    "voxtral_realtime_text": Family(
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=lambda c, i: gated(c, bias=None),
        layer_extras=ada_norm,
        own=VOXTRAL,
    ),
    "aria_text": Family(
        mixer=plain_gqa,
        ffn=aria_moe,
        names=Names(
            router="mlp.router",
            expert="mlp.experts",
            expert_packed={"fc1": GATE_UP},
            expert_renamed={"down_proj": "fc2"},
        ),
    ),
    "emu3_text_model": Family(
        mixer=plain_gqa,
        ffn=gated,
        own={"mlp_bias": False, "attention_bias": False},
        names=Names(
            embedding="text_model.model.embed_tokens",
            layer="text_model.model.layers.{layer}",
            final_norm="text_model.model.norm",
            lm_head="text_model.lm_head",
        ),
    ),
    "chameleon": Family(mixer=chameleon_attention, ffn=gated),
    "molmo2_text": Family(
        mixer=molmo_attention,
        ffn=lambda c, i: gated(c, bias=None),
        norms=("attn_norm", "ff_norm"),
        extras=molmo_words,
        ties=False,
        names=Names(
            embedding="model.transformer.wte.embedding",
            layer="model.transformer.blocks.{layer}",
            final_norm="model.transformer.ln_f",
            packed={"att_proj": PACKED_QKV, "ff_proj": ("up_proj", "gate_proj")},
            renamed={"o_proj": "attn_out", "down_proj": "ff_out"},
        ),
    ),
    "cohere_compass_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=window(c, i)),
        ffn=lambda c, i: gated(c, bias=None),
        norms=("input_layernorm",),
        kernels=Kernels(norm="centred"),
    ),
    "muse_glimmer_text": Family(
        mixer=muse_attention,
        ffn=lambda c, i: gated(c, bias=None),
        norms=GEMMA_NORMS,
        names=Names(renamed={"g_proj": "gate_proj"}),
        kernels=Kernels(norm="rms32", capped_logits=True),
    ),
    "muse_spark_text": Family(
        mixer=muse_attention,
        ffn=muse_spark_ffn,
        norms=("input_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
        names=Names(
            expert="mlp.experts",
            expert_packed={"gate_up_proj": GATE_UP},
            renamed={
                "g_proj": "gate_proj",
                "fc1_latent_proj": "pre_expert_proj",
                "fc2_latent_proj": "post_expert_proj",
            },
        ),
        layer_extras=muse_spark_extras,
        ties=False,
        kernels=Kernels(norm="rms32", capped_logits=True),
    ),
}
