"""python -m benchmarks.oracle.track_saved: what autograd saves in a layer of small models of many families.

Needs torch and transformers 5.23. Each class runs forward on a CPU, in bf16 with eager attention; every storage that is
saved for the backward pass counts once, parameters and buffers do not. Four layers less two, halved, are one layer. As
LoRA leaves it, a model is frozen but for the matrices that have adapters, which then read the same inputs.
"""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

DATA = Path(__file__).parents[2] / "tests" / "data" / "saved_small.json"
TOKENS = 256
COMMON = {
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1408,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}
HEADS = {"head_dim": 64}
FULL = {"layer_types": ["full_attention"] * 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
MODELS: tuple[dict[str, Any], ...] = (
    {"model_type": "llama"},
    {"model_type": "qwen3", **HEADS},
    {"model_type": "gemma", **HEADS},
    {"model_type": "gemma3_text", **HEADS, **FULL},
    {"model_type": "olmo"},
    {"model_type": "olmo2"},
    {"model_type": "olmo3", **FULL},
    {"model_type": "cohere"},
    {"model_type": "phi3"},
    {"model_type": "phi"},
    {"model_type": "glm4", **HEADS},
    {"model_type": "starcoder2"},
    {"model_type": "granite"},
    {"model_type": "stablelm"},
    {"model_type": "nemotron"},
    {"model_type": "bloom", "n_head": 8},
    {"model_type": "gpt_oss", **HEADS, **FULL, "num_local_experts": 4, "num_experts_per_tok": 2},
    {"model_type": "qwen3_next", **HEADS, **FULL, **EXPERTS, "shared_expert_intermediate_size": 256},
    {
        "model_type": "deepseek_v3",
        "num_key_value_heads": 8,
        "q_lora_rank": 128,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "first_k_dense_replace": 99,
    },
)
ADAPTED = {
    "all": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "qv": ("q_proj", "v_proj"),
}


def saved(config: dict[str, Any], layers: int, targets: str | None) -> int:
    """Bytes that a model of so many layers saves, with its ends."""
    kinds = {"layer_types": config["layer_types"][:layers]} if "layer_types" in config else {}
    settings = AutoConfig.for_model(**(config | kinds | {"num_hidden_layers": layers}))
    model = AutoModelForCausalLM.from_config(settings, attn_implementation="eager").to(torch.bfloat16).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(targets is None or name.split(".")[-2] in ADAPTED[targets])
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in own:
            kept[pointer] = tensor
        return tensor

    inputs = torch.randn(1, TOKENS, settings.hidden_size, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(inputs_embeds=inputs, use_cache=False).logits
    total = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del logits
    return total


def rows() -> list[dict[str, Any]]:
    found = []
    for model in MODELS:
        config = COMMON | model
        for targets in (None, *ADAPTED) if model["model_type"] in ("llama", "qwen3") else (None,):
            layer = (saved(config, 4, targets) - saved(config, 2, targets)) // 2
            config_4 = config | {"num_hidden_layers": 4}
            found.append({"config": config_4, "lora_targets": targets, "sequence": TOKENS, "bytes": layer})
            print(config["model_type"], targets, layer)
    return found


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row) for row in rows())
    DATA.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
