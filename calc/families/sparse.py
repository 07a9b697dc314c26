"""Families with experts, all of whose layers have grouped-query attention."""

from typing import Any

from calc.architecture import Block, PredictionModule
from calc.attention import BlockIndexer
from calc.families.dense import exaone4_window, granite_swa_window
from calc.families.reading import (
    GATE_UP,
    NO_BIAS,
    PACKED_QKV,
    POST_NORMS,
    QKV,
    TWO_NORMS,
    Family,
    attention_bias,
    deepseek_ffn,
    deepseek_moe,
    every,
    gated,
    gqa,
    is_sparse,
    kind,
    moe,
    next_layers,
    one_window,
    plain_gqa,
    shared_mlp,
    shared_width,
    window,
)
from calc.feedforward import MLP, FeedForward, MoE
from calc.fields import Fields
from calc.mixers import Mixer
from calc.names import Names


def qwen_is_sparse(c: Fields, layer: int, experts: str = "num_experts") -> bool:
    step = c.size("decoder_sparse_step")
    return layer not in c.indices("mlp_only_layers") and c.size(experts, 0) > 0 and (layer + 1) % step == 0


def qwen_moe(c: Fields, layer: int) -> FeedForward:
    return moe(c, "num_experts", "moe_intermediate_size") if qwen_is_sparse(c, layer) else gated(c)


def qwen_vl_moe(c: Fields, layer: int) -> FeedForward:
    """All experts in one tensor."""
    if not qwen_is_sparse(c, layer):
        return gated(c)
    return moe(c, "num_experts", "moe_intermediate_size", stacked="in_out")


def qwen2_moe(c: Fields, layer: int) -> FeedForward:
    """With one shared expert behind a gate."""
    return gated_shared_moe(c) if qwen_is_sparse(c, layer) else gated(c)


def gated_shared_moe(c: Fields) -> MoE:
    shared = MLP(intermediate=c.size("shared_expert_intermediate_size"))
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, shared_gate=True)


def qwen2_moe_window(c: Fields, layer: int) -> int | None:
    if not c.flag("use_sliding_window"):
        return None
    slides = layer % 2 == 0 and layer < c.size("max_window_layers", 0)
    return window(c, layer, "sliding_attention" if slides else "full_attention")


def qwen3_moe_window(c: Fields, layer: int) -> int | None:
    return c.maybe("sliding_window") if c.flag("use_sliding_window") else None


def local_moe(c: Fields, layer: int, **extra: Any) -> MoE:
    return moe(c, "num_local_experts", "intermediate_size", **extra)


def granite_shared(c: Fields) -> MLP | None:
    width = c.maybe("shared_intermediate_size", 0)
    return MLP(intermediate=width) if width else None


def granite_moe(c: Fields, layer: int, shared: MLP | None = None) -> MoE:
    return local_moe(c, layer, shared=shared, stacked="module")


def ernie_ffn(c: Fields, layer: int) -> FeedForward:
    end = c.get("moe_layer_end_index")
    last = c.size("num_hidden_layers") - 1 if end == -1 else c.size("moe_layer_end_index", 0)
    inside = c.size("moe_layer_start_index", 0) <= layer <= last
    if not inside or (layer + 1) % c.size("moe_layer_interval"):
        return gated(c, bias="use_bias")
    shared = shared_mlp(c, "moe_num_shared_experts", bias="use_bias")
    return moe(c, "moe_num_experts", "moe_intermediate_size", top_k="moe_k", shared=shared, router_correction="row")


def ernie_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    after = c.size("num_hidden_layers")
    mixer, ffn = gqa(c, bias=attention_bias(c, "use_bias")), gated(c, bias="use_bias")
    return tuple(
        PredictionModule(
            block=Block(layers=(after + i,), mixers=(mixer,), ffn=ffn, norms=TWO_NORMS),
            norms=("mtp_emb_norm", "mtp_hidden_norm"),
            projection="mtp_linear_proj",
        )
        for i in range(c.maybe("num_nextn_predict_layers", 0) or 0)
    )


