"""The table of towers for images: how each wrapper's encoder is read, by its model_type."""

from calc.families import dots_encoders, gemma_encoders, image_codecs, image_encoders, llama_encoders
from calc.families import encoder_towers as towers
from calc.families import tower_defaults as defaults
from calc.families.encoder_towers import encoded
from calc.families.encoders import SAM
from calc.families.family import Tower

IMAGE_AND_SOUND = ("vision_config", "audio_config")
CODEC = ("vq_config",)

GLM4V = Tower(encoded("glm4v_vision", towers.no_projector, "model.visual", alone=True))
IDEFICS3 = Tower(towers.idefics3, defaults.IDEFICS3)
LLAVA_NEXT = Tower(encoded("clip_vision_model", towers.llava_next))
QWEN3 = Tower(encoded("qwen3_5_vision", towers.no_projector, "model.visual", alone=True))
QWEN3_VL = Tower(encoded("qwen3_vl_vision", towers.no_projector, "model.visual", alone=True))
ENCODED: dict[str, Tower] = {
    "aria": Tower(encoded("idefics3_vision", towers.aria)),
    "aya_vision": Tower(encoded("siglip_vision_model", towers.aya_vision)),
    "blip-2": Tower(image_encoders.blip2, image_encoders.BLIP2),
    "chameleon": Tower(image_codecs.chameleon_codec, image_codecs.CHAMELEON, CODEC),
    "cohere2_vision": Tower(encoded("siglip_vision_model", towers.cohere2_vision, "model.vision_tower")),
    "cohere_compass": QWEN3_VL,
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
    "kimi_k25": Tower(image_encoders.kimi_k25, defaults.MOON),
    "lfm2_vl": Tower(encoded("siglip2_vision_model", towers.lfm2_vl, "model.vision_tower.vision_model")),
    "llama4": Tower(llama_encoders.llama4, defaults.LLAMA4),
    "llava": Tower(encoded("clip_vision_model", towers.llava)),
    "llava_next": LLAVA_NEXT,
    "llava_onevision": Tower(encoded("siglip_vision_model", towers.llava_next)),
    "minimax_m3_vl": Tower(image_encoders.minimax, defaults.MINIMAX),
    "mistral3": Tower(encoded("pixtral", towers.mistral3)),
    "mllama": Tower(llama_encoders.mllama, defaults.MLLAMA),
    "paligemma": Tower(encoded("siglip_vision_model", towers.paligemma)),
    "perception_lm": Tower(encoded("timm_wrapper", towers.perception_lm, "model.vision_tower")),
    "qwen2_5_vl": Tower(encoded("qwen2_5_vl_vision", towers.no_projector, "visual", alone=True)),
    "qwen2_vl": Tower(encoded("qwen2_vl_vision", towers.no_projector, "visual", alone=True)),
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL,
    "smolvlm": IDEFICS3,
}
"""model_type of a wrapper -> its encoders for images, and for sound next to them."""
