"""What a sequence leaves in memory."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.formats import CACHE_FORMATS
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.linear_attention import GatedDeltaNet
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba2
from calc.serving.engines import ENGINES
from calc.serving.kv_cache import bytes_per_token, cache_bytes, growth, state_bytes, window_bytes
from calc.serving.memory import Serving
from presets import gpus, models
from tests import CHECKPOINT_ENGINES, load

GIB = 2**30
LOGS = "github.com/vllm-project/vllm/issues"


def blocks(model, tp=1):
    return Architecture.from_config(models()[model].config).rank(tp).blocks


@pytest.mark.parametrize(
    ("model", "tp", "gib", "tokens"),
    [  # "Available KV cache memory" and "GPU KV cache size" of vLLM start-up logs; blocks hold 16 tokens
        pytest.param("Qwen/Qwen3-8B", 1, 6.37, 46_368, id="Qwen3-8B: github.com/LMCache/LMCache/issues/3430"),
        pytest.param("Qwen/Qwen3-1.7B", 1, 18.78, 175_856, id=f"Qwen3-1.7B: {LOGS}/33263"),
        pytest.param("moonshotai/Kimi-K2.5", 8, 46.80, 715_072, id="Kimi-K2 on eight GPUs: the latent is on each"),
    ],
)
def test_tokens_that_vllm_found_room_for(model, tp, gib, tokens):
    per_token = bytes_per_token(growth(blocks(model, tp), "bf16"))
    rounding = 0.005 * GIB / per_token + 16
    assert gib * GIB / per_token == pytest.approx(tokens, abs=rounding)


@pytest.mark.parametrize(
    ("model", "context", "full", "windows"),
    [  # layers x heads x 2 x width x 2 bytes; the windows and which layers slide by each config's layer_types
        pytest.param("openai/gpt-oss-20b", 8192, 12 * 2048, 12 * 2048 * 128, id="gpt-oss-20b: every second, 128"),
        pytest.param("openai/gpt-oss-20b", 100, 12 * 2048, 12 * 2048 * 100, id="gpt-oss-20b: not full yet"),
        pytest.param("openai/gpt-oss-120b", 8192, 18 * 2048, 18 * 2048 * 128, id="gpt-oss-120b"),
        pytest.param("google/gemma-2-9b", 8192, 21 * 8192, 21 * 8192 * 4096, id="gemma-2-9b: every second, 4096"),
        pytest.param("google/gemma-3-27b-it", 8192, 10 * 8192, 52 * 8192 * 1024, id="gemma-3-27b: five of six, 1024"),
        pytest.param("google/gemma-3-1b-it", 8192, 4 * 1024, 22 * 1024 * 512, id="gemma-3-1b: five of six, 512"),
        pytest.param("mistralai/Mistral-7B-v0.1", 4095, 0, 32 * 4096 * 4095, id="Mistral-7B-v0.1: one short of full"),
        pytest.param("mistralai/Mistral-7B-v0.1", 4097, 0, 32 * 4096 * 4096, id="Mistral-7B-v0.1: one beyond full"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", 8192, 32 * 4096, 0, id="Mixtral: no window"),
        pytest.param("Qwen/Qwen2.5-7B", 131_072, 28 * 2048, 0, id="Qwen2.5: a window that is switched off"),
    ],
)
def test_layers_that_slide(model, context, full, windows):
    bits = growth(blocks(model), "bf16")
    assert bytes_per_token(bits) == full
    assert window_bytes(bits, context) == windows


@pytest.mark.parametrize(
    ("kv", "nbytes"),
    [
        ("fp32", 140_544),
        ("bf16", 70_272),
        ("fp16", 70_272),
        ("fp8", 35_136),
        pytest.param("fp8_ds_mla", 61 * 656, id="vllm/v1/attention/backends/mla/flashmla_sparse.py"),
    ],
)
@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_deepseek_v3_on_every_rank(tp, kv, nbytes):
    """61 layers x (512 + 64), replicated."""
    assert bytes_per_token(growth(blocks("deepseek-ai/DeepSeek-V3", tp), kv)) == nbytes


def test_deepseek_r1_in_llama_cpp():
    """github.com/ikawrakow/ik_llama.cpp/pull/259: the latents of 32,768 tokens in q8_0 take 1166.62 MiB."""
    per_token = bytes_per_token(growth(blocks("deepseek-ai/DeepSeek-R1"), "q8_0"))
    assert round(32_768 * per_token / 2**20, 2) == 1166.62


NARROW = GQA(n_q=4, n_kv=2, d_head=16)
WIDE = GQA(n_q=4, n_kv=2, d_head=32)
MANY = GQA(n_q=4, n_kv=4, d_head=16)
SLIDING = GQA(n_q=4, n_kv=2, d_head=16, window=16)
LATENT = LatentAttention(n_q=4, q_rank=None, kv_rank=32, d_nope=16, d_rope=8, d_v=16)
DELTA = GatedDeltaNet(n_k=2, n_v=4, d_k=16, d_v=16, d_conv=4)
MAMBA = Mamba2(n_heads=8, d_head=16, d_state=16, n_groups=1, d_conv=4)
SMALL = {
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
    "DeepSeek-V3 MLA": 4 * [LATENT],
    "Llama StaticCache": 4 * [NARROW],
    "Gemma2 StaticCache": 2 * [SLIDING, NARROW],
    "Qwen3-Next hybrid (state fp32)": [*3 * [DELTA], WIDE],
    "Mamba2": 4 * [MAMBA],
    "Bamba hybrid": [*3 * [MAMBA], NARROW],
}
"""The layers of the small models whose caches were made."""


@pytest.mark.parametrize("row", [pytest.param(row, id=row["model"]) for row in load("caches.json")])
def test_caches_of_transformers(row):
    """Storages of real caches of transformers 5.23, after a prompt and one more token."""
    layers = [Block(layers=(i,), mixers=(mixer,), ffn=None, norms=()) for i, mixer in enumerate(SMALL[row["model"]])]
    assert cache_bytes(growth(layers, "bf16"), state_bytes(layers), row["batch"], row["length"]) == row["bytes"]


MODELS = st.sampled_from(list(models()))


@given(MODELS, st.sampled_from(CACHE_FORMATS), st.integers(1, 1000), st.integers(1, 300_000))
def test_a_cache_grows_by_its_parts(model, kv, batch, context):
    bits, state = growth(blocks(model), kv), state_bytes(blocks(model))
    one = cache_bytes(bits, state, 1, context)
    assert cache_bytes(bits, state, batch, context) == batch * one
    assert one == context * bytes_per_token(bits) + window_bytes(bits, context) + state
    longer = cache_bytes(bits, state, 1, context + 1)
    assert bytes_per_token(bits) <= longer - one <= sum(bits.values()) // 8 + 1


@given(MODELS, st.sampled_from(CHECKPOINT_ENGINES), st.integers(1, 300), st.integers(1, 300_000))
def test_an_engine_never_holds_less_than_is_needed(model, engine, batch, context):
    """But for recurrent states, which vLLM and SGLang may hold in 16 bits, and keys of an indexer, which vLLM holds in
    8 (vllm/v1/attention/backends/mla/indexer.py)."""
    architecture = Architecture.from_config(models()[model].config)
    assume(not any(getattr(mixer, "indexer", None) for block in architecture.all_blocks for mixer in block.mixers))
    bits = growth(architecture.all_blocks, "bf16")
    serving = Serving(architecture, ENGINES[engine](), Precision(), Layout(), Overhead())
    held = serving.on(gpus()["h100-sxm"], Workload(batch=batch, context=context)).memory.kv_cache
    assert held >= cache_bytes(bits, 0, batch, context)
