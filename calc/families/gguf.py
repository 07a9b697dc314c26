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
    """llama.cpp's rules for a family, by the table of this folder."""
    return GGUFRules(
        architecture,
        with_experts=by_family("with_experts").get(family),
        known_70b=by_family("known_70b").get(family, "no"),
        cut_vocab=tuple(TABLE["cut_vocab"].get(family, ())),
        **{rule: True for rule, families in TABLE["rules"].items() if family in families.split()},
    )


RULES = {family: rules_of(family, architecture) for family, architecture in by_family("architecture").items()}
"""Rules by model_type, of the families that llama.cpp reads."""
FIELDS: dict[str, str] = TABLE["fields"]
"""Key of a header after the architecture's name -> config field."""
LATENT: dict[str, str] = TABLE["latent_fields"]
"""Further ones of multi-head latent attention."""
FILE_TYPES = {int(number): form for number, form in TABLE["file_types"].items()}
"""general.file_type -> storage format."""


def config_of(metadata: Mapping[str, Any], shapes: Mapping[str, Shape | None]) -> dict[str, Any]:
    """The config.json that a header amounts to. Raises ConfigError when its architecture is not one we know."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        sentence = "The GGUF architecture {name} is not known; {known} are."
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
