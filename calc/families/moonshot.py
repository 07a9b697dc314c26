"""Moonshot's families: Kimi; and Ling, which is made of the same parts."""

from dataclasses import replace

from calc.families.attention_rows import MLA, Attention, Every, Hybrid
from calc.families.deepseek import DEEPSEEK_EXPERTS, DEEPSEEK_MTP
from calc.families.family import MTP, PACKED_QKV, QUERY_LAYERNORM, Family, Weights
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, If, Size, stated_or
from calc.families.recurrent_rows import Recurrence
from calc.model.conventions import Names
from calc.model.linear_attention import KimiDelta


def kimi_full(c: Fields, layer: int) -> bool:
    """`linear_attn_config` counts layers from 1."""
    stated = c.get("linear_attn_config")
    if isinstance(stated, dict):
        return layer + 1 in c.once("full layers", lambda: c.within(stated).indices("full_attn_layers"))
    return layer > 0 and layer % 4 == 0


def in_section(field: str, otherwise: str) -> Size:
    """A size that checkpoints state in `linear_attn_config`."""
    return lambda c: c.section("linear_attn_config").maybe(field) or c.size(otherwise)


def has_full_rank_output(c: Fields) -> bool:
    """Whether the output gate has no bottleneck: Kimi K3."""
    return c.section("linear_attn_config").flag("use_full_rank_gate")


def has_residuals(c: Fields) -> bool:
    """Whether layers read the outputs of earlier blocks of layers: Kimi K3."""
    return c.maybe("attn_res_block_size") is not None


def residuals(*paths: str) -> tuple[Weights, ...]:
    return tuple(
        weights
        for path in paths
        for weights in (
            Weights("norms", {f"{path}_norm.weight": ("hidden_size",)}, has_residuals),
            Weights("other", {f"{path}_proj.weight": (1, "hidden_size")}, has_residuals),
        )
    )


KIMI_DELTA = Recurrence(
    KimiDelta,
    {
        "n_heads": in_section("num_heads", "linear_num_heads"),
        "d_head": in_section("head_dim", "linear_head_dim"),
        "d_conv": in_section("short_conv_kernel_size", "linear_conv_kernel_dim"),
    },
)
KIMI_EXPERTS = Experts(
    "num_local_experts", shared="n_shared_experts", correction="buffer", first_dense="first_k_dense_replace"
)
LING_NAMES = Names(
    embedding="word_embeddings",
    attention="attention",
    recurrent="attention",
    correction="mlp.gate.expert_bias",
    renamed={"o_proj": "dense"},
)
LING_ATTENTION = Attention(qkv_bias="use_qkv_bias", out_bias="use_bias", qk_norm=If("use_qk_norm", "head", "none"))
LING_MLA = MLA(gate="heads")
LING_EXPERTS = Experts(
    shared="num_shared_experts",
    shared_bias="use_bias",
    correction=If("moe_router_enable_expert_bias", "buffer", "none"),
    first_dense="first_k_dense_replace",
    dense=Dense(bias="use_bias"),
)

KIMI_AND_LING: dict[str, Family] = {
    "kimi_k2": Family(mixer=MLA(), ffn=DEEPSEEK_EXPERTS, prediction=DEEPSEEK_MTP),
    "kimi_linear": Family(
        mixer=Hybrid(
            MLA(gate=If("mla_use_output_gate", "channels", "none")),
            KIMI_DELTA.but(
                low_rank=lambda c: {"f"} if has_full_rank_output(c) else {"f", "g"},
                decays=lambda c: "d_head" if has_full_rank_output(c) else "heads_4d",
            ),
            kimi_full,
        ),
        ffn=replace(KIMI_EXPERTS, latent="routed_expert_hidden_size"),
        extras=residuals("model.output_attn_res"),
        layer_extras=(
            *residuals("self_attention_res", "mlp_res"),
            Weights(
                "norms",
                {"block_sparse_moe.routed_expert_norm.weight": ("routed_expert_hidden_size",)},
                lambda c: c.maybe("routed_expert_hidden_size") is not None and c.flag("latent_moe_use_norm"),
                KIMI_EXPERTS.is_sparse,
            ),
        ),
        ties=False,
        names=Names(
            recurrent="self_attn",
            router="block_sparse_moe.gate",
            correction="block_sparse_moe.gate.e_score_correction_bias",
            expert="block_sparse_moe.experts.{expert}",
            shared_expert="block_sparse_moe.shared_experts",
            latent="block_sparse_moe",
            renamed={"fc1_latent_proj": "routed_expert_down_proj", "fc2_latent_proj": "routed_expert_up_proj"},
            expert_renamed={"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
        ),
    ),
    "bailing_moe": Family(
        mixer=LING_ATTENTION,
        ffn=LING_EXPERTS,
        names=LING_NAMES.but(packed={"query_key_value": PACKED_QKV}, renamed={"o_proj": "dense"} | QUERY_LAYERNORM),
        prediction=MTP(LING_ATTENTION, LING_EXPERTS),
    ),
    "bailing_hybrid": Family(
        mixer=Hybrid(
            LING_MLA,
            KIMI_DELTA.but(
                n_heads=stated_or("linear_num_heads", "num_attention_heads"),
                d_head=stated_or("linear_head_dim", "head_dim"),
                d_conv=stated_or("linear_conv_kernel_dim", "short_conv_kernel_size"),
                low_rank=frozenset[str](),
                decays="heads",
            ),
            Every("layer_group_size"),
        ),
        ffn=KIMI_EXPERTS,
        ties=False,
        names=LING_NAMES,
        prediction=MTP(LING_MLA, KIMI_EXPERTS),
    ),
}