def hunyuan_moe(c: Fields, layer: int) -> MoE:
    """`moe_topk` may differ from layer to layer."""
    chosen = c.get("moe_topk")
    if isinstance(chosen, list):
        c = c.with_stated("moe_topk", chosen[layer] if layer < len(chosen) else None)
    shared = MLP(intermediate=c.size("intermediate_size"))
    return moe(c, "num_experts", "intermediate_size", top_k="moe_topk", shared=shared, fp32_weights=True)


def glm_attention(c: Fields, layer: int = 0) -> Mixer:
    bias = QKV if c.flag("attention_bias") else NO_BIAS
    return gqa(c, bias=bias, qk_norm="head" if c.flag("use_qk_norm") else "none")


def hy_v3_ffn(c: Fields, layer: int) -> FeedForward:
    return hy_v3_moe(c) if is_sparse(c, layer, 1) else gated(c)


def hy_v3_moe(c: Fields) -> MoE:
    shared = shared_mlp(c, "num_shared_experts", bias="mlp_bias")
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, router_correction="buffer")


def mimo_v2_is_full(c: Fields, layer: int) -> bool:
    pattern = c.get("hybrid_layer_pattern")
    if isinstance(pattern, list) and layer < len(pattern):
        return bool(pattern[layer] == 0)
    default = "full_attention" if layer == 0 else every(c, layer, 6, "sliding_attention")
    return kind(c, layer, default) == "full_attention"


def mimo_v2_attention(c: Fields, layer: int) -> Mixer:
    """Sliding layers have more KV heads, and sinks."""
    v, bias = c.size("v_head_dim"), QKV if c.flag("attention_bias") else NO_BIAS
    if mimo_v2_is_full(c, layer):
        return gqa(c, d_v=v, bias=bias)
    stated = c.maybe("sliding_window_size")
    reach = stated + 1 if stated is not None else c.size("sliding_window")
    kv = "swa_num_key_value_heads" if c.maybe("swa_num_key_value_heads") else "num_key_value_heads"
    return gqa(c, kv=kv, d_v=v, window=reach, sinks=True, bias=bias)


def mimo_v2_ffn(c: Fields, layer: int) -> FeedForward:
    freq = c.get("moe_layer_freq")
    sparse = bool(freq[layer]) if isinstance(freq, list) and layer < len(freq) else is_sparse(c, layer, 1)
    return deepseek_moe(c) if sparse else gated(c)


def minimax_m3_is_sparse(c: Fields, layer: int) -> bool:
    freq = c.get("moe_layer_freq")
    return bool(freq[layer]) if isinstance(freq, list) and layer < len(freq) else is_sparse(c, layer, 0)


def minimax_m3_attention(c: Fields, layer: int) -> Mixer:
    """Some layers attend to blocks that an indexer picks."""
    stated = c.get("sparse_attention_config")
    section = c.within(stated) if isinstance(stated, dict) else c
    freq = section.get("sparse_attention_freq")
    picks = bool(freq[layer]) if isinstance(freq, list) and layer < len(freq) else False
    if kind(c, layer, "minimax_m3_sparse" if picks else "full_attention") != "minimax_m3_sparse":
        return gqa(c, qk_norm="head")
    n_index = section.maybe("sparse_num_index_heads") or c.size("index_n_heads")
    d_index = section.maybe("sparse_index_dim") or c.size("index_head_dim")
    return gqa(c, qk_norm="head", indexer=BlockIndexer(n_index=n_index, d_index=d_index))


def minimax_m3_ffn(c: Fields, layer: int) -> FeedForward:
    if not minimax_m3_is_sparse(c, layer):
        return gated(c, width="dense_intermediate_size")
    shared = shared_mlp(c, "n_shared_experts", "shared_intermediate_size")
    return local_moe(c, layer, shared=shared, router_correction="buffer")


