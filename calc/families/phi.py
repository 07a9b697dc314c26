"""Microsoft's families: Phi, and others of its laboratories."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Window
from calc.families.family import (
    ENCODER_ATTENTION,
    FC12,
    GATE_UP,
    PACKED_QKV,
    QK_LAYERNORM,
    Family,
    Weights,
    cross_attention,
    layer_norms,
    two_more_positions,
)
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, If
from calc.families.llama import FAIRSEQ, FAIRSEQ_NAMES
from calc.families.mistral import MIXTRAL_NAMES
from calc.families.rotary import Rotary
from calc.model.conventions import Kernels, Names

PACKED = Names(packed={"qkv_proj": PACKED_QKV, "gate_up_proj": GATE_UP})


def head_dim(c: Fields) -> int:
    return Attention()(c).d_head


KOSMOS_2_5 = replace(
    FAIRSEQ,
    names=FAIRSEQ_NAMES.but(module="text_model.model", mlp="ffn", lm_head="text_model.lm_head"),
    layer_extras=(Weights("norms", layer_norms("ffn_dim", "ffn.ffn_layernorm")),),
    extras=(Weights("embedding", {"text_model.model.segment_emb.weight": (2, "hidden_size")}),),
)

PHI: dict[str, Family] = {
    "phi": Family(
        mixer=Attention(bias=True, qk_norm=If("qk_layernorm", "head", "none"), qk_norm_bias=True),
        ffn=Dense(gated=False, bias=True),
        kernels=Kernels(activation="written_out"),
        norms=("input_layernorm",),
        norm="layer",
        names=Names(final_norm="final_layernorm", renamed={"o_proj": "dense"} | FC12 | QK_LAYERNORM),
        head_bias=True,
        rotary=Rotary(share=0.5),
    ),
    "phi3": Family(mixer=Attention(window=Window()), names=PACKED, kernels=Kernels(cuts_rotated=True, slices=True)),
    "phi3small": Family(
        mixer=Attention(bias=True),
        ffn=Dense("ff_intermediate_size", bias=True),
        norm="layer",
        names=Names(
            final_norm="final_layernorm",
            packed={"query_key_value": PACKED_QKV, "up_proj": GATE_UP},
            renamed={"o_proj": "dense"},
        ),
    ),
    "phimoe": Family(
        mixer=Attention(bias="attention_bias", window=Window()),
        ffn=Experts("num_local_experts", "intermediate_size"),
        norm="layer",
        names=MIXTRAL_NAMES,
        head_bias="lm_head_bias",
    ),
    "phi4_multimodal": Family(mixer=Attention(window=Window()), names=PACKED),
    "bitnet": Family(  # norms before the last projections, whose input is quantized
        ffn=Dense(bias=False),
        layer_extras=(
            Weights("attention", {"self_attn.attn_sub_norm.weight": ("hidden_size",)}),
            Weights("mlp", {"mlp.ffn_sub_norm.weight": ("intermediate_size",)}),
        ),
        kernels=Kernels(activation="squared", norms_inside=True),
    ),
    "diffllama": Family(  # differential attention, arXiv:2410.05258: the vectors that its factor is made of
        ffn=Dense(bias=False),
        layer_extras=(
            Weights("attention", {f"self_attn.lambda_{name}": (head_dim,) for name in ("q1", "k1", "q2", "k2")}),
        ),
        kernels=Kernels(differential=True),
    ),
    "kosmos_2_5_text_model": KOSMOS_2_5,
    "kosmos_2_text_model": replace(
        KOSMOS_2_5,
        layer_extras=(
            Weights("norms", layer_norms("hidden_size", "self_attn.inner_attn_ln")),
            *KOSMOS_2_5.layer_extras,
            *cross_attention("hidden_size", "encoder_attn_layer_norm", ENCODER_ATTENTION),
        ),
        extras=(),
    ),
    "biogpt": replace(
        FAIRSEQ,
        ffn=Dense(gated=False, bias=True),
        names=FAIRSEQ_NAMES.but(module="biogpt", lm_head="output_projection"),
        positions=two_more_positions,
    ),
}
