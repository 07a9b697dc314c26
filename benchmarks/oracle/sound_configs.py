"""Configs of wrappers with encoders for sound alone: each class's default, and one of other sizes and flags."""

from typing import Any

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
WHISPER = {"d_model": 64, "encoder_ffn_dim": 96, "encoder_layers": 3, "encoder_attention_heads": 4, "num_mel_bins": 40}
TOKENIZER = {"num_filters": 4, "hidden_size": 24, "kernel_size": 5, "ffn_expansion": 3, "channels": 2}
QFORMER = SMALL | {"model_type": "blip_2_qformer", "cross_attention_frequency": 3, "encoder_hidden_size": 48}
ADAPTOR = {"hidden_size": 128, "intermediate_size": 32, "num_attention_heads": 4}
HEAD = {"hidden_size": 24, "num_speakers": 5, "audio_hidden_size": 48, "subsampling_factor": 4}
SOUND_CONFIGS: dict[str, list[dict[str, Any]]] = {
    "fun_asr_nano": [
        {"audio_config": {}, "adaptor_config": ADAPTOR},
        {
            "audio_config": SMALL
            | {
                "num_timestamp_prediction_layers": 1,
                "num_mel_bins": 40,
                "num_stacked_frames": 3,
                "fsmn_kernel_size": 5,
            },
            "adaptor_config": ADAPTOR | {"num_hidden_layers": 3, "projector_hidden_size": 72},
        },
    ],
    "glmasr": [{"audio_config": {}}, {"audio_config": SMALL | {"num_key_value_heads": 2, "num_mel_bins": 40}}],
    "granite_speech": [
        {"encoder_config": {}},
        {
            "encoder_config": {
                "hidden_dim": 64,
                "num_layers": 3,
                "num_heads": 4,
                "dim_head": 24,
                "input_dim": 40,
                "output_dim": 30,
                "max_pos_emb": 256,
                "conv_kernel_size": 7,
                "conv_expansion_factor": 3,
                "feedforward_mult": 2,
            },
            "projector_config": QFORMER | {"use_qformer_text_input": True},
            "window_size": 12,
            "downsample_rate": 3,
        },
    ],
    "granite_speech_plus": [
        {"encoder_config": {}},
        {
            "encoder_config": {"hidden_dim": 64, "num_layers": 3, "cat_hidden_layers": [1]},
            "projector_config": QFORMER | {"encoder_hidden_size": 128},
        },
        {"encoder_config": {"hidden_dim": 72, "num_layers": 2, "num_heads": 9, "dim_head": 24}},
    ],
    "moss_transcribe_diarize": [
        {"audio_config": {}},
        {
            "audio_config": SMALL | {"num_mel_bins": 40, "max_source_positions": 300},
            "audio_merge_size": 3,
            "projector_bias": False,
        },
    ],
    "nemo_speechlm": [
        {"audio_config": {}},
        {
            "audio_config": {
                "asr_config": SMALL | {"num_mel_bins": 40, "subsampling_factor": 4, "num_key_value_heads": 2},
                "diarization_config": {
                    "audio_config": SMALL | {"hidden_size": 48, "subsampling_factor": 4, "num_mel_bins": 40},
                    "head_config": HEAD,
                    "streaming_config": {"num_speakers": 5, "subsampling_factor": 4},
                },
            },
            "word_timestamp_config": SMALL | {"vocab_size": 500, "blank_token_id": 1, "upsampling_factor": 3},
        },
    ],
    "qwen2_audio": [{"audio_config": {}}, {"audio_config": WHISPER | {"max_source_positions": 300}}],
    "qwen3_asr": [{"audio_config": {}}, {"audio_config": WHISPER | {"downsample_hidden_size": 24, "output_dim": 128}}],
    "vibevoice_asr": [
        {"acoustic_tokenizer_encoder_config": {}},
        {"acoustic_tokenizer_encoder_config": {}, "semantic_tokenizer_encoder_config": {}},
        {
            "acoustic_tokenizer_encoder_config": TOKENIZER,
            "semantic_tokenizer_encoder_config": TOKENIZER | {"downsampling_ratios": [2, 3, 5], "depths": [1, 2, 1, 2]},
        },
    ],
    "voxtral": [{"audio_config": {}}, {"audio_config": SMALL | {"num_mel_bins": 40, "max_source_positions": 300}}],
    "voxtral_realtime": [
        {"audio_config": {}},
        {"audio_config": SMALL | {"num_mel_bins": 40, "head_dim": 24}, "downsample_factor": 3},
    ],
}
