"""Configs of towers for images and sound, by wrapper: each class's default, and one of other sizes and flags."""

from collections.abc import Iterator
from typing import Any

from benchmarks.oracle.image_configs import IMAGE_CONFIGS
from benchmarks.oracle.sound_configs import SOUND_CONFIGS
from calc.families.family_table import WRAPPED

Config = dict[str, Any]
TEXT = {"num_hidden_layers": 2, "hidden_size": 128, "vocab_size": 300, "pad_token_id": 0}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2}
"""The language model, which the counts leave out."""


def tower_configs(*names: str) -> Iterator[Config]:
    """Of all wrappers, or of some."""
    for name in names or TOWER_CONFIGS:
        for own in TOWER_CONFIGS[name]:
            if name not in WRAPPED:
                yield {"model_type": name, **TEXT, **own}
                continue
            text = {"model_type": WRAPPED[name], **TEXT, **own.get("text_config", {})}
            yield {"model_type": name, **own, "text_config": text}


def images(*sections: Config, **whole: Any) -> list[Config]:
    """Configs of wrappers whose encoder's section is one of these."""
    return [{"vision_config": section, **whole} for section in sections]


SOUND = {
    "d_model": 64,
    "encoder_attention_heads": 4,
    "encoder_layers": 2,
    "encoder_ffn_dim": 96,
    "num_mel_bins": 40,
    "output_dim": 128,
}
HY4 = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [12, 10, 10]}, "q_lora_rank": 24}
APERTUS = {"vocab_size": 266752}  # its tokens of images and sounds are of the vocabulary
VQ_ENCODER = {"base_channels": 32, "channel_multiplier": [1, 2, 2], "num_res_blocks": 2, "attn_resolutions": [64]}
VQ_ENCODER |= {"latent_channels": 24, "embed_dim": 40}
WAVES = {"num_filters": 8, "num_residual_layers": 2, "num_lstm_layers": 1, "upsampling_ratios": [4, 2], "compress": 4}
WAVES |= {"use_conv_shortcut": False, "hidden_size": 48, "codebook_dim": 48, "kernel_size": 5, "last_kernel_size": 3}
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
QWEN = {"depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 128}
SAM = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "output_channels": 24, "image_size": 128}
SAM |= {"global_attn_indexes": [1], "window_size": 4, "qkv_bias": False, "use_abs_pos": False}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
COMPASS = {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}}
ERNIE = {"hidden_size": 512, "moe_intermediate_size": [48, 32]}
GLM5 = {"num_key_value_heads": 4, "qk_rope_head_dim": 0}
"""What the classes of some language models need."""
FASTVIT = {"model_type": "timm_wrapper", "architecture": "fastvit_mci3", "model_args": {"inference_mode": True}}
FASTVIT |= {"hidden_size": 3072}
PERCEPTION = {"model_type": "timm_wrapper"}
PERCEPTION_ARGUMENTS = {"depth": 23, "embed_dim": 1024, "global_pool": "", "img_size": [448, 448], "init_values": 0.1}
PERCEPTION_ARGUMENTS |= {"ref_feat_shape": [32, 32], "use_post_transformer_norm": False}
GEMMA3N: Config = {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "intermediate_size": 96}
GEMMA3N |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "activation_sparsity_pattern": [0.0] * 4}
GEMMA3N_AUDIO: Config = {"hidden_size": 64, "conf_num_hidden_layers": 2, "conf_num_attention_heads": 4}
GEMMA3N_AUDIO |= {"conf_conv_kernel_size": 3, "sscp_conv_channel_size": [16, 8], "input_feat_size": 80}
GEMMA3N_AUDIO |= {"sscp_conv_kernel_size": [[3, 5], [3, 3]], "sscp_conv_stride_size": [[2, 2], [1, 3]]}
GEMMA4 = SMALL | {"num_key_value_heads": 2, "head_dim": 24, "position_embedding_size": 100}
GEMMA4_AUDIO = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "output_proj_dims": 72}
GEMMA4_AUDIO |= {"subsampling_conv_channels": [16, 8], "conv_kernel_size": 3, "use_clipped_linears": False}
DOTS = {"num_key_value_heads": 4, "q_lora_rank": 24, "head_dim": 24, "swa_num_attention_heads": 2}
DOTS |= {"swa_num_key_value_heads": 2, "swa_v_head_dim": 20, "mlp_layer_types": ["dense", "dense"]}
DOTS_IMAGES: Config = {
    **SMALL,
    "moe_intermediate_size": 40,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "num_local_experts": 4,
    "per_layer_config": {"2": {"num_local_experts": 6}},
    "attention_bias": True,
    "adapter_in_dim": 64,
    "adapter_out_dim": 128,
}
DOTS_SOUND: Config = {
    "whisper_config": {"d_model": 64, "encoder_layers": 2, "encoder_ffn_dim": 96, "encoder_attention_heads": 4},
    "attention_bias": False,
    "feature_size": 40,
    "downsample_hidden_size": 24,
    "adapter_input_size": 64,
    "adapter_out_dim": 128,
}
VQ: Config = {"base_channels": 32, "channel_multiplier": [1, 1, 2], "latent_channels": 8, "embed_dim": 16}
VQ |= {"num_res_blocks": 1, "double_latent": True}
TOWER_CONFIGS: dict[str, list[Config]] = {
    "blip-2": [
        *images({}),
        {
            "vision_config": SMALL | {"image_size": 56, "qkv_bias": False},
            "qformer_config": {
                "hidden_size": 48,
                "num_hidden_layers": 3,
                "encoder_hidden_size": 64,
                "num_attention_heads": 4,
            },
            "num_query_tokens": 8,
        },
    ],
    "cosmos3_edge": images({}, SMALL | {"num_patches": 64}, projector_hidden_size=88),
    "cosmos3_omni": images({}, QWEN | {"deepstack_visual_indexes": [0]}),
    "cohere_compass": images({}, QWEN | {"deepstack_visual_indexes": [0]}, text_config=COMPASS),
    "deepseek_ocr2": images(
        {},
        {
            "sam_config": SAM | {"mlp_dim": 96, "downsample_channels": [40, 56]},
            "encoder_config": {**SMALL, "num_key_value_heads": 2},
        },
        text_config={
            "mlp_layer_types": ["dense", "dense"],
            "num_experts": 4,
            "n_shared_experts": 1,
            "moe_intermediate_size": 64,
        },
    ),
    "dots3_note": [
        {"vision_config": {}, "audio_config": {}, "text_config": DOTS | {"hidden_size": 5120}},
        {"vision_config": DOTS_IMAGES, "audio_config": DOTS_SOUND, "text_config": DOTS},
    ],
    "emu3": [
        {"vq_config": {}, "vocabulary_map": {"<image>": 1}},
        {"vq_config": VQ | {"attn_resolutions": [0, 2], "hidden_size": 64}, "vocabulary_map": {"<image>": 1}},
    ],
    "ernie4_5_vl_moe": images({}, SMALL | {"depth": 3, "num_heads": 4, "temporal_merge_size": 3}, text_config=ERNIE),
    "fast_vlm": [*images(FASTVIT), *images(FASTVIT, multimodal_projector_bias=False)],
    "fuyu": [{}, {"patch_size": 14, "num_channels": 1}],
    "glm5_next": images({}, QWEN | {"attention_bias": False, "projection_intermediate_size": 88}, text_config=GLM5),
    "glm_ocr": images({}, QWEN | {"attention_bias": False}),
    "granite_docling": [
        *images({"out_hidden_size": 128}, density_router_hidden_size=40),
        *images(SMALL | {"out_hidden_size": 128, "use_fine_route": False, "deepstack_visual_indexes": [1]}),
    ],
    "hunyuan_vl": images({}, SMALL | {"max_image_size": 256}, text_config={"head_dim": 32}),
    "hy_v4_vl": images(
        {}, SMALL | {"max_image_size": 256, "spatial_merge_size": 3, "out_hidden_size": 128}, text_config=HY4
    ),
    "apertus1p5": [
        {"vision_config": {}, "audio_config": {}, "text_config": APERTUS},
        {"vision_config": VQ_ENCODER, "audio_config": WAVES, "text_config": APERTUS},
        {"vision_config": VQ_ENCODER, "audio_config": WAVES | {"norm_type": "time_group_norm"}, "text_config": APERTUS},
    ],
    "aria": [
        *images({}),
        *images(SMALL | {"image_size": 64}, projector_patch_to_query_dict={"4": 24, "16": 40}),
    ],
    "aya_vision": [
        *images({}),
        *images(SMALL | {"vision_use_head": False}, downsample_factor=4, alignment_intermediate_size=88),
    ],
    "chameleon": [
        {"vq_config": {}, "vocabulary_map": {}},
        {"vq_config": VQ | {"attn_resolutions": [256], "attn_type": "linear"}, "vocabulary_map": {}},
        {"vq_config": VQ | {"attn_resolutions": [256], "num_embeddings": 40}, "vocabulary_map": {}},
    ],
    "cohere2_vision": [*images({}), *images(SMALL, downsample_factor=4, alignment_intermediate_size=88)],
    "deepseek_vl": images({}, SMALL | {"image_size": 56, "patch_size": 14}),
    "deepseek_vl_hybrid": [
        {"vision_config": {}, "high_res_vision_config": {}},
        {"vision_config": SMALL, "high_res_vision_config": SAM | {"mlp_ratio": 2.5}},
    ],
    "exaone4_5": images({}, QWEN | {"num_key_value_heads": 2}),
    "gemma3": images(SMALL | {"image_size": 56, "patch_size": 14}),
    "diffusion_gemma": images(
        {},
        GEMMA4 | {"standardize": True, "use_clipped_linears": True},
        text_config={"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 40},
        tie_word_embeddings=True,
    ),
    "gemma3n": [
        {"vision_config": {}, "audio_config": {}, "text_config": GEMMA3N},
        {"vision_config": {"vocab_size": 40}, "audio_config": GEMMA3N_AUDIO, "text_config": GEMMA3N},
    ],
    "gemma4": [
        *images({}, GEMMA4 | {"use_clipped_linears": True, "standardize": True}, audio_config={}),
        {"vision_config": GEMMA4, "audio_config": GEMMA4_AUDIO},
        {"audio_config": GEMMA4_AUDIO},
    ],
    "gemma4_unified": [
        {"vision_config": {}, "audio_config": {}},
        {"vision_config": {"patch_size": 8, "mm_embed_dim": 72, "mm_posemb_size": 40, "output_proj_dims": 56}},
        {"audio_config": {"audio_embed_dim": 88}},
    ],
    "glm4v": images({}, SMALL | {"depth": 3, "out_hidden_size": 112, "attention_bias": True, "num_heads": 4}),
    "glmga": images({}, SMALL | {"depth": 3, "out_hidden_size": 112, "attention_bias": True, "num_heads": 4}),
    "got_ocr2": images({}, SAM | {"mlp_dim": 96, "use_rel_pos": False}, SAM | {"mlp_dim": 96}),
    "granite4_vision": [
        {"vision_config": {}, "deepstack_layer_map": [[0, 0]], "downsample_rate": "4/8"},
        {
            "vision_config": SMALL,
            "qformer_config": {"num_hidden_layers": 3, "use_qformer_text_input": True},
            "deepstack_layer_map": [[0, 0], [1, 1]],
            "downsample_rate": "2/4",
        },
    ],
    "hyperclovax_vision_v2": images({}, QWEN),
    "idefics2": images({}, SMALL | {"patch_size": 16}),
    "idefics3": images({}, SMALL | {"patch_size": 16}),
    "internvl": images(
        {},
        SMALL | {"attention_bias": True, "use_qk_norm": True, "norm_type": "rms_norm", "image_size": [56, 56]},
    ),
    "lfm2_vl": images({}, SMALL | {"vision_use_head": False, "num_patches": 64}),
    "llava": images(
        {"model_type": "clip_vision_model"},
        SMALL | {"model_type": "siglip_vision_model", "vision_use_head": False},
        SMALL | {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14},
        SMALL | {"model_type": "siglip2_vision_model", "num_patches": 64},
        SMALL | {"model_type": "pixtral", "head_dim": 16},
        SMALL | {"model_type": "internvl_vision", "use_mean_pooling": False, "use_mask_token": True},
        SMALL | {"model_type": "internvl_vision", "use_absolute_position_embeddings": False, "image_size": [56, 56]},
        QWEN | {"model_type": "qwen2_5_vl_vision", "out_hidden_size": 64},
        SMALL | {"model_type": "idefics3_vision"},
        FASTVIT,
    ),
    "llava_next": images(SMALL | {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}),
    "llava_onevision": images(SMALL | {"model_type": "siglip_vision_model"}),
    "mllama": images({}, SMALL | {"num_global_layers": 2, "attention_heads": 4, "image_size": 56}),
    "paligemma": images({"model_type": "siglip_vision_model"}, SMALL | {"vision_use_head": False}),
    "perception_lm": images(
        PERCEPTION | {"architecture": "vit_pe_core_large_patch14_336", "model_args": PERCEPTION_ARGUMENTS},
        PERCEPTION
        | {
            "architecture": "vit_pe_lang_gigantic_patch14_448",
            "model_args": {"embed_dim": 192, "depth": 3, "global_pool": "", "img_size": 224},
        },
        PERCEPTION
        | {
            "architecture": "vit_pe_core_gigantic_patch14_448",
            "model_args": {"embed_dim": 192, "depth": 2, "global_pool": "", "img_size": [224, 280]},
        },
    ),
    "smolvlm": images({}, SMALL),
    "llama4": images(SMALL | {"intermediate_size": 256, "projector_input_dim": 80, "projector_output_dim": 72}),
    "minimax_m3_vl": images({}, SMALL | {"temporal_patch_size": 1, "spatial_merge_size": 3}),
    "mistral3": images({}, SMALL | {"head_dim": 16, "patch_size": 8}),
    "qwen2_5_omni_thinker": images({}, QWEN, audio_config=SOUND),
    "qwen3_omni_moe_thinker": images({}, QWEN, audio_config=SOUND | {"downsample_hidden_size": 24}),
    "qwen2_vl": images({}, {"depth": 3, "embed_dim": 64, "hidden_size": 128, "num_heads": 4, "mlp_ratio": 2}),
    "qwen2_5_vl": images({}, QWEN),
    "qwen3_vl": images({}, QWEN),
    "qwen3_5": images({}, QWEN),
}
TOWER_CONFIGS |= IMAGE_CONFIGS | SOUND_CONFIGS
