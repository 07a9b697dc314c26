"""The small models whose caches were made in transformers: their layers, by the shapes that the caches have."""

from collections.abc import Mapping
from typing import Any

from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba2
from calc.serving.kv_cache import cache_bytes, growth, state_bytes

NARROW = GQA(n_q=4, n_kv=2, d_head=16)
WIDE = GQA(n_q=4, n_kv=2, d_head=32)
MANY = GQA(n_q=4, n_kv=4, d_head=16)
SLIDING = GQA(n_q=4, n_kv=2, d_head=16, window=16)
LATENT = LatentAttention(n_q=4, q_rank=None, kv_rank=32, d_nope=16, d_rope=8, d_v=16)
DELTA = GatedDeltaNet(n_k=2, n_v=4, d_k=16, d_v=16, d_conv=4)
MAMBA = Mamba2(n_heads=8, d_head=16, d_state=16, n_groups=1, d_conv=4)
LAYERS: dict[str, list[Mixer]] = {
    "Llama GQA": 4 * [NARROW],
    "Llama MHA": 4 * [MANY],
    "GPT-2 MHA": 4 * [MANY],
    "Qwen2 GQA": 4 * [NARROW],
    "Qwen3 head_dim decoupled": 4 * [WIDE],
    "Falcon MQA": 4 * [GQA(n_q=4, n_kv=1, d_head=16)],
    "Qwen3-MoE GQA": 4 * [WIDE],
    "Mistral v0.1 SWA": 4 * [SLIDING],
    "Gemma2 alternating": 2 * [SLIDING, NARROW],
    "Gemma3 5:1": [*5 * [SLIDING], NARROW],
    "gpt-oss alternating": 2 * [SLIDING, NARROW],
    "DeepSeek-V3 MLA vs latent formula (kv_lora+rope)": 4 * [LATENT],
    "Llama StaticCache": 4 * [NARROW],
    "Gemma2 StaticCache": 2 * [SLIDING, NARROW],
    "Qwen3-Next hybrid (state fp32)": [*3 * [DELTA], WIDE],
    "Mamba2": 4 * [MAMBA],
    "Bamba hybrid": [*3 * [MAMBA], NARROW],
}


def tiny_cache(row: Mapping[str, Any]) -> int:
    """Bytes of the cache; a static one is as long as it was made."""
    layers = LAYERS[row["model"]]
    blocks = [Block(layers=(i,), mixers=(mixer,), ffn=None, norms=()) for i, mixer in enumerate(layers)]
    context = int(row["kind"][7:-1]) if row["kind"].startswith("static") else row["tokens"]
    return cache_bytes(growth(blocks, "bf16"), state_bytes(blocks), row["batch"], context)
