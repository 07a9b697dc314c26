"""GGUF files: llama.cpp's rules for those of each family, and a config from the header of one. Keys of headers:
github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.model.conventions import GGUFRules
from calc.model.tensor import Shape

TABLE = tomllib.loads(Path(__file__).with_name("gguf.toml").read_text(encoding="utf-8"))
ARCHITECTURES: dict[str, str] = TABLE["headers"]
"""general.architecture -> model_type."""


def by_family(rule: str) -> dict[str, Any]:
    """Value of a rule of the table for each family."""
    return {family: value for value, families in TABLE[rule].items() for family in families.split()}


def rules_of(family: str, architecture: str) -> GGUFRules:
    return GGUFRules(
        architecture,
        with_experts=by_family("with_experts").get(family),
        known_70b=by_family("known_70b").get(family, "no"),
        cut_vocab=tuple(TABLE["cut_vocab"].get(family, ())),
        **{rule: True for rule, families in TABLE["rules"].items() if family in families.split()},
    )


RULES = {family: rules_of(family, architecture) for family, architecture in by_family("architecture").items()}
"""Rules by model_type, of the families that llama.cpp reads."""
FIELDS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "context_length": "max_position_embeddings",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
"""Key after the architecture's name -> config field."""
FILE_TYPES = {
    2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
    14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S",
    22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M",
}  # fmt: skip
"""general.file_type -> storage format: `LlamaFileType` of the same file."""
LATENT = {
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim",
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_count": "n_routed_experts",
    "expert_shared_count": "n_shared_experts",
}
"""Metadata of multi-head latent attention -> config field."""


def config_of(metadata: Mapping[str, Any], shapes: Mapping[str, Shape | None]) -> dict[str, Any]:
    """The config.json that a header amounts to. Raises ConfigError when its architecture is not one we know."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        sentence = "The GGUF architecture {name} is not one we know; we know {known}."
        raise ConfigError(Message(sentence, name=shown(name), known=", ".join(ARCHITECTURES)), "model_type")
    table = shapes.get("token_embd.weight")
    if table is None or len(table) != 2:
        raise ConfigError(Message("The GGUF file holds no token_embd.weight matrix, so the vocabulary is not known."))
    own = {key.removeprefix(f"{name}."): value for key, value in metadata.items() if key.startswith(f"{name}.")}
    config = {field: own[key] for key, field in FIELDS.items() if key in own}
    file_type = metadata.get("general.file_type")
    if isinstance(file_type, int) and file_type in FILE_TYPES:
        config["quantization_config"] = {"quant_method": "gguf", "format": FILE_TYPES[file_type]}
    config |= {
        "model_type": ARCHITECTURES[name],
        "vocab_size": table[0],
        "tie_word_embeddings": "output.weight" not in shapes,
    }
    if name == "llama" and "expert_count" in own:
        config |= {"model_type": "mixtral", "num_local_experts": own["expert_count"]}
    elif "attention.kv_lora_rank" in own:
        config |= {field: own[key] for key, field in LATENT.items() if key in own} | _latent_heads(own)
    elif "expert_count" in own:
        config["num_local_experts" if name == "gpt-oss" else "num_experts"] = own["expert_count"]
    biased = "blk.0.attn_q.bias" in shapes
    return config | ({"attention_bias": True} if biased and name in ("llama", "qwen3") else {})


def _latent_heads(own: dict[str, Any]) -> dict[str, Any]:
    """Widths of a head: newer files state those of the expanded keys and values besides the latent's own."""
    key = own.get("attention.key_length_mla", own.get("attention.key_length"))
    value = own.get("attention.value_length_mla", own.get("attention.value_length"))
    rope = own.get("rope.dimension_count")
    if type(key) is not int or type(rope) is not int:
        sentence = "The GGUF header does not say the key length or the rotary dimensions of latent attention."
        raise ConfigError(Message(sentence))
    return {"qk_nope_head_dim": key - rope, "v_head_dim": value, "num_key_value_heads": own.get("attention.head_count")}
