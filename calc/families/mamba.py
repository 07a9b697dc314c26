"""Families with state spaces, alone or between or beside attention."""

from typing import Any

from calc.errors import ConfigError
from calc.families.family import Family, gated, gqa, kind, moe, plain, plain_gqa
from calc.families.fields import Fields
from calc.families.sparse import GRANITE_MOE_NAMES, granite_moe
from calc.model.block import Block, PredictionModule
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.mixers import Mixer
from calc.model.names import Names
from calc.model.recurrent import Mamba, Mamba2


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
    if n_heads * d_head != inner:
        wide = n_heads * d_head // c.size("mamba_expand")
        raise ConfigError(
            f"{n_heads:,} heads (mamba_n_heads) of {d_head:,} (mamba_d_head) don't make up the {inner:,} channels "
            "(mamba_d_ssm, or mamba_expand times hidden_size).",
            "mamba_n_heads" if c.get("mamba_d_ssm") else "hidden_size",
            [] if c.get("mamba_d_ssm") or not wide else [wide],
        )
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


MAMBA: dict[str, Family] = {
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
