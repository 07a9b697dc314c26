"""Serving against public logs: what fits a cache, what vLLM leaves for it, and peaks of transformers' generate."""

from statistics import median

import pytest

from benchmarks.accuracy.serving import (
    Comparison,
    LeftOut,
    other_engines,
    transformers_peaks,
    vllm_budgets,
    vllm_tokens,
)
from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.serving.budget import capacity, kv_budget
from calc.serving.memory import Serving
from calc.serving.paging import alike, pool
from presets import gpus, models
from tests import load

MEASURED = load("measured.json")
FOUND = [row for kind in (transformers_peaks, vllm_tokens, vllm_budgets, other_engines) for row in kind(MEASURED)]


@pytest.mark.parametrize(
    ("kind", "records", "middle", "most", "share"),
    [  # the median, and a bound that so large a share of the records keeps
        pytest.param("transformers peaks, 16 bits", 48, 0.01, 0.05, 0.95, id="Qwen's speed benchmarks on A100 and H20"),
        pytest.param("KV tokens given KV bytes", 25, 0.001, 0.01, 0.95, id="start-up logs of vLLM 0.6 to 0.21"),
        pytest.param("vLLM KV budget", 9, 0.03, 0.08, 1, id="by the settings of the log alone"),
        pytest.param("cache of other engines", 2, 0.001, 0.01, 1, id="SGLang and llama.cpp"),
    ],
)
def test_as_measured(kind, records, middle, most, share):
    errors = [abs(row.error) for row in FOUND if isinstance(row, Comparison) and row.kind == kind]
    assert len(errors) >= records
    assert median(errors) < middle
    assert sum(error < most for error in errors) >= share * len(errors)


def test_every_record_is_compared_or_left_out_with_a_reason():
    kinds = {row["kind"] for row in MEASURED}
    assert kinds == {"vllm_startup", "hf_inference_peak", "sglang_startup", "llamacpp"}
    assert all(row.reason for row in FOUND if isinstance(row, LeftOut))


def serving(model, tp=1, **precision):
    architecture = Architecture.from_config(models()[model].config)
    return Serving(architecture, Precision(**precision), Layout(tp=tp), Overhead())


@pytest.mark.parametrize(
    ("model", "tp", "length", "tokens", "concurrency", "version"),
    [  # "GPU KV cache size" and "Maximum concurrency" of github.com/vllm-project/vllm/issues
        pytest.param("meta-llama/Llama-3.1-8B", 1, 32_768, 158_656, 4.84, "0.8.4", id="17122"),
        pytest.param("Qwen/Qwen2.5-7B", 2, 32_768, 473_184, 14.44, "0.8.5", id="17395"),
        pytest.param("meta-llama/Llama-3.1-8B", 1, 131_072, 442_160, 3.37, "0.8.5", id="18322"),
        pytest.param("Qwen/Qwen3.5-27B", 1, 32_768, 290_864, 33.04, "0.19.0", id="40691: 16 layers of 64 attend"),
    ],
)
def test_tokens_are_concurrency_times_length(model, tp, length, tokens, concurrency, version):
    """The budget is not printed: the smallest that gives the tokens also gives the requests, or one block more does."""
    one = serving(model, tp)
    workload = Workload(context=length, engine_version=version)
    pages = pool(alike(one.stages[0].blocks, "bf16"))
    groups = len(pages.groups)
    block = min(group.block for group in pages.groups if group.block)
    assert tokens % block == 0
    blocks = tokens // block * groups
    found = [capacity(one.stages[0], one, workload, (blocks + i) * pages.block_bytes, 8192) for i in range(groups)]
    assert all(found_tokens == tokens for _, found_tokens, _ in found)
    assert min(found[0][2], concurrency + 0.005) <= concurrency + 0.005
    assert found[-1][2] >= concurrency - 0.005


def test_attention_blocks_as_long_as_a_state():
    """vLLM's log: "Setting attention block size to 544 tokens" for Qwen3-Next-80B on two GPUs, and page padding of
    1.49 %. A delta net of 32 value heads, 128 x 128, in 16 bits, beside a convolution of 4 columns."""
    from benchmarks.accuracy.records import QWEN3_NEXT

    rank = Architecture.from_config(QWEN3_NEXT).rank(2)
    pages = pool(alike(rank.blocks, "bf16"))
    assert [group.block for group in pages.groups if group.block] == [544]
    assert len(pages.groups) == 4
    state = 16 * 128 * 128 * 2 + 4096 * 3 * 2
    assert pages.block_bytes == 12 * 544 * 1024
    assert 544 * 1024 / state - 1 == pytest.approx(0.0149, abs=0.0001)


@pytest.mark.parametrize(
    ("model", "groups", "layers"),
    [  # `_get_kv_cache_groups_uniform_page_size`: as many layers a group as the rarest kind has
        pytest.param("meta-llama/Llama-3.1-8B", 1, 32, id="one kind"),
        pytest.param("openai/gpt-oss-20b", 2, 12, id="12 of each"),
        pytest.param("google/gemma-3-27b-it", 7, 10, id="10 full; 52 sliding fill 6 groups, 8 places stay empty"),
        pytest.param("mistralai/Mistral-7B-v0.1", 1, 32, id="all slide"),
    ],
)
def test_groups_of_layers(model, groups, layers):
    architecture = Architecture.from_config(models()[model].config)
    pages = pool(alike(architecture.blocks, "bf16"))
    mixer = architecture.blocks[0].mixers[0]
    assert len(pages.groups) == groups
    assert pages.block_bytes == layers * 16 * 2 * mixer.n_kv * mixer.d_head * 2


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [  # vllm/engine/arg_utils.py, get_batch_defaults, of the server
        ("l4", 2048, 256),
        ("a100-sxm-80gb", 2048, 256),
        ("h100-sxm", 8192, 1024),
        ("b200", 16_384, 1024),
    ],
)
def test_defaults_by_gpu(gpu, tokens, seqs):
    budget = kv_budget(gpus()[gpu], serving("Qwen/Qwen2.5-3B"), Workload())
    assert (budget.max_num_batched_tokens, budget.max_num_seqs) == (tokens, seqs)
    assert budget.gpu_memory_utilization == 0.92
    assert budget.bytes_low <= budget.bytes <= budget.bytes_high


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b", "Qwen/Qwen3.5-9B"])
def test_more_memory_never_holds_fewer_tokens(model):
    found = [
        kv_budget(gpus()["h100-sxm"], serving(model), Workload(gpu_memory_utilization=share / 10))
        for share in range(2, 11)
    ]
    assert [b.tokens for b in found] == sorted(b.tokens for b in found)
    assert [b.concurrency for b in found] == sorted(b.concurrency for b in found)
    assert found[-1].tokens > found[-3].tokens > 0


@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize(
    "model", ["state-spaces/mamba-2.8b-hf", "ibm-ai-platform/Bamba-9B-v1", "google/gemma-3-27b-it"]
)
def test_the_stage_with_the_least_room_decides(model, pp):
    """A state is one block a request, whatever its length."""
    one = Serving(Architecture.from_config(models()[model].config), Precision(), Layout(pp=pp), Overhead())
    budget = kv_budget(gpus()["h100-sxm"], one, Workload(context=4096))
    found = [capacity(stage, one, Workload(context=4096), budget.bytes, 8192)[2] for stage in one.stages]
    assert min(found) <= budget.concurrency
    assert budget.tokens > 0
