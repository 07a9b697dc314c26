"""Towers for images: how the class of each is read from a vision_config."""

from collections.abc import Mapping
from typing import Any

from calc.families import dots_encoders, gemma_encoders, image_codecs, image_encoders
from calc.families import encoder_towers as towers
from calc.families import tower_defaults as defaults
from calc.families.encoder_towers import encoded
from calc.families.encoders import SAM
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.tower_parts import two
from calc.model.towers.image import (
    Llama4Vision,
    LlamaVision,
    MiniMaxVision,
    MoonVision,
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


def llama4(c: Fields, whole: Fields) -> Llama4Vision:
    return Llama4Vision(
        **sizes(c, WITH_CHANNELS),
        image_size=c.size("image_size"),
        projector_in=c.size("projector_input_dim"),
        projector_out=c.size("projector_output_dim"),
        out_hidden=c.size("vision_output_dim"),
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
        projected=whole.maybe("projection_hidden_size") or c.maybe("mm_hidden_size") or 1152,
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


IMAGE_AND_SOUND = ("vision_config", "audio_config")
CODEC = ("vq_config",)

GLM4V = Tower(encoded("glm4v_vision", towers.no_projector, "model.visual", alone=True))
IDEFICS3 = Tower(towers.idefics3, defaults.IDEFICS3)
LLAVA_NEXT = Tower(encoded("clip_vision_model", towers.llava_next))
QWEN3 = Tower(qwen3, defaults.QWEN3)
QWEN3_VL = Tower(qwen3, defaults.QWEN3_VL)
ENCODED: dict[str, Tower] = {
    "aria": Tower(encoded("idefics3_vision", towers.aria)),
    "aya_vision": Tower(encoded("siglip_vision_model", towers.aya_vision)),
    "blip-2": Tower(image_encoders.blip2, image_encoders.BLIP2),
    "chameleon": Tower(image_codecs.chameleon_codec, image_codecs.CHAMELEON, CODEC),
    "cohere2_vision": Tower(encoded("siglip_vision_model", towers.cohere2_vision, "model.vision_tower")),
    "cohere_compass": Tower(encoded("qwen3_vl_vision", towers.no_projector, "model.visual", alone=True)),
    "cosmos3_edge": Tower(image_encoders.cosmos3_edge, image_encoders.COSMOS3_EDGE),
    "cosmos3_omni": Tower(encoded("qwen3_vl_vision", towers.no_projector, "")),
    "deepseek_ocr2": Tower(image_encoders.deepseek_ocr2),
    "deepseek_vl": Tower(encoded("siglip_vision_model", towers.deepseek_vl, "model.vision_model")),
    "deepseek_vl_hybrid": Tower(encoded("siglip_vision_model", towers.deepseek_vl_hybrid, "model.vision_model")),
    "diffusion_gemma": Tower(gemma_encoders.diffusion_gemma, gemma_encoders.GEMMA4),
    "dots3_note": Tower(dots_encoders.dots3_note, dots_encoders.IMAGES, IMAGE_AND_SOUND),
    "emu3": Tower(image_codecs.emu3_codec, image_codecs.EMU3, CODEC),
    "ernie4_5_vl_moe": Tower(image_encoders.ernie, image_encoders.ERNIE),
    "exaone4_5": Tower(towers.exaone4_5, defaults.QWEN2_5 | {"num_key_value_heads": 8}),
    "fast_vlm": Tower(encoded("timm_wrapper", towers.fast_vlm, "model.vision_tower")),
    "fuyu": Tower(image_encoders.fuyu, image_encoders.FUYU, sections=()),
    "gemma3": Tower(encoded("siglip_vision_model", towers.gemma3)),
    "gemma3n": Tower(gemma_encoders.gemma3n, gemma_encoders.GEMMA3N, IMAGE_AND_SOUND),
    "gemma4": Tower(gemma_encoders.gemma4, gemma_encoders.GEMMA4, IMAGE_AND_SOUND),
    "gemma4_unified": Tower(gemma_encoders.gemma4_unified, gemma_encoders.GEMMA4_UNIFIED, IMAGE_AND_SOUND),
    "glm46v": GLM4V,
    "glm4v": GLM4V,
    "glm4v_moe": GLM4V,
    "glm5_next": Tower(image_encoders.glm5, image_encoders.GLM5),
    "glm_ocr": Tower(image_encoders.glm_ocr, image_encoders.GLM_OCR),
    "glmga": Tower(encoded("glm4v_vision", towers.no_projector, "model.visual")),
    "got_ocr2": Tower(towers.got_ocr2, {**SAM, "mlp_dim": 3072}),
    "granite4_vision": Tower(encoded("clip_vision_model", towers.granite4_vision, "model.vision_tower")),
    "granite_docling": Tower(image_encoders.granite_docling, image_encoders.GRANITE_DOCLING),
    "hunyuan_vl": Tower(image_encoders.hunyuan, image_encoders.HUNYUAN),
    "hyperclovax_vision_v2": Tower(encoded("qwen2_5_vl_vision", towers.hyperclovax, "model.vision_model")),
    "idefics2": Tower(towers.idefics2, defaults.IDEFICS2),
    "idefics3": IDEFICS3,
    "internvl": Tower(encoded("internvl_vision", towers.internvl, alone=True)),
    "kimi_k25": Tower(moon, defaults.MOON),
    "lfm2_vl": Tower(encoded("siglip2_vision_model", towers.lfm2_vl, "model.vision_tower.vision_model")),
    "llama4": Tower(llama4, defaults.LLAMA4),
    "llava": Tower(encoded("clip_vision_model", towers.llava)),
    "llava_next": LLAVA_NEXT,
    "llava_onevision": Tower(encoded("siglip_vision_model", towers.llava_next)),
    "minimax_m3_vl": Tower(minimax, defaults.MINIMAX),
    "mistral3": Tower(encoded("pixtral", towers.mistral3)),
    "mllama": Tower(mllama, defaults.MLLAMA),
    "paligemma": Tower(encoded("siglip_vision_model", towers.paligemma)),
    "perception_lm": Tower(encoded("timm_wrapper", towers.perception_lm, "model.vision_tower")),
    "qwen2_5_vl": Tower(qwen2_5, defaults.QWEN2_5),
    "qwen2_vl": Tower(qwen2, defaults.QWEN2),
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL,
    "smolvlm": IDEFICS3,
}
"""model_type of a wrapper -> its encoders for images, and for sound next to them."""
