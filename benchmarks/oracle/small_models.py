"""Small models of families without a preset, or whose presets are large; widths as their makers choose them."""

from typing import Any

LINEAR = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
SLIDING = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
GEMMA_4: dict[str, Any] = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 4096,
}
MAMBA_2: dict[str, Any] = {
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "mamba_n_heads": 64,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
}
DELTA: dict[str, Any] = {
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "layer_types": LINEAR,
}
WITHOUT_PRESET: dict[str, dict[str, Any]] = {
    "nanochat": {"hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 10, "num_key_value_heads": 10},
    "vaultgemma": {
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "sliding_window": 512,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma2": {"hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4},
    "opt": {"hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "word_embed_proj_dim": 2048},
    "apertus": {
        "hidden_size": 4096,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "bitnet": {"hidden_size": 2560, "intermediate_size": 6912, "num_attention_heads": 20, "num_key_value_heads": 5},
    "diffllama": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8},
    "gemma4_text": GEMMA_4 | {"layer_types": SLIDING, "num_kv_shared_layers": 0},
    "sarvam_moe": {  # from transformers 5.24 on, and the next
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "n_routed_experts": 16,
        "moe_intermediate_size": 512,
        "num_experts_per_tok": 4,
    },
    "lara_mini": {
        "num_attention_heads": 8,
        "num_experts": 16,
        "layer_types": ["linear_attention", "sliding_attention", "linear_attention", "full_attention"],
    },
}
SHARING_KEYS: dict[str, Any] = GEMMA_4 | {
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "final_logit_softcapping": 30.0,
}
RECURRENT: dict[str, dict[str, Any]] = {
    "qwen3_next": DELTA
    | {
        "num_experts": 32,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    "qwen3_5_text": DELTA | {"intermediate_size": 6144, "linear_num_key_heads": 16, "linear_num_value_heads": 16},
    "olmo_hybrid": {
        "hidden_size": 1920,
        "intermediate_size": 5504,
        "num_attention_heads": 15,
        "num_key_value_heads": 15,
        "layer_types": LINEAR,
        "linear_num_key_heads": 15,
        "linear_num_value_heads": 15,
        "linear_key_head_dim": 96,
        "linear_value_head_dim": 192,
    },
    "mamba2": {"hidden_size": 2048, "num_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 8},
    "granitemoehybrid": MAMBA_2
    | {
        "shared_intermediate_size": 8192,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "layer_types": ["mamba", "mamba", "attention", "mamba"],
        "position_embedding_type": "nope",
    },
    "bamba": MAMBA_2 | {"attn_layer_indices": [2], "mamba_n_groups": 1},
    "falcon_h1": {
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "mamba_d_ssm": 1536,
        "mamba_n_heads": 24,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_chunk_size": 128,
        "mamba_rms_norm": False,
    },
    "nemotron_h": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "layers_block_type": ["mamba", "mlp", "attention", "mamba"],
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "chunk_size": 128,
    },
    "minimax": {
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_local_experts": 4,
        "layer_types": LINEAR,
        "block_size": 256,
    },
}
TOKEN_BY_TOKEN: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 768, "intermediate_size": 1536, "state_size": 16},
    "falcon_mamba": {"hidden_size": 768, "intermediate_size": 1536, "state_size": 16},
    "jamba": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "mamba_d_state": 16,
        "use_mamba_kernels": False,
    },
}


def whole(kind: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """A config of four layers, unless it says how many."""
    layers = {} if "layers_block_type" in sizes else {"num_hidden_layers": 4}
    return {"model_type": kind, **layers, **sizes, "vocab_size": 4096, "pad_token_id": 0}
