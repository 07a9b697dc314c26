"""python -m benchmarks.oracle.exported: designs that were changed on the page, exported as config.json, as transformers
loads them: the class built on the meta device has as many parameters as we count. Exits with 1 on any difference, and
writes what the classes count to tests/data/exported.json, with which file it is about.

Needs transformers and torch beside this project's own requirements, as `benchmarks.oracle` does.
"""

import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.oracle.write_test_data import write
from calc import Architecture
from calc.families import override
from calc.text import config_file
from presets import models

CHANGES: dict[str, dict[str, int | bool]] = {
    "Qwen/Qwen3-8B": {"num_key_value_heads": 4, "num_hidden_layers": 30},
    "Qwen/Qwen2.5-3B": {"intermediate_size": 8192, "tie_word_embeddings": False},
    "Qwen/Qwen3-0.6B": {"head_dim": 64},
    "Qwen/Qwen3-30B-A3B": {"num_experts": 64, "moe_intermediate_size": 512},
    "mistralai/Mistral-7B-v0.1": {"num_attention_heads": 16, "num_key_value_heads": 16},
    "meta-llama/Llama-3.1-8B": {"vocab_size": 32000, "hidden_size": 2048},
    "deepseek-ai/DeepSeek-V3": {"num_hidden_layers": 5, "q_lora_rank": 1024, "n_routed_experts": 64},
    "allenai/OLMo-2-1124-7B": {"num_hidden_layers": 7},
    "allenai/OLMoE-1B-7B-0924": {"num_experts": 16},
    "google/gemma-2-2b": {"num_key_value_heads": 8, "intermediate_size": 4096},
    "google/gemma-3-1b-it": {"num_hidden_layers": 12},
    "openai-community/gpt2": {"n_layer": 6, "vocab_size": 1000},
    "openai/gpt-oss-120b": {"num_hidden_layers": 4, "num_local_experts": 16},
    "microsoft/phi-2": {"num_hidden_layers": 12},
    "EleutherAI/pythia-1b": {"num_hidden_layers": 4},
    "bigcode/starcoder2-3b": {"num_key_value_heads": 4},
    "ibm-ai-platform/Bamba-9B-v1": {"num_hidden_layers": 10},
    "LiquidAI/LFM2-1.2B": {"hidden_size": 1024},
    "state-spaces/mamba-130m-hf": {"num_hidden_layers": 6},
    "tiiuae/Falcon-H1-0.5B-Base": {"num_hidden_layers": 6},
    "bigscience/bloom-560m": {"n_layer": 6},
    "Qwen/Qwen1.5-MoE-A2.7B": {"num_experts": 16},
}
"""Presets of more than twenty families, each with other sizes."""


def theirs(text: str) -> int:
    """Parameters of the class that transformers builds of the file; a tied weight once."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(text, encoding="utf-8")
        settings = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings)
    return sum(weight.numel() for weight in model.parameters())


def main() -> None:
    wrong, rows = 0, []
    for name, changes in CHANGES.items():
        if name not in models():
            print(f"{name}: no preset of that name")
            wrong += 1
            continue
        text = config_file(override(models()[name].config, changes))
        ours = Architecture.from_config(override(models()[name].config, changes)).parameters().total
        count = theirs(text)
        digest = sha256(text.encode()).hexdigest()
        rows.append({"id": name, "changes": changes, "sha256": digest, "total": count})
        wrong += ours != count
        print(f"{name} {changes}: ours {ours:,}, transformers {count:,}{'' if ours == count else '  <- differs'}")
    write("exported.json", rows)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
