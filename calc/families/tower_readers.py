"""Towers for images: how the class of each is read from a vision_config."""

from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families import tower_defaults as defaults
from calc.families.encoder_towers import gemma3, idefics2, idefics3, lfm2_vl, llava, paligemma, qwen_audio
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.tower_parts import two
from calc.model.towers.audio import OmniTowers
from calc.model.towers.image import (
    Gemma4Vision,
    Glm4Vision,
    InternVision,
    Llama4Vision,
    LlamaVision,
    MiniMaxVision,
    MoonVision,
    PixtralVision,
    Qwen2Vision,
    QwenVision,
)

USUAL = {"hidden": "hidden_size", "intermediate": "intermediate_size", "num_layers": "num_hidden_layers"}
WITH_CHANNELS = USUAL | {"channels": "num_channels", "patch_size": "patch_size"}
QWEN = {
    **USUAL,
    "num_layers": "depth",
    "channels": "in_channels",
    "patch_size": "patch_size",
    "temporal_patch_size": "temporal_patch_size",
    "merge_size": "spatial_merge_size",
    "out_hidden": "out_hidden_size",
}
"""Sizes of a tower -> the fields that they are read from."""


def sizes(c: Fields, fields: Mapping[str, str]) -> dict[str, Any]:
    return {name: c.size(field) for name, field in fields.items()}


def qwen3(c: Fields, whole: Fields) -> QwenVision:
    return QwenVision(
        **sizes(c, QWEN),
        positions=c.size("num_position_embeddings"),
        deepstack=len(c.indices("deepstack_visual_indexes")),
    )


def qwen2(c: Fields, whole: Fields) -> Qwen2Vision:
    """Here `hidden_size` is the width of what the tower puts out."""
    hidden = c.size("embed_dim")
    return Qwen2Vision(
        hidden=hidden,
        intermediate=c.size("mlp_ratio") * hidden,
        num_layers=c.size("depth"),
        channels=c.size("in_channels"),
        patch_size=c.size("patch_size"),
        temporal_patch_size=c.size("temporal_patch_size"),
        merge_size=c.size("spatial_merge_size"),
        out_hidden=c.size("hidden_size"),
        gated=False,
    )


def qwen2_5(c: Fields, whole: Fields) -> Qwen2Vision:
    return Qwen2Vision(**sizes(c, QWEN), gated=True)


def pixtral(c: Fields, whole: Fields) -> PixtralVision:
    return PixtralVision(
        **sizes(c, WITH_CHANNELS),
        merge_size=whole.maybe("spatial_merge_size") or 2,
        projector_bias=whole.flag("multimodal_projector_bias"),
    )


def llama4(c: Fields, whole: Fields) -> Llama4Vision:
    return Llama4Vision(
        **sizes(c, WITH_CHANNELS),
        image_size=c.size("image_size"),
        projector_in=c.size("projector_input_dim"),
        projector_out=c.size("projector_output_dim"),
        out_hidden=c.size("vision_output_dim"),
    )


def gemma4(c: Fields, whole: Fields) -> Gemma4Vision:
    return Gemma4Vision(
        **sizes(c, USUAL),
        n_q=c.size("num_attention_heads"),
        n_kv=c.size("num_key_value_heads"),
        d_head=c.size("head_dim"),
        patch_size=c.size("patch_size"),
        positions=c.size("position_embedding_size"),
        standardize=c.flag("standardize"),
    )


def minimax(c: Fields, whole: Fields) -> MiniMaxVision:
    compression = c.get("img_token_compression_config")
    merging = c.within(compression) if isinstance(compression, Mapping) else c
    return MiniMaxVision(
        **sizes(c, WITH_CHANNELS),
        temporal_patch_size=merging.maybe("temporal_patch_size") or c.size("temporal_patch_size"),
        merge_size=merging.maybe("spatial_merge_size") or c.size("spatial_merge_size"),
        projector_hidden=whole.maybe("projector_hidden_size") or 6144,
    )


