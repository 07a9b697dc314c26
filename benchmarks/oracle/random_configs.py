"""Small configs of every family, with each flag that its class has drawn at random."""

import random
from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from calc.families.family_table import FAMILIES

FLAGS = """
    tie_word_embeddings attention_bias mlp_bias use_bias bias qkv_bias use_qkv_bias use_qk_norm qk_layernorm
    lm_head_bias
    use_parallel_residual parallel_attn new_decoder_architecture multi_query use_sliding_window use_conv_bias
    mamba_conv_bias mamba_proj_bias mamba_rms_norm projectors_bias conv_bias use_expert_bias block_auto_adjust_ff_dim
    do_layer_norm_before enable_bias add_bias_linear use_shared_attention_adapter attention_k_eq_v enable_moe_block
    use_double_wide_mlp use_bidirectional_attention is_moe qk_layer_norms
    relative_attention position_biased_input norm_bias classifier_bias decoder_bias
""".split()
SIZES: dict[str, list[Any]] = {
    "hidden_size": [64, 128],
    "n_embd": [64, 128],
    "d_model": [64, 128],
    "intermediate_size": [96, 112],
    "intermediate_size_mlp": [80],
    "dense_intermediate_size": [80],
    "ffn_dim": [96, 112],
    "n_inner": [None, 100],
    "num_hidden_layers": [2, 3, 4, 6],
    "n_layer": [2, 3],
    "n_layers": [2, 3],
    "num_attention_heads": [4, 8],
    "num_heads": [4, 8],
    "n_head": [4, 8],
    "n_heads": [4, 8],
    "num_key_value_heads": [1, 2, 4],
    "head_dim": [8, 16, 24],
    "vocab_size": [300, 333],
    "vocab_size_per_layer_input": [200],
    "hidden_size_per_layer_input": [16],
    "max_position_embeddings": [128],
    "n_positions": [128],
    "max_seq_len": [128],
    "word_embed_proj_dim": [48, 64],
    "sliding_window": [32, 64],
    "max_window_layers": [0, 1, 2],
    "no_rope_layer_interval": [2, 4],
    "full_attention_interval": [2, 4],
    "q_lora_rank": [None, 24],
    "kv_lora_rank": [32],
    "o_lora_rank": [16],
    "o_groups": [2],
    "qk_nope_head_dim": [16],
    "qk_rope_head_dim": [8],
    "v_head_dim": [12, 16],
    "index_n_heads": [2],
    "index_head_dim": [16],
    "n_routed_experts": [4, 8],
    "num_experts": [4, 8],
    "num_local_experts": [4, 8],
    "moe_num_experts": [4, 8],
    "num_experts_per_tok": [1, 2],
    "num_experts_per_token": [1, 2],
    "top_k_experts": [1, 2],
    "moe_k": [1, 2],
    "moe_topk": [1, 2],
    "n_shared_experts": [1, 2],
    "num_shared_experts": [1, 2],
    "moe_num_shared_experts": [1, 2],
    "shared_expert_intermediate_size": [40, 64],
    "shared_intermediate_size": [40, 64],
    "moe_shared_expert_intermediate_size": [40],
    "moe_intermediate_size": [48, 56],
    "moe_latent_size": [None, 32],
    "first_k_dense_replace": [0, 1, 2],
    "num_dense_layers": [0, 1],
    "mlp_only_layers": [[], [0], [1]],
    "decoder_sparse_step": [1, 2],
    "interleave_moe_layer_step": [1, 2],
    "n_group": [1],
    "topk_group": [1],
    "num_expert_group": [1],
    "linear_num_key_heads": [2],
    "linear_num_value_heads": [2, 4],
    "linear_key_head_dim": [8, 16],
    "linear_value_head_dim": [8, 16],
    "linear_conv_kernel_dim": [3, 4],
    "linear_head_dim": [16],
    "linear_num_heads": [4],
    "attn_layer_period": [2, 3],
    "attn_layer_offset": [0, 1],
    "expert_layer_period": [2],
    "expert_layer_offset": [0, 1],
    "mamba_d_state": [8, 16],
    "mamba_d_conv": [3, 4],
    "mamba_n_groups": [1, 2],
    "mamba_dt_rank": [5, "auto"],
    "state_size": [8, 16],
    "ssm_state_size": [8, 16],
    "conv_kernel": [3, 4],
    "n_groups": [1, 2],
    "time_step_rank": [5, "auto"],
    "mamba_num_heads": [4],
    "mamba_head_dim": [8, 16],
    "lru_width": [64],
    "conv1d_width": [3, 4],
    "conv_L_cache": [3, 4],
    "laurel_rank": [8],
    "num_mem_blocks": [1, 2],
    "adapter_rank": [8],
    "dim": [64, 128],
    "hidden_dim": [96, 112],
    "embedding_size": [48, 64],
    "type_vocab_size": [1, 2],
    "num_hidden_groups": [1, 2],
    "inner_group_num": [1, 2],
    "position_buckets": [-1, 16],
    "max_relative_positions": [-1, 40],
    "pos_att_type": [None, ["c2p"], ["c2p", "p2c"]],
    "local_attention": [16, 32],
    "relative_attention_num_buckets": [16],
}
OPTIONAL = {*FLAGS, "mlp_only_layers", "head_dim", "mamba_dt_rank", "time_step_rank", "conv_kernel"}
WORDS = {"layer_types", "mlp_layer_types"}
MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "hidden_size": 64, "mamba_expand": 2}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
INKLING2 = {"vocab_size": 300, "unpadded_vocab_size": 300}  # checkpoints store all rows, the class loads the latter
FIXED: dict[str, dict[str, Any]] = {
    "bamba": MAMBA_2,
    "chameleon": {"vocabulary_map": {}, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 80, "moe_num_experts": 8, "moe_top_k": 2},
    },
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse", "sparse"], "num_hidden_layers": 3},
    "dory": {"num_hidden_layers": 10, "n_input_layers": 4, "n_output_layers": 2, "n_recurrent_layers": None}
    | {
        "layer_types": [
            word for kind in ("sliding", "full", "sliding", "sliding", "full") for word in (f"{kind}_attention", "mlp")
        ]
    },
    "ernie4_5_vl_moe_text": {"hidden_size": 512, "num_attention_heads": 4, "moe_intermediate_size": [48, 32]},
    "falcon_h1": {**MAMBA_2, "mamba_d_ssm": 128},
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "intermediate_size": 96}
    | {"layer_types": ["sliding_attention", "full_attention"] * 2, "activation_sparsity_pattern": [0.0] * 4},
    "gemma4_text": {"use_bidirectional_attention": None},
    "granite_docling_text": {"hidden_size": 64},
    "granitemoehybrid": MAMBA_2,
    "helium": {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16},
    "hunyuan_vl_text": {"head_dim": 24},
    "idefics": {"additional_vocab_size": 2, "cross_layer_interval": 2, "vision_config": {"embed_dim": 48}},
    "kosmos_2_text_model": {"embed_dim": 64, "attention_heads": 4, "layers": 3},
    "kosmos_2_5_text_model": {"embed_dim": 64, "attention_heads": 4, "layers": 3},
    "inkling_text": {"swa_num_attention_heads": 8, "swa_num_key_value_heads": 4, "swa_head_dim": 16}
    | {"sliding_window_size": 40, "rel_extent": 96},
    "inkling2_text": INKLING2,
    "inkling2_loop_text": INKLING2
    | {"n_layers_per_attn_res_block": 2, "loop_layer_index_start": 2, "loop_layer_index_end": 4, "loop_gate_rank": 8}
    | {"num_hidden_layers": 6, "layer_types": None},
    "hy_v4_vl_text": {"rope_parameters": ROPE | {"mrope_section": [2, 1, 1]}, "q_lora_rank": 24},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"]},
    "longcat_flash": {"q_lora_rank": 24, "num_layers": 3, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 40}
    | {"zero_expert_num": 0},  # the class gives such experts a first matrix, the checkpoint nothing
    "qwen4_exp_text": {"indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 24, "indexer_budget": 32}
    | {"indexer_compress_ratio": 8, "hc_count": 3, "hc_lowrank": 20, "num_hidden_layers": 5, "eos_token_id": 3}
    | {"ple_layer_ids": [1, 2, 5], "ngram_vocab_size_base": 400, "heads_per_ngram": 2, "split_ngram_parts": 4}
    | {"layer_types": ["linear_attention"] * 2 + ["full_attention"] * 2 + ["linear_attention"], "hidden_size": 64}
    | {"rope_parameters": ROPE},
    "mistral_large4_text": {"num_hidden_layers": 4, "kv_source_layers": [0, 1, 0, 3], "num_key_value_heads": 4}
    | {"num_attention_heads": 4, "layer_types": None, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
    | {"indexer_types": ["full", "shared", "full", "shared"]},
    "glm5_next_text": {"q_lora_rank": 24, "qk_rope_head_dim": 0, "num_attention_heads": 4, "num_key_value_heads": 4}
    | {"index_kpool": 4},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 40}
    | {"tie_word_embeddings": True},  # else the class keeps two stacks
    "hrm_text": {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "mlp_bias": False}
    | {"attention_bias": False},  # the class packs matrices as it saves them, and leaves their biases apart
    "zaya": {"num_experts_per_tok": 1, "sliding_window": 32},
    "blt": {"encoder_hash_byte_group_vocab": 100, "cross_attn_k": 2, "tie_word_embeddings": False},
    "dots3_note_text": {"q_lora_rank": 24, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 24}
    | {"swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_v_head_dim": 20},
    "mamba2": {"hidden_size": 64, "expand": 2, "num_heads": 8, "head_dim": 16},
    "mimo_v2_flash": {"num_key_value_heads": 2, "swa_num_key_value_heads": 4},
    "muse_spark_text": {"hidden_size": 64, "moe_hidden_size": 32},
    "nemotron_h": {"hidden_size": 64},
    "opt": {"hidden_size": 64},
    "zamba": {
        "tie_word_embeddings": True,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "attention_head_dim": 16,
    }
    | {"attention_hidden_size": 128, "num_hidden_layers": 6},
    "zamba2": {
        "tie_word_embeddings": True,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "n_mamba_heads": 8,
    }
    | {"mamba_ngroups": 1, "num_hidden_layers": 5}
    | {"layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]},
}


ASSISTANTS = {"gemma4_assistant": "gemma4_text", "gemma4_unified_assistant": "gemma4_unified_text"}
"""Those whose class takes no empty config, and what their text_config is."""
WITHOUT_CACHE: dict[str, Any] = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
WITHOUT_CACHE |= {"enable_moe_block": False, "use_double_wide_mlp": False, "num_hidden_layers": 4}
WITHOUT_CACHE |= {"num_kv_shared_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
BLT_SECTIONS = {"global_config", "encoder_config", "decoder_config", "patcher_config"}


def random_config(model_type: str, chance: random.Random) -> dict[str, Any]:
    """A small config of a family, with each field that its class has drawn or left out."""
    if model_type in ASSISTANTS:
        text = random_config(ASSISTANTS[model_type], chance) | WITHOUT_CACHE
        flags = {"use_ordered_embeddings": chance.random() < 0.5, "num_centroids": 20, "backbone_hidden_size": 96}
        tied = {} if chance.random() < 0.5 else {"tie_word_embeddings": chance.random() < 0.5}
        return {"model_type": model_type, "text_config": text, **flags, **tied}
    fields = AutoConfig.for_model(model_type).to_dict()
    config: dict[str, Any] = {"model_type": model_type}
    for name in sorted(BLT_SECTIONS & set(fields)):
        heads = {"num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": chance.choice([2, 4])}
        widths = [None, 96] if name == "encoder_config" else [80, 96]
        sizes = {"num_hidden_layers": chance.choice([1, 3]), "intermediate_size": chance.choice(widths)}
        every = {"cross_attn_all_layers": chance.random() < 0.5} if name in ("encoder_config", "decoder_config") else {}
        config[name] = heads | sizes | every | ({"hidden_size_global": 64} if name == "decoder_config" else {})
    for name, values in (SIZES | {flag: [True, False] for flag in FLAGS}).items():
        if name in fields and not (name in OPTIONAL and chance.random() < 0.4):
            config[name] = chance.choice(values)
    if "pad_token_id" in fields:
        config["pad_token_id"] = 0  # inside the small vocabulary
    layers = next((config[name] for name in ("num_hidden_layers", "n_layer") if name in config), 0)
    for name in sorted(WORDS & set(fields)):
        words = sorted(set(fields[name] or ()))
        if words and chance.random() < 0.6:
            config[name] = [chance.choice(words) for _ in range(layers)]
    if model_type in FAMILIES and FAMILIES[model_type].pools:
        config |= heads_of(type(AutoConfig.for_model(model_type)), chance)
    return config | FIXED.get(model_type, {})


HEADS = (AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoModelForTokenClassification)
"""What may stand behind an encoder of texts."""


def heads_of(settings: type, chance: random.Random) -> dict[str, Any]:
    """A class of an encoder, and labels for its scores."""
    chosen = chance.choice([auto for auto in HEADS if settings in auto._model_mapping])
    labels = {str(i): f"LABEL_{i}" for i in range(chance.choice([1, 3]))}
    return {"architectures": [chosen._model_mapping[settings].__name__], "id2label": labels}
