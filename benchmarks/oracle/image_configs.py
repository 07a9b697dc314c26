"""Configs of wrappers with encoders for images, from i to z: each class's default, and one of other sizes and flags."""

from typing import Any

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
QFORMER = SMALL | {"encoder_hidden_size": 64, "vocab_size": 50, "max_position_embeddings": 32}
SAM_SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "output_channels": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 64,
    "patch_size": 8,
    "qkv_bias": False,
    "window_size": 4,
    "global_attn_indexes": [1],
    "mlp_dim": 96,
}
KOSMOS = {"embed_dim": 128, "attention_heads": 4, "layers": 2, "ffn_dim": 96, "vocab_size": 300}
OPT = {"word_embed_proj_dim": 128, "ffn_dim": 96}
INKLING2_TEXT = {"unpadded_vocab_size": 300}
INKLING2_LOOP = INKLING2_TEXT | {
    "loop_layer_index_start": 1,
    "loop_layer_index_end": 2,
    "n_layers_per_attn_res_block": 1,
}
INKLING2 = [
    {"vision_config": {"text_hidden_size": 128}, "text_config": INKLING2_TEXT},
    {
        "vision_config": SMALL
        | {"text_hidden_size": 128, "patch_size": 8, "spatial_merge_size": 3, "posemb_grid_size": 5}
        | {"projection_hidden_dim": 72, "projector_bias": True},
        "text_config": INKLING2_TEXT,
    },
    {
        "vision_config": {"text_hidden_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "mlp_ratio": 2.5},
        "text_config": INKLING2_TEXT,
    },
]
IMAGE_CONFIGS: dict[str, list[dict[str, Any]]] = {
    "instructblip": [
        {"vision_config": {}},
        {
            "vision_config": SMALL | {"image_size": 56, "qkv_bias": False},
            "qformer_config": QFORMER | {"cross_attention_frequency": 3},
            "num_query_tokens": 8,
        },
    ],
    "instructblipvideo": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"image_size": 56}, "qformer_config": QFORMER, "num_query_tokens": 8},
    ],
    "kosmos-2": [
        {"vision_config": {}, "text_config": KOSMOS},
        {"vision_config": SMALL | {"image_size": 56}, "text_config": KOSMOS, "latent_query_num": 8},
    ],
    "kosmos-2.5": [
        {"vision_config": {}, "text_config": KOSMOS},
        {
            "vision_config": SMALL | {"head_dim": 24, "patch_embed_hidden_size": 48, "max_num_patches": 100},
            "text_config": KOSMOS,
            "latent_query_num": 8,
        },
    ],
    "lighton_ocr": [
        {"vision_config": {"model_type": "pixtral"}},
        {"vision_config": SMALL | {"model_type": "pixtral", "head_dim": 16, "patch_size": 8}, "spatial_merge_size": 3},
    ],
    "llava_next_video": [
        {"vision_config": {"model_type": "clip_vision_model"}},
        {"vision_config": SMALL | {"model_type": "siglip_vision_model"}, "multimodal_projector_bias": False},
    ],
    "minicpm_ocr": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"image_size": 64, "window_kernel_size": [2, 3]}, "merger_times": 2},
    ],
    "minicpmv4_6": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"image_size": 64, "insert_layer_id": 1}, "merge_kernel_size": [3, 2]},
    ],
    "minicpmv4_7": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"image_size": 64, "insert_layer_id": 1}, "merger_times": 3},
    ],
    "mistral_large4": [
        {"vision_config": {"model_type": "pixtral"}},
        {
            "vision_config": SMALL | {"model_type": "pixtral", "head_dim": 16, "patch_size": 8},
            "spatial_merge_size": 3,
            "vision_feature_layer": [-1, -2],
            "multimodal_projector_bias": True,
        },
    ],
    "molmo2": [
        {"vision_config": {}},
        {
            "vision_config": SMALL
            | {"num_key_value_heads": 2, "head_dim": 24, "num_position_embeddings": 50, "attention_bias": False},
            "adapter_config": {
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 24,
                "vision_feature_layer": [2, 1, 0],
                "intermediate_size": 72,
                "text_hidden_size": 128,
                "attention_bias": False,
                "mlp_bias": True,
            },
        },
    ],
    "paddleocr_vl": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"image_size": 56, "spatial_merge_size": 3}},
    ],
    "qwen4_exp": [
        {"vision_config": {}},
        {"vision_config": {"depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4}},
    ],
    "shieldgemma2": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"image_size": 56, "patch_size": 14, "vision_use_head": False}},
    ],
    "video_llama_3": [{"vision_config": {}}, {"vision_config": SMALL | {"patch_size": 8, "num_channels": 1}}],
    "video_llava": [
        {"vision_config": {"model_type": "clip_vision_model"}},
        {"vision_config": SMALL | {"model_type": "siglip_vision_model"}, "multimodal_projector_bias": False},
    ],
    "vipllava": [
        {"vision_config": {"model_type": "clip_vision_model"}},
        {"vision_config": SMALL | {"model_type": "siglip_vision_model"}, "vision_feature_layer": [-2, -3]},
        {"vision_config": SMALL | {"model_type": "clip_vision_model"}, "vision_feature_layer": -2},
    ],
    "inkling2": INKLING2,
    "inkling2_loop": [{**config, "text_config": INKLING2_LOOP} for config in INKLING2],
    "janus": [
        {"vision_config": {}},
        {
            "vision_config": {
                "hidden_size": 64,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "image_size": 64,
                "mlp_ratio": 2.5,
                "attention_bias": False,
                "use_qk_norm": True,
                "projection_dim": 128,
                "depth": 3,
            },
            "vq_config": {
                "embed_dim": 4,
                "num_embeddings": 50,
                "double_latent": True,
                "latent_channels": 32,
                "base_channels": 32,
                "channel_multiplier": [1, 2, 2],
                "num_res_blocks": 1,
                "projection_dim": 128,
                "num_hidden_layers": 3,
                "image_token_embed_dim": 128,
            },
        },
    ],
    "lfm3_vl": [
        {"vision_config": {}},
        {
            "vision_config": SMALL
            | {"num_key_value_heads": 2, "layer_types": ["full_attention", "conv", "full_attention"]}
            | {"conv_kernel_size": 5, "spatial_merge_size": 3, "temporal_patch_size": 1, "patch_size": 8},
            "projector_hidden_size": 72,
            "projector_bias": False,
        },
    ],
    "muse_glimmer": [
        {"vision_config": {}},
        {
            "vision_config": SMALL | {"patch_temporal": 3, "patch_size": 8, "pos_emb_height": 8, "pos_emb_width": 8},
            "out_hidden_size": 256,
            "projector_hidden_size": 72,
        },
    ],
    "muse_spark": [
        {"vision_config": {}, "audio_config": {"out_hidden_size": 128}},
        {
            "vision_config": SMALL | {"patch_size": 8, "pos_emb_height": 8, "pos_emb_width": 8},
            "audio_config": {
                "out_hidden_size": 128,
                "num_hidden_layers": 3,
                "patch_sizes": [4, 3, 2],
                "hidden_sizes": [8, 16, 48],
                "depths": [1, 3, 2],
                "mlp_ratio": 2.5,
                "conv_kernel_size": 3,
            },
            "out_hidden_size": 256,
        },
    ],
    "ovis2": [
        {"vision_config": {}},
        {
            "vision_config": SMALL
            | {"image_size": 56, "qkv_bias": True, "mlp_bias": True, "vocab_size": 200, "hidden_stride": 2}
            | {"num_visual_indicator_tokens": 3},
            "hidden_size": 128,
        },
    ],
    "pp_chart2table": [
        {"vision_config": {}, "text_config": {"hidden_size": 1024}},
        {"vision_config": SAM_SMALL | {"use_abs_pos": False}, "text_config": {"hidden_size": 128}},
    ],
    "qianfan_ocr": [
        {"vision_config": {}},
        {
            "vision_config": SMALL
            | {"image_size": [56, 84], "attention_bias": False, "use_qk_norm": True, "norm_type": "rms_norm"}
            | {"use_mask_token": True, "use_mean_pooling": False, "use_absolute_position_embeddings": False},
            "downsample_ratio": 0.25,
        },
    ],
    "step3p7": [
        {"vision_config": {}},
        {
            "vision_config": {"width": 64, "layers": 3, "heads": 4, "image_size": 56, "mlp_ratio": 2.5},
            "projector_bias": True,
        },
    ],
    "unlimited_ocr": [
        {"vision_config": {}},
        {
            "vision_config": {
                "sam_config": SAM_SMALL | {"downsample_channels": [24, 40]},
                "encoder_config": SMALL | {"hidden_size": 40, "image_size": 56, "patch_size": 14},
            },
        },
    ],
    "inkling_mm_model": [
        {"vision_config": {"patch_size": 8, "n_layers": 5}, "audio_config": {}},
        {
            "vision_config": {"patch_size": 12, "temporal_patch_size": 3, "n_layers": 9, "num_channels": 1},
            "audio_config": {"n_mel_bins": 20, "mel_vocab_size": 32},
        },
        {"vision_config": {"patch_size": 30, "temporal_patch_size": 4, "n_layers": 8}},
    ],
    "nemotron_h_omni": [
        {"vision_config": {"video_temporal_patch_size": 2}},
        {
            "vision_config": {
                "hidden_size": 64,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "mlp_ratio": 2.5,
                "qkv_bias": False,
                "use_swiglu_ffn": True,
                "patch_size": 8,
                "max_img_size": 64,
                "num_cls_tokens": 2,
                "num_registers": 3,
                "summary_idxs": [0],
                "video_temporal_patch_size": 3,
            },
            "text_config": {"num_nextn_predict_layers": 1},
            "audio_config": SMALL
            | {"num_key_value_heads": 2, "conv_kernel_size": 5, "num_mel_bins": 40, "subsampling_conv_channels": 24}
            | {"subsampling_factor": 4, "projection_hidden_size": 72, "projection_bias": True, "attention_bias": True},
            "vision_hidden_size": 64,
            "projector_hidden_size": 80,
            "video_temporal_patch_size": 3,
        },
        {
            "vision_config": {"video_temporal_patch_size": 2},
            "audio_config": {"projection_hidden_size": 72, "projection_bias": False, "convolution_bias": False},
        },
    ],
    "kimi_k25": [
        {"vision_config": {}},
        {"vision_config": SMALL | {"merge_kernel_size": [2, 3], "pos_emb_height": 8, "pos_emb_width": 8}},
        {"vision_config": SMALL, "projection_hidden_size": 64},
    ],
    "idefics": [
        {"vision_config": {}},
        {
            "vision_config": {"embed_dim": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "image_size": 56},
            "perceiver_config": {"resampler_depth": 2, "resampler_head_dim": 24, "qk_layer_norms_perceiver": True},
            "use_resampler": True,
        },
    ],
    "phi4_multimodal": [
        {"vision_config": {}, "audio_config": {}},
        {
            "vision_config": SMALL | {"image_size": 84, "crop_size": 84, "patch_size": 14},
            "audio_config": {
                "hidden_size": 64,
                "intermediate_size": 48,
                "num_blocks": 3,
                "num_attention_heads": 4,
                "ext_pw_out_channel": 64,
                "depthwise_separable_out_channel": 64,
                "depthwise_multiplier": 2,
                "kernel_size": 5,
                "input_size": 50,
                "time_reduction": 4,
                "bias_max_distance": 20,
                "bias_symmetric": True,
                "nemo_conv_channels": 24,
                "downsample_rate": 2,
            },
        },
    ],
}
