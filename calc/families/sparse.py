"""Families with experts, whose layers attend alike."""

from math import isqrt
from typing import Any

from calc.families.family import (
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
    extras,
    gated,
    gqa,
    is_sparse,
    moe,
    next_layers,
    one_window,
    plain_gqa,
    shared_mlp,
    shared_width,
    window,
)
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Block, Extra, PredictionModule
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names
from calc.model.tensor import Shape


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
    return moe(c, "num_experts", "intermediate_size", top_k="moe_topk", shared=shared)


def glm_attention(c: Fields, layer: int = 0) -> Mixer:
    bias = QKV if c.flag("attention_bias") else NO_BIAS
    return gqa(c, bias=bias, qk_norm="head" if c.flag("use_qk_norm") else "none")


def hy_v3_ffn(c: Fields, layer: int) -> FeedForward:
    return hy_v3_moe(c) if is_sparse(c, layer, 1) else gated(c)


def hy_v3_moe(c: Fields) -> MoE:
    shared = shared_mlp(c, "num_shared_experts", bias="mlp_bias")
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, router_correction="buffer")


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


def jetmoe_attention(c: Fields, layer: int) -> Mixer:
    """Mixture of attention heads, arXiv:2404.07413: an expert is a query and an output projection of all heads."""
    n_kv = c.size("num_key_value_heads")
    return GQA(n_q=n_kv * c.size("num_experts_per_tok"), n_kv=n_kv, d_head=c.size("kv_channels"), routed=True)


def jetmoe_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The experts of attention, and a bias behind each set of experts."""
    hidden, wide = c.size("hidden_size"), c.size("num_key_value_heads") * c.size("kv_channels")
    experts, top_k, path = c.size("num_local_experts"), c.size("num_experts_per_tok"), "self_attention.experts"
    pairs: dict[str, Shape] = {
        f"{path}.input_linear.weight": (experts, wide, hidden),
        f"{path}.output_linear.weight": (experts, hidden, wide),
    }
    return (
        *extras("attention", pairs, experts, top_k),
        *extras("attention", {f"{path}.bias": (hidden,)}),
        *extras("router", {f"{path}.router.layer.weight": (experts, hidden)}),
        *extras("experts_shared", {"mlp.bias": (hidden,)}),
    )


def doge_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Doge: a mask made of the values, scales of the residual, and experts of one row each in each direction."""
    hidden = c.size("hidden_size")
    attention = gqa(c)
    step: dict[str, Shape] = {
        "self_attn.A": (attention.n_kv,),
        "self_attn.dt_proj.weight": (attention.n_kv, attention.n_kv * attention.d_head),
    }
    if c.flag("attention_bias"):
        step |= {"self_attn.dt_proj.bias": (attention.n_kv,)}
    found = extras("attention", step)
    found += extras("other", {"input_residual": (hidden,), "post_attention_residual": (hidden,)})
    if c.flag("is_moe"):
        experts = c.size("num_experts")
        rows: dict[str, Shape] = {f"mlp.{way}_embed.weight": (experts, hidden) for way in ("down", "up")}
        found += extras("experts_routed", rows, experts, c.size("num_experts_per_tok"))
        found += extras("router", {"mlp.router_gate.weight": (2 * isqrt(experts), hidden)})
    return found


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
    "mixtral": Family(
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=local_moe,
        names=MIXTRAL_NAMES,
        kernels=Kernels(fp32_weights=True),
    ),
    "qwen2_moe": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("qkv_bias") else NO_BIAS, window=qwen2_moe_window(c, i)),
        ffn=qwen2_moe,
        names=Names(shared_expert="mlp.shared_expert"),
        kernels=Kernels(shared_first=True),
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
    "ernie4_5_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "use_bias")),
        ffn=ernie_ffn,
        kernels=Kernels(rotation="fp32_spread", fp32_weights=False, fp32_router=True, shared_first=True),
        own={"num_nextn_predict_layers": 0},
        prediction=ernie_prediction,
        names=Names(correction="mlp.moe_statics.e_score_correction_bias"),
        head_bias=lambda c: c.flag("use_bias"),
    ),
    "hunyuan_v1_moe": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=hunyuan_moe,
        kernels=Kernels(fp32_weights=True, fp32_router=True, shared_first=True),
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
    "minimax_m2": Family(
        mixer=lambda c, i: gqa(c, qk_norm="full"),
        ffn=lambda c, i: local_moe(c, i, router_correction="buffer"),
        names=MIXTRAL_NAMES,
        kernels=Kernels(fp32_router=False),
    ),
    "jetmoe": Family(
        mixer=jetmoe_attention,
        ffn=lambda c, i: local_moe(c, i, stacked="module"),
        layer_extras=jetmoe_extras,
        names=GRANITE_MOE_NAMES.model_copy(
            update={
                "attention": "self_attention",
                "router": "mlp.router.layer",
                "expert": "mlp",
                "packed": {"kv_proj": ("k_proj", "v_proj")},
            }
        ),
    ),
    "doge": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head", window=one_window(c, i)),
        ffn=gated,
        layer_extras=doge_extras,
    ),
}
