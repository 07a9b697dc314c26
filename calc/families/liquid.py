"""Liquid AI's families: LFM2 and LFM3, with short convolutions between attention."""

from calc.families.attention_rows import Attention, Hybrid, Listed, Sliding
from calc.families.family import QK_LAYERNORM, W123, Family
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, If
from calc.families.recurrent_rows import SHORT_CONV
from calc.model.conventions import Kernels, Names

LFM2_MIXER = Hybrid(
    Attention(head_dim=None, qk_norm="head"),
    SHORT_CONV,
    Listed("full_attn_idxs", absent=True),
    words=("full_attention", "conv"),
)
LFM2_NAMES = Names(
    recurrent="conv",
    mlp="feed_forward",
    router="feed_forward.gate",
    correction="feed_forward.expert_bias",
    expert="feed_forward.experts.{expert}",
    final_norm="embedding_norm",
    renamed={"o_proj": "out_proj", **QK_LAYERNORM} | W123,
    expert_renamed=W123,
)
LFM3_NORMS = ("operator_norm", "ffn_norm", "post_operator_norm", "post_ffn_norm")


def lfm2_width(c: Fields) -> int:
    """Cut to two thirds and rounded up where `block_auto_adjust_ff_dim` says so."""
    width = c.maybe("block_ff_dim") or c.size("intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim"):
        return width
    width = 2 * width // 3
    if c.get("block_ffn_dim_multiplier") is not None:
        width = int(c.real("block_ffn_dim_multiplier") * width)
    multiple = c.size("block_multiple_of")
    return -(-width // multiple) * multiple


def lfm3_attends(c: Fields, layer: int) -> bool:
    """Whether a layer attends: of four layers one keeps all, one slides (the first of all does not), two convolve."""
    return layer % 4 == 2 or (layer % 4 == 0 and layer > 0)


LIQUID: dict[str, Family] = {
    "lfm2": Family(
        mixer=LFM2_MIXER, ffn=Dense(lfm2_width, False), norms=("operator_norm", "ffn_norm"), names=LFM2_NAMES
    ),
    "lfm2_moe": Family(
        mixer=LFM2_MIXER,
        ffn=Experts(correction=If("use_expert_bias", "buffer", "none"), first_dense="num_dense_layers"),
        norms=("operator_norm", "ffn_norm"),
        names=LFM2_NAMES,
        kernels=Kernels(fp32_weights=False, fp32_router=False),
    ),
    "lfm3": Family(
        mixer=Hybrid(
            Attention(
                bias="attention_bias",
                qk_norm="head",
                gate=If("use_attention_gate", "heads", "none"),
                window=Sliding(full_every=4, full_at=2),
            ),
            SHORT_CONV,
            lfm3_attends,
            words=("full_attention", "sliding_attention", "conv"),
        ),
        ffn=Dense(bias=False),
        norms=If("use_sandwich_norm", LFM3_NORMS, LFM3_NORMS[:2]),
        names=Names(
            recurrent="conv", mlp="feed_forward", final_norm="embedding_norm", renamed={"g_proj": "gate_proj"} | W123
        ),
    ),
}
