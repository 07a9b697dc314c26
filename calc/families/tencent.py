"""Tencent's families: Hunyuan and Youtu."""

from dataclasses import replace

from calc.families.attention_rows import MLA, Attention
from calc.families.deepseek import DEEPSEEK_EXPERTS, HYPER_HEAD, all_streams
from calc.families.family import MTP, QUERY_LAYERNORM, STACKED_EXPERTS, Family, Weights
from calc.families.feedforward_rows import Dense, Experts, Times
from calc.families.fields import Fields
from calc.families.rotary import Rotary
from calc.model.conventions import Kernels, Names
from calc.model.feedforward import FeedForward

HUNYUAN_ATTENTION = Attention(bias="attention_bias", qk_norm="head")
HUNYUAN_EXPERTS = Experts("num_experts", "intermediate_size", "moe_topk", shared_width="intermediate_size")
HY3_EXPERTS = Experts(shared="num_shared_experts", shared_bias="mlp_bias", correction="buffer", first_dense=1)


def hunyuan_moe(c: Fields, layer: int) -> FeedForward:
    """`moe_topk` may differ from layer to layer."""
    chosen = c.get("moe_topk")
    if isinstance(chosen, list):
        c = c.with_stated("moe_topk", chosen[layer] if layer < len(chosen) else None)
    return HUNYUAN_EXPERTS.experts(c)


def hy4_owns_indexer(c: Fields, layer: int) -> bool:
    """The first layer picks its tokens, then every fourth; the others share the choice."""
    listed = c.per_layer("indexer_types", c.size("num_hidden_layers"), ("full", "shared"))
    return listed[layer] == "full" if listed else layer == 0 or layer % 4 == 1


TWICE = Times(2, "hc_mult")
HYPER_PRE = Weights(  # hyper-connections, arXiv:2409.19606, round attention and feed-forward: no mixing between streams
    "other",
    {"fn": (TWICE, all_streams), "base": (TWICE,), "scale": (2,)},
    at=("hc_pre.hc_attn_layer.hc_", "hc_pre.hc_mlp_layer.hc_"),
)

HY4 = Family(
    mixer=MLA(indexer=True, owns_indexer=hy4_owns_indexer, gate="channels", sinks=True),
    ffn=replace(DEEPSEEK_EXPERTS, first_dense=1, stacked="out_in"),
    extras=(replace(HYPER_HEAD, at=("model.hc_pre.hc_head.hc_head_",)),),
    layer_extras=(HYPER_PRE,),
    names=STACKED_EXPERTS.but(
        renamed={"gate_proj": "linear_gate", "g_proj": "linear_gate", "sinks": "learnable_sink_param"}
    ),
)
TENCENT: dict[str, Family] = {
    "hunyuan_v1_dense": Family(mixer=HUNYUAN_ATTENTION, names=Names(renamed=QUERY_LAYERNORM)),
    "hunyuan_v1_moe": Family(
        mixer=HUNYUAN_ATTENTION,
        ffn=hunyuan_moe,
        kernels=Kernels(fp32_weights=True, fp32_router=True, shared_first=True),
        names=Names(router="mlp.gate.wg", shared_expert="mlp.shared_mlp", renamed=QUERY_LAYERNORM),
    ),
    "hunyuan_vl_text": Family(mixer=HUNYUAN_ATTENTION, ffn=Dense(bias=False), names=Names(renamed=QUERY_LAYERNORM)),
    "hy_v3": Family(
        mixer=HUNYUAN_ATTENTION,
        ffn=HY3_EXPERTS,
        names=Names(router="mlp.router.gate", correction="mlp.expert_bias", shared_expert="mlp.shared_mlp"),
        prediction=MTP(HUNYUAN_ATTENTION, HY3_EXPERTS),
    ),
    "hy_v4": HY4,
    "hy_v4_vl_text": replace(HY4, rotary=Rotary(axes=3)),
    "youtu": Family(mixer=MLA()),
}