def llama4_window(c: Fields, layer: int) -> int | None:
    listed = c.get("no_rope_layers")
    default = every(c, layer, c.size("no_rope_layer_interval"), "chunked_attention")
    if isinstance(listed, list) and layer < len(listed):
        default = "chunked_attention" if listed[layer] else "full_attention"
    return window(c, layer, default, "attention_chunk_size")


def llama4_ffn(c: Fields, layer: int) -> FeedForward:
    """Experts in every `interleave_moe_layer_step`-th layer, each beside one shared expert of the same width."""
    listed = c.get("moe_layers")
    sparse = layer in c.indices("moe_layers") if listed else (layer + 1) % c.size("interleave_moe_layer_step") == 0
    if not sparse:
        return gated(c, width="intermediate_size_mlp")
    return local_moe(c, layer, shared=MLP(intermediate=c.size("intermediate_size")), stacked="in_out")


def exaone_moe_ffn(c: Fields, layer: int) -> FeedForward:
    return hy_v3_moe(c) if is_sparse(c, layer, c.size("first_k_dense_replace", 0)) else gated(c)


def afmoe_ffn(c: Fields, layer: int) -> FeedForward:
    if layer < c.size("num_dense_layers", 0):
        return gated(c)
    shared = shared_mlp(c, "num_shared_experts")
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, router_correction="parameter")


def cohere2_moe_dense(c: Fields) -> int:
    """The dense first layers, which have a pattern of windows of their own."""
    return c.maybe("first_k_dense_replace", 0) or 0


def cohere2_moe_window(c: Fields, layer: int) -> int | None:
    dense = cohere2_moe_dense(c)
    field = "prefix_dense_sliding_window_pattern" if layer < dense else "sliding_window_pattern"
    start = 0 if layer < dense else dense
    return window(c, layer, every(c, layer - start, c.size(field, 0), "sliding_attention"))


def cohere2_moe_ffn(c: Fields, layer: int) -> FeedForward:
    if not is_sparse(c, layer, cohere2_moe_dense(c)):
        stated = c.maybe("prefix_dense_intermediate_size")
        return gated(c, width="prefix_dense_intermediate_size" if stated else "intermediate_size", bias=None)
    shared = shared_mlp(c, "num_shared_experts", "intermediate_size")
    return moe(c, "num_experts", "intermediate_size", shared=shared)


def dbrx_section(c: Fields, name: str, defaults: dict[str, int]) -> Fields:
    stated = c.get(name)
    return c.within(defaults | (stated if isinstance(stated, dict) else {}))


def dbrx_attention(c: Fields, layer: int) -> Mixer:
    n_kv = dbrx_section(c, "attn_config", {"kv_n_heads": 1}).size("kv_n_heads")
    return gqa(
        c.with_stated("num_key_value_heads", n_kv), heads="n_heads", d_head=shared_width(c, "d_model", "n_heads")
    )


def dbrx_moe(c: Fields, layer: int) -> MoE:
    part = dbrx_section(c, "ffn_config", {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1})
    return moe(part, "moe_num_experts", "ffn_hidden_size", top_k="moe_top_k", stacked="out_in")


def laguna_attention(c: Fields, layer: int) -> Mixer:
    """Heads may differ from layer to layer; a gate for each head or each channel."""
    heads = c.get("num_attention_heads_per_layer")
    if isinstance(heads, list):
        c = c.with_stated("num_attention_heads", heads[layer] if layer < len(heads) else None)
    per_head = c.get("gating") in (True, "per-head")
    return gqa(
        c,
        bias=attention_bias(c),
        qk_norm="head",
        window=window(c, layer),
        gate="heads" if per_head else "channels",
    )


def laguna_ffn(c: Fields, layer: int) -> FeedForward:
    if not is_sparse(c, layer, 1):
        return gated(c, bias=None)
    shared = MLP(intermediate=c.size("shared_expert_intermediate_size"))
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, router_correction="parameter")


