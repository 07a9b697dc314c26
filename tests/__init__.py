"""The rooms here mirror those of the project. data/ is written by benchmarks/oracle from what others published."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CHECKPOINT_ENGINES = ("vllm", "transformers", "sglang")
"""Those that load any checkpoint. llama.cpp reads files of its own, and has laws of its own in test_llamacpp.py."""
SAMPLED = ("Qwen/Qwen3-8B", "openai/gpt-oss-20b", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-9B")
"""Presets by which laws are held over TensorRT-LLM, which serves fewer families: windows, latents, experts, states."""
DATA = Path(__file__).parent / "data"
EXAMPLES = ROOT / "pages" / "parts" / "verify" / "examples"


def load(name: str) -> Any:
    """A file of data/."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))
