"""Baidu's families: ERNIE 4.5."""

from dataclasses import replace

from calc.errors import ConfigError, Message
from calc.families.attention_rows import Attention
from calc.families.family import MTP, Family, extras
from calc.families.feedforward_rows import Dense, Experts, is_sparse
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.conventions import Kernels, Names
from calc.model.feedforward import FeedForward

ERNIE_ATTENTION = Attention(bias="use_bias")
ERNIE_MLP = Dense(bias="use_bias")
SPREAD = Kernels(rotation="fp32_spread")


def ernie_sparse(c: Fields, layer: int) -> bool:
    """Experts in every `moe_layer_interval`-th layer between two indices."""
    end = c.get("moe_layer_end_index")
    last = c.size("num_hidden_layers") - 1 if end == -1 else c.size("moe_layer_end_index", 0)
    inside = c.size("moe_layer_start_index", 0) <= layer <= last
    return inside and (layer + 1) % c.size("moe_layer_interval") == 0


ERNIE_EXPERTS = Experts(
    "moe_num_experts",
    top_k="moe_k",
    shared="moe_num_shared_experts",
    shared_bias="use_bias",
    correction="row",
    sparse=ernie_sparse,
    dense=ERNIE_MLP,
)
ERNIE_VL_EXPERTS = replace(ERNIE_EXPERTS, correction="none", sparse=None)


def ernie_vl_ffn(c: Fields, layer: int) -> FeedForward:
    """ERNIE 4.5 VL: as many narrower experts again, which only tokens of images pass through."""
    if not is_sparse(c, layer, 1):
        return ERNIE_MLP(c)
    widths = c.get("moe_intermediate_size") or [1536, 512]
    if not isinstance(widths, list) or len(widths) != 2:
        sentence = "moe_intermediate_size must list two widths, of the experts for text and for images."
        raise ConfigError(Message(sentence), "moe_intermediate_size")
    text, image = (c.with_stated("moe_intermediate_size", width) for width in widths)
    image_expert = Dense("moe_intermediate_size", bias=False)(image)
    return ERNIE_VL_EXPERTS.experts(text).model_copy(update={"image_expert": image_expert})


def ernie_vl_routers(c: Fields, layer: int) -> tuple[Extra, ...]:
    """A bias that balances load for each kind of expert."""
    if not is_sparse(c, layer, 1):
        return ()
    return extras("router", {"mlp.moe_statics.e_score_correction_bias": (2, c.size("moe_num_experts"))})


BAIDU: dict[str, Family] = {
    "ernie4_5": Family(mixer=ERNIE_ATTENTION, ffn=ERNIE_MLP, kernels=SPREAD),
    "ernie4_5_moe": Family(
        mixer=ERNIE_ATTENTION,
        ffn=ERNIE_EXPERTS,
        kernels=Kernels(
            rotation="fp32_spread", fp32_weights=False, fp32_router=True, casts_router=False, shared_first=True
        ),
        prediction=MTP(
            ERNIE_ATTENTION,
            ERNIE_MLP,
            norms=("mtp_emb_norm.{layer}", "mtp_hidden_norm.{layer}"),
            projection=("mtp_linear_proj.{layer}",),
            layer="model.mtp_block.{layer}",
            path="model",
        ),
        names=Names(correction="mlp.moe_statics.e_score_correction_bias"),
        head_bias="use_bias",
    ),
    "ernie4_5_vl_moe_text": Family(mixer=ERNIE_ATTENTION, ffn=ernie_vl_ffn, layer_extras=(ernie_vl_routers,)),
    "paddleocr_vl_text": Family(mixer=ERNIE_ATTENTION, ffn=ERNIE_MLP),
}
