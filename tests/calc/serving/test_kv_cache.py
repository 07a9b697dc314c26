"""What a sequence leaves in memory."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calc import Architecture, Layout, Overhead, Precision, Workload, report
from calc.formats import CACHE_FORMATS
from calc.serving.engines import ENGINES
from calc.serving.engines.rules import Question
from calc.serving.engines.transformers.engine import DynamicCache
from calc.serving.kv_cache import (
    bytes_per_token,
    cache_bytes,
    growth,
    state_bytes,
    window_bytes,
)
from calc.serving.memory import Serving
from presets import gpus, models
from tests import CHECKPOINT_ENGINES, load
from tests.cases import in_one_test
from tests.structures import architectures, generating

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


@pytest.mark.parametrize(("kv", "bits"), [("int8", 8), ("int4", 4)])
@pytest.mark.parametrize(
    ("model", "layers", "heads", "width"), [("Qwen/Qwen3-8B", 36, 8, 128), ("meta-llama/Llama-3.1-8B", 32, 8, 128)]
)
def test_scales_of_each_token_and_head_are_of_the_cache(model, layers, heads, width, kv, bits):
    """vLLM `kv_cache_interface.py`, `AttentionSpec.unpadded_page_size_bytes`: an fp32 scale for each key and value of a
    head. What is needed is what is allocated, in whole blocks of 16 tokens."""
    each = 2 * layers * heads * (width * bits // 8 + 4)
    assert sum(growth(blocks(model), kv).values()) == 8 * each
    asked = {"engine": ENGINES["vllm"](), "precision": Precision(kv=kv), "gpus": [gpus()["h100-sxm"]]}
    found = report(models()[model].config, workload=Workload(context=4096), **asked)
    assert found.kv_cache.total == found.memory.kv_cache == 4096 * each


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


CACHES = [
    pytest.param(row["config"], row["held"], id=f"{row['config']['model_type']} {i}")
    for i, row in enumerate(load("caches.json"))
]
"""Small models of every family that runs, and bytes of the distinct storages that their real caches held (transformers
5.23, Dory 5.24, `benchmarks/oracle/write_caches.py`): sequences, their tokens, those that passed last, bytes."""
POOLED = ("glm5_next_text", "qwen4_exp_text")
"""Families of which transformers caches index keys before tokens share one."""


@in_one_test(("config", "held"), CACHES)
def test_caches_of_transformers(config, held):
    """To the byte after a prompt, after a token more, and after five."""
    cache = DynamicCache([Architecture.from_config(config).all_blocks], Precision())
    assert [cache.allocated_bytes(0, batch, length, batch * passed) for batch, length, passed, _ in held] == [
        nbytes for *_, nbytes in held
    ]


@in_one_test(("config", "held"), CACHES)
def test_what_sequences_need_is_what_transformers_holds_of_them(config, held):
    """Between passes of a token; but for what it keeps without need: keys that are to be pooled, and the column that a
    convolution of RecurrentGemma has left behind."""
    architecture, engine = Architecture.from_config(config), ENGINES["transformers"]()
    needed = [
        engine.sequences_bytes(architecture, "bf16", batch, length) for batch, length, passed, _ in held if passed == 1
    ]
    kept = [nbytes for _, _, passed, nbytes in held if passed == 1]
    if config["model_type"] in (*POOLED, "recurrent_gemma"):
        assert all(least < nbytes for least, nbytes in zip(needed, kept, strict=True))
    else:
        assert needed == kept


MODELS = st.sampled_from(generating())


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
    """But for keys of an indexer, which vLLM holds in 8 bits (vllm/v1/attention/backends/mla/indexer.py)."""
    architecture, started = Architecture.from_config(models()[model].config), ENGINES[engine]()
    assume(not any(getattr(mixer, "indexer", None) for block in architecture.all_blocks for mixer in block.mixers))
    states = started.state_bytes(architecture, architecture.all_blocks)
    serving = Serving.of(architecture, started, Precision(), Layout(), Overhead())
    allocated = serving.on(gpus()["h100-sxm"], Workload(batch=batch, context=context)).memory.kv_cache
    assert allocated >= cache_bytes(growth(architecture.all_blocks, "bf16"), states, batch, context)


READ = architectures()
SERVED = [
    (name, engine)
    for name, architecture in READ.items()
    for engine in ENGINES
    if state_bytes(architecture.all_blocks) and not any(ENGINES[engine]().refusals(Question(architecture, Precision())))
]


@in_one_test(("name", "engine"), SERVED)
def test_states_are_needed_as_the_engine_holds_them(name, engine):
    """mamba-2.8b needed 23.6 MB for each sequence of which vLLM allocated 12.5."""
    architecture, started = READ[name], ENGINES[engine]()
    serving = Serving.of(architecture, started, Precision(), Layout(), Overhead())
    cache = serving.on(gpus()["mi300x"], Workload(batch=1, context=64)).cache
    assert cache is not None
    assert 0 < started.sequences_bytes(architecture, "bf16", 1, 64) <= cache.required_bytes(0, 1, 64)


def test_states_of_mamba_in_vllm():
    """mamba-2.8b under vLLM: 64 layers of 16 bits, 5,120 channels with 16 states each and three columns of the
    convolution (mamba_utils.py, `mamba1_state_shape`)."""
    one = ENGINES["vllm"]().sequences_bytes(READ["state-spaces/mamba-2.8b-hf"], "bf16", 1, 8192)
    assert one == 64 * 2 * 5120 * (16 + 3)