MIXTRAL_NAMES = Names(
    router="block_sparse_moe.gate",
    correction="block_sparse_moe.e_score_correction_bias",
    expert="block_sparse_moe.experts.{expert}",
    expert_renamed={"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
)


GRANITE_MOE_NAMES = Names(
    router="block_sparse_moe.router.layer",
    expert="block_sparse_moe",
    shared_expert="shared_mlp",
    mlp="shared_mlp",
    recurrent="mamba",
    packed={"input_linear": GATE_UP},
    renamed={"down_proj": "output_linear"},
    expert_packed={"input_linear": GATE_UP},
    expert_renamed={"down_proj": "output_linear"},
)


SPARSE: dict[str, Family] = {
    "mixtral": Family(mixer=lambda c, i: gqa(c, window=one_window(c, i)), ffn=local_moe, names=MIXTRAL_NAMES),
    "qwen2_moe": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("qkv_bias") else NO_BIAS, window=qwen2_moe_window(c, i)),
        ffn=qwen2_moe,
        names=Names(shared_expert="mlp.shared_expert"),
    ),
    "qwen3_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=qwen3_moe_window(c, i), qk_norm="head"),
        ffn=qwen_moe,
    ),
    "qwen3_vl_moe_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=qwen_vl_moe,
        names=Names(expert="mlp.experts", expert_packed={"gate_up_proj": GATE_UP}),
    ),
    "olmoe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="full"),
        ffn=lambda c, i: moe(c, "num_experts", "intermediate_size"),
    ),
    "flex_olmo": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="full"),
        ffn=lambda c, i: moe(c, "num_experts", "intermediate_size"),
        norms=POST_NORMS,
    ),
    "granitemoe": Family(mixer=plain_gqa, ffn=granite_moe, names=GRANITE_MOE_NAMES),
    "granitemoeshared": Family(
        mixer=plain_gqa,
        ffn=lambda c, i: granite_moe(c, i, shared=granite_shared(c)),
        names=GRANITE_MOE_NAMES,
    ),
    "phimoe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=one_window(c, i)),
        ffn=local_moe,
        norm="layer",
        names=MIXTRAL_NAMES,
        head_bias=lambda c: c.flag("lm_head_bias"),
    ),
    "gpt_oss": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=attention_bias(c),
            window=window(c, i, every(c, i, 2, "sliding_attention")),
            sinks=True,
        ),
        ffn=lambda c, i: local_moe(c, i, bias=True, router_bias=True, stacked="in_out", clamped=True),
        names=Names(router="mlp.router", expert="mlp.experts", expert_packed={"gate_up_proj": GATE_UP}),
    ),
    "ernie4_5_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "use_bias")),
        ffn=ernie_ffn,
        own={"num_nextn_predict_layers": 0},
        prediction=ernie_prediction,
        names=Names(correction="mlp.moe_statics.e_score_correction_bias"),
        head_bias=lambda c: c.flag("use_bias"),
    ),
    "hunyuan_v1_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=hunyuan_moe,
        names=Names(
            router="mlp.gate.wg",
            shared_expert="mlp.shared_mlp",
            renamed={"q_norm": "query_layernorm", "k_norm": "key_layernorm"},
        ),
    ),
    "hy_v3": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=hy_v3_ffn,
        names=Names(router="mlp.router.gate", correction="mlp.expert_bias", shared_expert="mlp.shared_mlp"),
        own={"num_nextn_predict_layers": 0},
        prediction=lambda c: next_layers(
            c, gqa(c, bias=attention_bias(c), qk_norm="head"), hy_v3_moe(c), own_tables=False
        ),
    ),
    "glm4_moe": Family(
        mixer=glm_attention,
        ffn=deepseek_ffn,
        prediction=lambda c: next_layers(c, glm_attention(c), deepseek_moe(c), own_tables=True),
    ),
    "afmoe": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=attention_bias(c),
            qk_norm="head",
            gate="channels",
            window=window(c, i, every(c, i, c.size("global_attn_every_n_layers"), "sliding_attention")),
        ),
        ffn=afmoe_ffn,
        norms=(*TWO_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"),
        names=Names(router="mlp.router.gate", correction="mlp.expert_bias", renamed={"g_proj": "gate_proj"}),
    ),
    "cohere2_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=cohere2_moe_window(c, i)),
        ffn=cohere2_moe_ffn,
        norms=("input_layernorm",),
        own={"first_k_dense_replace": 0},
    ),
    "dbrx": Family(
        mixer=dbrx_attention,
        ffn=dbrx_moe,
        norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
        names=Names(
            embedding="transformer.wte",
            layer="transformer.blocks.{layer}",
            attention="norm_attn_norm.attn",
            router="ffn.router.layer",
            expert="ffn.experts.mlp",
            final_norm="transformer.norm_f",
            packed={"Wqkv": PACKED_QKV},
            renamed={"o_proj": "out_proj"},
            expert_renamed={"gate_proj": "w1", "up_proj": "v1", "down_proj": "w2"},
        ),
        layers="n_layers",
        hidden="d_model",
        max_positions="max_seq_len",
    ),
    "granitemoe_swa": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=granite_swa_window(c, i), sinks=True),
        ffn=lambda c, i: local_moe(c, i, shared=granite_shared(c), stacked="out_in"),
        names=GRANITE_MOE_NAMES.model_copy(
            update={
                "router": "block_sparse_moe.router",
                "expert": "block_sparse_moe.experts",
                "expert_packed": {"gate_up_proj": GATE_UP},
                "expert_renamed": {},
            }
        ),
    ),
    "laguna": Family(
        mixer=laguna_attention,
        ffn=laguna_ffn,
        names=Names(correction="mlp.experts.e_score_correction_bias", shared_expert="mlp.shared_expert"),
    ),
    "mellum": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head", window=window(c, i)),
        ffn=lambda c, i: moe(c, "num_experts", "moe_intermediate_size") if is_sparse(c, i, 0) else gated(c, bias=None),
    ),
    "glm4v_moe_text": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("attention_bias") else NO_BIAS), ffn=deepseek_ffn
    ),
    "qwen3_omni_moe_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=one_window(c, i), qk_norm="head"), ffn=qwen_moe
    ),
    "solar_open": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("attention_bias") else NO_BIAS),
        ffn=lambda c, i: deepseek_moe(c),
    ),
    "dots1": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=attention_bias(c),
            qk_norm="head",
            window=window(c, i, "sliding_attention" if i >= c.size("max_window_layers", 0) else "full_attention"),
        ),
        ffn=deepseek_ffn,
    ),
    "exaone_moe": Family(
        mixer=lambda c, i: gqa(c, qk_norm="head", window=exaone4_window(c, i)),
        ffn=exaone_moe_ffn,
        names=Names(correction="mlp.e_score_correction_bias"),
    ),
    "minimax_m2": Family(
        mixer=lambda c, i: gqa(c, qk_norm="full"),
        ffn=lambda c, i: local_moe(c, i, router_correction="buffer"),
        names=MIXTRAL_NAMES,
    ),
    "minimax_m3_vl_text": Family(
        mixer=minimax_m3_attention,
        ffn=minimax_m3_ffn,
        own={"n_shared_experts": 1},
        names=MIXTRAL_NAMES.model_copy(update={"shared_expert": "block_sparse_moe.shared_experts"}),
    ),
    "mimo_v2_flash": Family(
        mixer=mimo_v2_attention,
        ffn=mimo_v2_ffn,
        names=Names(renamed={"sinks": "attention_sink_bias"}),
        own={"n_shared_experts": None, "swa_num_key_value_heads": 8, "sliding_window_size": None},
    ),
    "llama4_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=llama4_window(c, i)),
        ffn=llama4_ffn,
        names=Names(
            mlp="feed_forward",
            router="feed_forward.router",
            expert="feed_forward.experts",
            expert_packed={"gate_up_proj": GATE_UP},
            shared_expert="feed_forward.shared_expert",
        ),
    ),
}
