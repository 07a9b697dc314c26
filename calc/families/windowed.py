"""Families with experts, some of whose layers look back on a window, a chunk or chosen blocks only."""

from calc.families.dense import exaone4_window, granite_swa_window
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    NO_BIAS,
    QKV,
    TWO_NORMS,
    Family,
    attention_bias,
    deepseek_ffn,
    deepseek_moe,
    every,
    extras,
    gated,
    gqa,
    is_sparse,
    kind,
    moe,
    shared_mlp,
    window,
)
from calc.families.fields import Fields
from calc.families.sparse import GRANITE_MOE_NAMES, MIXTRAL_NAMES, granite_shared, hy_v3_moe, local_moe
from calc.model.attention import GQA, BlockIndexer
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names


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
    shared = MLP(intermediate=c.size("intermediate_size"))
    return local_moe(c, layer, shared=shared, stacked="in_out")


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


def kolibri_moe(c: Fields, layer: int) -> MoE:
    shared = MLP(intermediate=c.size("shared_expert_intermediate_size"))
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, router_correction="buffer")


def flint_window(c: Fields, layer: int) -> int | None:
    """The first two layers, every fourth and the last one keep all."""
    full = layer < 2 or layer % 4 == 1 or layer == c.size("num_hidden_layers") - 1
    return window(c, layer, "full_attention" if full else "sliding_attention")


def flint_ffn(c: Fields, layer: int) -> FeedForward:
    dense = c.indices("mlp_only_layers") if c.get("mlp_only_layers") is not None else frozenset({0, 1})
    if layer in dense or (layer + 1) % c.size("decoder_sparse_step"):
        return gated(c, bias=None)
    shared = MLP(intermediate=c.size("shared_expert_intermediate_size"))
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared)


def beam_window(c: Fields, layer: int) -> int | None:
    """Five sliding layers, then a full one; the last is always full."""
    last = layer == c.size("num_hidden_layers") - 1
    return window(c, layer, "full_attention" if last else every(c, layer, 6, "sliding_attention"))


def beam_ffn(c: Fields, layer: int) -> FeedForward:
    if not is_sparse(c, layer, 3):
        return gated(c, bias=None)
    return moe(c, "num_experts", "moe_intermediate_size", router_correction="buffer")


def own_layers(c: Fields) -> Fields:
    """Step 3.5: its lists go on for the layers of multi-token prediction."""
    layers = c.size("num_hidden_layers")
    for name in ("layer_types", "mlp_layer_types"):
        words = c.get(name)
        if isinstance(words, list) and len(words) == layers + (c.maybe("num_nextn_predict_layers", 0) or 0):
            c = c.with_stated(name, words[:layers])
    return c


def step_attention(c: Fields, layer: int) -> GQA:
    """Sliding layers may have another number of heads."""
    c = own_layers(c)
    slides = window(c, layer)
    if kind(c, layer, "full_attention") == "sliding_attention":
        other = c.get("attention_other_setting")
        stated = c.within(other).maybe("num_attention_heads") if isinstance(other, dict) else None
        heads = c.maybe("num_sliding_attention_heads") or stated or c.size("num_attention_heads")
        c = c.with_stated("num_attention_heads", heads)
    gate = "heads" if c.get("gating") in (True, "per-head") else "channels"
    return gqa(c, bias=attention_bias(c), qk_norm="head", gate=gate, window=slides)


def step_ffn(c: Fields, layer: int) -> FeedForward:
    c = own_layers(c)
    if not step_is_sparse(c, layer):
        return gated(c)
    shared = gated(c, width="share_expert_dim")
    return moe(
        c, "n_routed_experts", "moe_intermediate_size", shared=shared, router_correction="buffer", stacked="module"
    )


def step_is_sparse(c: Fields, layer: int) -> bool:
    listed = c.get("moe_layers_enum")
    if listed is None or c.get("mlp_layer_types") is not None:
        return is_sparse(c, layer, 3)
    return str(layer) in str(listed).replace(" ", "").strip("[]").split(",")


WINDOWED: dict[str, Family] = {
    "gpt_oss": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=attention_bias(c),
            window=window(c, i, every(c, i, 2, "sliding_attention")),
            sinks=True,
        ),
        ffn=lambda c, i: local_moe(c, i, bias=True, router_bias=True, stacked="in_out"),
        names=Names(router="mlp.router", expert="mlp.experts", expert_packed={"gate_up_proj": GATE_UP}),
        kernels=Kernels(norm="rms32", activation="clamped", turn="halves", scores_chosen_only=True),
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
        kernels=Kernels(turn="complex", fp32_softmax=False, passes_all=True, shared_first=True),
        names=Names(
            mlp="feed_forward",
            router="feed_forward.router",
            expert="feed_forward.experts",
            expert_packed={"gate_up_proj": GATE_UP},
            shared_expert="feed_forward.shared_expert",
        ),
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
        kernels=Kernels(fp32_weights=True, fp32_router=False, shared_first=True),
    ),
    "cohere2_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=cohere2_moe_window(c, i)),
        ffn=cohere2_moe_ffn,
        norms=("input_layernorm",),
        own={"first_k_dense_replace": 0},
        kernels=Kernels(norm="centred", rotation="fp32_copies"),
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
    "kolibri1": Family(
        mixer=lambda c, i: gqa(c, qk_norm="head", window=window(c, i, every(c, i, 5, "sliding_attention"))),
        ffn=kolibri_moe,
        norms=(*TWO_NORMS, "post_attn_norm", "post_ffn_norm"),
        names=Names(correction="moe.router.expert_bias"),
        aliases={"num_local_experts": "num_experts"},
    ),
    "flint": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head", sinks=True, window=flint_window(c, i)),
        ffn=flint_ffn,
        names=Names(shared_expert="mlp.shared_expert", renamed={"sinks": "softmax_offset"}),
    ),
    "beam": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head", gate="channels", window=beam_window(c, i)),
        ffn=beam_ffn,
        norms=GEMMA_NORMS,
        names=Names(renamed={"g_proj": "gate_proj"}),
        layer_extras=lambda c, i: extras("attention", {"self_attn.gate_bias": (c.size("num_attention_heads"),)}),
        kernels=Kernels(capped_logits=True),
    ),
    "step3p5": Family(
        mixer=step_attention,
        ffn=step_ffn,
        own={"num_nextn_predict_layers": 0, "gating": True},
        names=Names(
            router="moe.gate",
            correction="moe.router_bias",
            expert="moe",
            shared_expert="share_expert",
        ),
    ),
}
