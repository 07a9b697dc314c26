"""Bytes that a pass reads beside what the memory report says there is."""

from functools import partial

import pytest

from calc import Architecture, Layout, Precision, Workload, report
from calc.serving.engines import ENGINES
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.time.operations import decode, demand, touched
from presets import models

MODELS = [
    "Qwen/Qwen3-8B",
    "google/gemma-3-27b-it",
    "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-120b",
    "Qwen/Qwen3.5-35B-A3B",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "state-spaces/mamba-2.8b-hf",
    "mistralai/Mixtral-8x7B-v0.1",
]


@pytest.mark.parametrize("weights", ["bf16", "fp8", "int4"])
@pytest.mark.parametrize("model", MODELS)
def test_all_weights_are_those_of_the_memory_report(model, weights):
    config = models()[model].config
    architecture, precision = Architecture.from_config(config), Precision(weights=weights)
    held = demand(architecture, architecture, precision, Layout(), range(architecture.num_layers)).weights
    assert sum(held.values()) == report(config, precision=precision).memory.weights


@pytest.mark.parametrize(
    ("model", "weights", "gib"),
    [  # "size" in public output of llama-bench, all in GiB: its own sum over the tensors of the file
        pytest.param("openai/gpt-oss-20b", "mxfp4", 11.27, id="gpt-oss-20b"),
        pytest.param("openai/gpt-oss-20b", "fp16", 12.83, id="gpt-oss-20b-f16"),
        pytest.param("openai/gpt-oss-120b", "mxfp4", 59.02, id="gpt-oss-120b"),
    ],
)
def test_all_weights_are_those_of_the_gguf_file(model, weights, gib):
    whole, precision = Architecture.from_config(models()[model].config), Precision(weights=weights)
    file = ENGINES["llamacpp"]().file
    held = demand(whole, whole, precision, Layout(), range(whole.num_layers), file=file).weights
    assert sum(held.values()) / 2**30 == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
@pytest.mark.parametrize("model", MODELS)
def test_the_cache_read_is_that_of_the_memory_report(model, engine):
    config, started = models()[model].config, ENGINES[engine]()
    architecture, context = Architecture.from_config(config), 20_000
    layers, states = range(architecture.num_layers), partial(started.state_bytes, architecture)
    whole = demand(architecture, architecture, Precision(), Layout(), layers, states=states)
    step = decode(4, context)
    read = sum(bits * part.context(back) for part in step.parts for back, bits in whole.read_bits.items()) / 8
    state = whole.state_bytes * 4 / 2  # read and written
    assert read + state == report(config, workload=Workload(batch=4, context=context), engine=started).kv_cache.total


def test_an_indexer_reads_all_its_keys_and_few_latents():
    architecture = Architecture.from_config(models()["zai-org/GLM-5.1"].config)
    whole = demand(architecture, architecture, Precision(), Layout(), range(architecture.num_layers))
    assert set(whole.read_bits) == {2048, None}
    assert whole.read_bits[None] == 78 * 128 * 16
    assert whole.read_bits[2048] == 78 * 576 * 16


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "share"),
    [
        pytest.param(8, 2, 1, 0.25, id="one-token-reads-its-own"),
        pytest.param(8, 2, 2, 1 - 0.75**2, id="two-tokens-overlap"),
        pytest.param(256, 8, 1_000_000, 1.0, id="many-tokens-read-all"),
    ],
)
def test_experts_that_some_token_chooses(experts, top_k, tokens, share):
    assert touched(experts, top_k, tokens) == pytest.approx(share)


def test_a_larger_batch_reads_more_experts_never_more_than_all():
    architecture = Architecture.from_config(models()["Qwen/Qwen3-30B-A3B"].config)
    whole = demand(architecture, architecture, Precision(), Layout(), range(architecture.num_layers))
    read = [
        next(o.weights for o in whole.operations(decode(batch, 4096)) if o.what == "experts_routed")
        for batch in (1, 4, 16, 64, 4096)
    ]
    assert read == sorted(read)
    assert read[-1] == pytest.approx(whole.weights["experts_routed"])


def test_a_tied_head_is_read_whole_and_the_embedding_by_rows():
    architecture = Architecture.from_config(models()["Qwen/Qwen2.5-0.5B"].config)
    whole = demand(architecture, architecture, Precision(), Layout(), range(architecture.num_layers))
    step = {o.what: o.weights for o in whole.operations(decode(3, 100))}
    assert step["lm_head"] == 2 * 151_936 * 896
    assert step["embedding"] == 3 * 2 * 896


def test_dense_layers_of_copies_take_the_tokens_of_all():
    """SGLang 0.5.23, `layers/layer_boundary`: the tokens of all copies are gathered before a feed-forward, of which
    each rank has a part (`layers/linear.py`): as many FLOPs as with whole ones, of an eighth of the weights."""
    architecture, layout = Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config), Layout(dp=8, ep=8)
    layers = range(architecture.num_layers)
    whole, shared = (
        demand(architecture, ENGINES[name]().rank(architecture, layout), Precision(), layout, layers)
        for name in ("vllm", "sglang")
    )
    for product in ("mlp", "experts_shared", "lm_head"):
        assert shared.flops[product] == whole.flops[product]
        assert shared.weights[product] * 8 == whole.weights[product]
    for product in ("attention", "experts_routed", "embedding"):
        assert shared.weights[product] == whole.weights[product]
    assert shared.flops["attention"] == whole.flops["attention"]
    assert shared.flops["router"] == 8 * whole.flops["router"]  # each rank chooses experts for all


def test_parts_that_flags_leave_whole_take_a_rank_s_own_tokens():
    """SGLang 0.5.23, `layers/layer_boundary/factories.py: _ffn_on_rank_rows`: with --moe-dense-tp-size 1 a dense
    feed-forward runs on a rank's slice of its copy's tokens; with an all-to-all backend so do shared experts."""
    architecture, layout = (
        Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config),
        Layout(tp=2, dp=4, ep=8),
    )
    layers, flags = range(architecture.num_layers), {"moe_dense_tp_size": 1, "moe_a2a_backend": "deepep"}
    divided, whole = (
        demand(architecture, engine.rank(architecture, layout), Precision(), layout, layers)
        for engine in (SGLang(), SGLang(SGLangOptions(**flags)))
    )
    for product in ("mlp", "experts_shared"):
        assert whole.flops[product] == divided.flops[product]
        assert whole.weights[product] == 8 * divided.weights[product]
    assert whole.flops["router"] * 8 == divided.flops["router"]  # each rank chooses experts for its tokens alone


def test_rows_of_the_embedding_are_read_where_it_stands():
    """A row of 5,120 elements of 16 bits a token (Qwen3-32B's config.json), on the first stage alone (vLLM
    `models/qwen2.py`, SGLang `models/qwen2.py`: `PPMissingLayer` on the others)."""
    whole, layout = Architecture.from_config(models()["Qwen/Qwen3-32B"].config), Layout(pp=4)
    stages = [demand(whole, whole, Precision(), layout, range(first, first + 16)) for first in range(0, 64, 16)]
    assert [stage.passed("embedding", decode(8, 1000))[1] for stage in stages] == [8 * 5120 * 2, 0, 0, 0]