def moon(c: Fields, whole: Fields) -> MoonVision:
    height, width = two(c, "merge_kernel_size")
    return MoonVision(
        **sizes(c, USUAL),
        patch_size=c.size("patch_size"),
        positions=(c.size("pos_emb_height"), c.size("pos_emb_width")),
        merge=height * width,
    )


def intern(c: Fields, whole: Fields) -> InternVision:
    (height, width), (tall, wide) = two(c, "image_size"), two(c, "patch_size")
    ratio = whole.get("downsample_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        message = Message("downsample_ratio is {ratio}; it must be a number such as 0.5.", ratio=shown(ratio))
        raise ConfigError(message, "downsample_ratio")
    return InternVision(
        **sizes(c, USUAL | {"channels": "num_channels"}),
        patches=(height // tall) * (width // wide),
        patch_size=tall,
        qkv_bias=c.flag("attention_bias"),
        qk_norm=c.flag("use_qk_norm"),
        norm_bias=c.get("norm_type") == "layer_norm",
        merge=int(1 / ratio) ** 2,
    )


def glm4(c: Fields, whole: Fields) -> Glm4Vision:
    return Glm4Vision(
        **sizes(c, QWEN),
        patches=(c.size("image_size") // c.size("patch_size")) ** 2,
        qkv_bias=c.flag("attention_bias"),
    )


def mllama(c: Fields, whole: Fields) -> LlamaVision:
    ratios = c.get("supported_aspect_ratios")
    return LlamaVision(
        **sizes(c, WITH_CHANNELS),
        num_global_layers=c.size("num_global_layers"),
        patches=(c.size("image_size") // c.size("patch_size")) ** 2,
        tiles=c.size("max_num_tiles"),
        ratios=len(ratios) if isinstance(ratios, list) and ratios else 8,
        out_hidden=c.size("vision_output_dim"),
    )


def omni2_5(c: Fields, whole: Fields) -> OmniTowers:
    return OmniTowers(image=qwen2_5(c, whole), audio=qwen_audio(whole, convolved=False))


def omni3(c: Fields, whole: Fields) -> OmniTowers:
    return OmniTowers(image=qwen3(c, whole), audio=qwen_audio(whole, convolved=True))


IMAGE_AND_SOUND = ("vision_config", "audio_config")

GEMMA3 = Tower(gemma3, defaults.SIGLIP)
GEMMA4 = Tower(gemma4, defaults.GEMMA4)
GLM4V = Tower(glm4, defaults.GLM4)
IDEFICS2 = Tower(idefics2, defaults.IDEFICS2)
IDEFICS3 = Tower(idefics3, defaults.IDEFICS3)
INTERN = Tower(intern, defaults.INTERN)
LFM2_VL = Tower(lfm2_vl, defaults.SIGLIP2)
LLAMA4 = Tower(llama4, defaults.LLAMA4)
LLAVA = Tower(llava, {})
MINIMAX = Tower(minimax, defaults.MINIMAX)
MLLAMA = Tower(mllama, defaults.MLLAMA)
MOON = Tower(moon, defaults.MOON)
PALIGEMMA = Tower(paligemma, defaults.SIGLIP)
PIXTRAL = Tower(pixtral, defaults.PIXTRAL)
QWEN2 = Tower(qwen2, defaults.QWEN2)
QWEN2_5 = Tower(qwen2_5, defaults.QWEN2_5)
QWEN2_5_OMNI = Tower(omni2_5, defaults.QWEN2_5, IMAGE_AND_SOUND)
QWEN3 = Tower(qwen3, defaults.QWEN3)
QWEN3_OMNI = Tower(omni3, defaults.QWEN3_VL, IMAGE_AND_SOUND)
QWEN3_VL = Tower(qwen3, defaults.QWEN3_VL)
