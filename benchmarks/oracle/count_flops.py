"""python -m benchmarks.oracle.count_flops: FLOPs of a forward and a backward pass, one model a family, as torch's
FlopCounterMode counts the classes of transformers on the meta device, written to tests/data/flops.json.

Attention is written as its two products, which are counted as they are: of all pairs, no causal half. Needs torch and
transformers beside this project's own requirements.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, logging, masking_utils
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from presets import models

FILE = Path(__file__).parents[2] / "tests" / "data" / "flops.json"
TOKENS = 512
PRESETS = (
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen1.5-MoE-A2.7B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3.5-9B",
    "meta-llama/Llama-3.1-8B",
    "mistralai/Mixtral-8x7B-v0.1",
    "google/gemma-2-9b",
    "google/gemma-3-4b-it",
    "google/gemma-4-26B-A4B",
    "microsoft/phi-2",
    "microsoft/phi-4",
    "openai/gpt-oss-20b",
    "openai-community/gpt2-xl",
    "deepseek-ai/DeepSeek-V2-Lite",
    "deepseek-ai/DeepSeek-V3",
    "zai-org/GLM-4.5",
    "allenai/OLMo-2-1124-7B",
    "allenai/OLMoE-1B-7B-0924",
    "tiiuae/falcon-40b",
    "bigscience/bloom-3b",
    "bigcode/starcoder2-7b",
    "EleutherAI/pythia-2.8b",
    "CohereLabs/c4ai-command-r7b-12-2024",
    "stabilityai/stablelm-2-12b",
    "HuggingFaceTB/SmolLM3-3B",
    "baidu/ERNIE-4.5-21B-A3B-PT",
    "ibm-granite/granite-4.0-h-micro",
    "tencent/Hunyuan-A13B-Instruct",
    "mosaicml/mpt-7b",
    "LiquidAI/LFM2-1.2B",
)
OWN_ATTENTION = ("bloom", "mpt", "falcon")
"""Classes that take no other attention than theirs."""


def two_products(module: Any, query: Any, key: Any, value: Any, mask: Any, **more: Any) -> Any:
    """Attention without a mask, which no FLOPs depend on: scores, and their sum of values."""
    groups = query.shape[1] // key.shape[1]
    key, value = (side.repeat_interleave(groups, dim=1) if groups > 1 else side for side in (key, value))
    scores = torch.matmul(query, key.transpose(2, 3)).softmax(-1)
    return torch.matmul(scores, value).transpose(1, 2).contiguous(), None


def counted(config: dict[str, Any]) -> dict[str, dict[str, int]]:
    """FLOPs by operator, forward and backward."""
    text = AutoConfig.for_model(**config).get_text_config()
    attention = "eager" if text.model_type in OWN_ATTENTION else "two_products"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(text, dtype=torch.bfloat16, attn_implementation=attention)
        tokens = torch.zeros((1, TOKENS), dtype=torch.long)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")
    with FlopCounterMode(display=False) as forward:
        logits = model(input_ids=tokens, use_cache=False).logits
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    return {
        name: {str(op).removeprefix("aten."): flops for op, flops in counter.get_flop_counts()["Global"].items()}
        for name, counter in (("forward", forward), ("backward", backward))
    }


def main() -> None:
    logging.set_verbosity_error()
    ALL_ATTENTION_FUNCTIONS.register("two_products", two_products)
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("two_products", lambda *args, **kwargs: None)
    masking_utils.find_packed_sequence_indices = lambda position_ids: None  # it asks for values
    warnings.simplefilter("ignore")
    rows = []
    for preset in PRESETS:
        rows.append({"model": preset, "tokens": TOKENS, **counted(dict(models()[preset].config))})
        print(preset, {way: sum(rows[-1][way].values()) for way in ("forward", "backward")}, flush=True)
    lines = ",\n".join(f" {json.dumps(row)}" for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
