"""Our plan of vLLM's cache beside the plans of its own code, and beside start-up logs of older versions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.vllm_kv import FIGURES, computed, differing, sample
from calc import Architecture
from calc.hardware.gpus import gpus
from calc.serving.engines.vllm.cache import divide, limits
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from presets import models
from tests.cases import in_one_test

GIB = 2**30
CONFIGS, PLANS = sample()
NANO = "nvidia/NVIDIA-Nemotron-Nano-9B-v2"
LOGS = "github.com/vllm-project/vllm/issues"


def named(row):
    asked = json.dumps(row["options"]).strip("{}").replace('"', "")
    return (
        f"{row['model']} on {row['gpu']}, tp {row['tp']}, pp {row['pp']}, {row['kv']}, {row['asked_length']}, {asked}"
    )


@in_one_test("row", PLANS, ids=named)
def test_as_vllm_plans(row):
    assert differing(computed(CONFIGS[row["model"]], row), row) == []


def test_every_figure_is_in_the_sample():
    seen = {name for row in PLANS for name in row} | {"max_length"}
    assert seen >= set(FIGURES)
    assert any(row["asked_length"] == -1 for row in PLANS)
    assert {row["gpu"] for row in PLANS} == {"a100-sxm-80gb", "b200", "h100-sxm", "l40s"}


def planned(model, *, tp=1, pp=1, kv="bf16", gpu="h100-sxm", length=8192, **options):
    architecture = Architecture.from_config(models()[model].config)
    asked, card = VLLMOptions(**options), gpus()[gpu]
    stages = list(VLLM().stages(architecture.num_layers, pp))
    reserved = limits(asked, card, architecture, length, pp=pp)
    return divide(architecture, architecture.rank(tp), kv, asked, card, tp).plan(stages, reserved)


@pytest.mark.parametrize(
    ("model", "tp", "length", "tokens", "concurrency", "version"),
    [  # "GPU KV cache size" and "Maximum concurrency" of start-up logs
        pytest.param("meta-llama/Llama-3.1-8B", 1, 32_768, 158_656, 4.84, "0.8.4", id=f"{LOGS}/17122"),
        pytest.param("Qwen/Qwen2.5-7B", 2, 32_768, 473_184, 14.44, "0.8.5", id=f"{LOGS}/17395"),
        pytest.param("meta-llama/Llama-3.1-8B", 1, 131_072, 442_160, 3.37, "0.8.5", id=f"{LOGS}/18322"),
        pytest.param("Qwen/Qwen3.5-27B", 1, 32_768, 290_864, 33.04, "0.19.0", id=f"{LOGS}/40691: 16 of 64 attend"),
    ],
)
def test_tokens_of_older_versions(model, tp, length, tokens, concurrency, version):
    """The budget is not printed: some number of blocks gives both the tokens and the requests."""
    found = planned(model, tp=tp, length=length, version=version)
    least = tokens // found.block_size(length) * len(found.groups)
    blocks = range(least, least + len(found.groups))
    assert all(found.tokens(n, length) == tokens for n in blocks)
    low, high = (found.concurrency(n, length) for n in (blocks[0], blocks[-1]))
    assert low - 0.005 <= concurrency <= high + 0.005


@pytest.mark.parametrize(
    ("model", "options", "block", "a_request"),
    [  # blocks of a request of 8,192 tokens by the table "since when" of the rules, on an H100
        pytest.param("mistralai/Mistral-7B-v0.1", {"version": "0.9.2"}, 16, 512, id="0.9: a window keeps all"),
        pytest.param("mistralai/Mistral-7B-v0.1", {"version": "0.25.1"}, 16, 513, id="0.25: a step of 8,192"),
        pytest.param(
            "mistralai/Mistral-7B-v0.1",
            {"version": "0.25.1", "max_num_batched_tokens": 2048},
            16,
            (4095 + 2048 + 15) // 16 + 1,
            id="0.25: a step of 2,048",
        ),
        pytest.param(
            "mistralai/Mistral-7B-v0.1",
            {"version": "0.26.0", "max_num_batched_tokens": 2048},
            16,
            (4095 + 2 * 2048 + 15) // 16 + 1,
            id="0.26: two steps in flight",
        ),
        pytest.param("ibm-granite/granite-4.0-h-small", {"version": "0.25.0"}, 528, 16 + 9, id="0.25: a state a group"),
        pytest.param("ibm-granite/granite-4.0-h-small", {"version": "0.31.0"}, 528, 16 + 18, id="0.26: two states"),
        pytest.param("ibm-granite/granite-4.0-h-small", {"version": "0.32.0"}, 528, 16 + 27, id="0.32: a checkpoint"),
        pytest.param("Qwen/Qwen3.5-27B", {"version": "0.32.0"}, 784, 11 + 6, id="0.32: no multiple of 64"),
        pytest.param("Qwen/Qwen3.5-27B", {"version": "0.33.0"}, 832, 10 + 9, id="0.33: multiple of 64, a checkpoint"),
    ],
)
def test_dated_rules(model, options, block, a_request):
    found = planned(model, **options)
    assert found.block_size(8192) == block
    assert found.request_blocks(8192) == a_request


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        pytest.param({"max_num_seqs": 32}, 32, id="a graph of 32"),
        pytest.param({"max_num_seqs": 30}, 32, id="rounded up to it"),
        pytest.param({"max_num_seqs": 3}, 4, id="to one of four"),
        pytest.param({"max_num_seqs": 30, "enforce_eager": True}, 30, id="no graphs"),
        pytest.param({"max_num_seqs": 32, "version": "0.10.2"}, 0, id="0.10.2: in blocks"),
    ],
)
def test_states_of_the_first_engine(options, slots):
    """0.10.1: model_executor/models/mamba_cache.py. 27 layers of 128 heads of 80 x 128 in fp32, as this family has it,
    and three columns of a convolution over 128 x 80 + 2 x 8 x 128; four layers of attention are in blocks of 16."""
    state = 27 * (128 * 80 * 128 * 4 + 3 * (128 * 80 + 2 * 8 * 128) * 2)
    plan = planned(NANO, **{"version": "0.10.1.1", **options})
    assert plan.fixed_bytes(0) == slots * state
    if slots:
        assert plan.tokens_of(4096 * 16_384, 4096) == 4096  # of the bytes that it prints, which are without states
        assert (plan.block_size(4096), plan.block_bytes) == (16, (16 * 4 * 2 * 8 * 128 * 2,))


def test_states_of_the_first_engine_lie_on_their_stages():
    whole, halves = (planned(NANO, pp=pp, max_num_seqs=32, version="0.10.1.1") for pp in (1, 2))
    assert sum(map(halves.fixed_bytes, range(2))) == whole.fixed_bytes(0)
    assert all(halves.fixed_bytes(stage) > 0 for stage in range(2))


@pytest.mark.parametrize(
    ("model", "kv", "gpu", "nbytes"),
    [  # of one token in all layers, on one GPU
        pytest.param("deepseek-ai/DeepSeek-V3", "bf16", "h100-sxm", 61 * 576 * 2, id="a latent and a rotary key"),
        pytest.param("deepseek-ai/DeepSeek-V3", "fp8", "h100-sxm", 61 * 576, id="in fp8"),
        pytest.param("zai-org/GLM-5.1", "bf16", "h100-sxm", 78 * (1152 + 132), id="an index key in fp8 with its scale"),
        pytest.param("zai-org/GLM-5.1", "fp8", "h100-sxm", 78 * (656 + 132), id="fp8 is fp8_ds_mla on Hopper"),
        pytest.param("zai-org/GLM-5.1", "bf16", "b200", 78 * (576 + 132), id="auto is fp8 on Blackwell"),
        pytest.param("tiiuae/falcon-40b", "fp8", "h100-sxm", 60 * 8 * 2 * 64 * 2, id="Falcon ignores fp8"),
    ],
)
def test_bytes_of_a_token(model, kv, gpu, nbytes):
    found = planned(model, kv=kv, gpu=gpu)
    assert found.block_bytes == (nbytes * found.block_size(8192),)


@pytest.mark.parametrize("version", ["0.7.3", "0.8.0"])
def test_padded_latents(version):
    """Before 0.8 a latent of 576 elements took as much as 640."""
    width = 640 if version < "0.8" else 576
    found = planned("deepseek-ai/DeepSeek-V3", version=version)
    assert found.block_bytes == (61 * width * 2 * found.block_size(8192),)


@pytest.mark.parametrize(
    ("model", "blocks", "tokens"),
    [  # vLLM 0.33's planner without a GPU: --speculative-config method mtp, one token; H100, 20 GiB, 8,192 tokens
        pytest.param("deepseek-ai/DeepSeek-V3", 18_791, 300_656, id="a 62nd layer"),
        pytest.param("zai-org/GLM-4.5", 3523, 56_368, id="a 93rd layer"),
        pytest.param("zai-org/GLM-5.1", 3307, 211_648, id="with an indexer"),
        pytest.param("deepseek-ai/DeepSeek-V4-Flash", 21_426, 52_176, id="with a window alone"),
        pytest.param("Qwen/Qwen3.5-27B", 370, 137_774, id="a state more, which the guess may be thrown back to"),
        pytest.param("Qwen/Qwen3.6-35B-A3B", 876, 358_809, id="the same with experts"),
    ],
)
def test_multi_token_prediction(model, blocks, tokens):
    found = planned(model, speculative="mtp")
    assert found.blocks([20 * GIB]) == blocks
    assert found.tokens(blocks, 8192) == tokens


def test_nothing_cached():
    architecture = Architecture.from_config(models()["Qwen/Qwen3-8B"].config)
    empty = architecture.model_copy(update={"blocks": (), "shared": ()})
    asked, card = VLLMOptions(), gpus()["h100-sxm"]
    reserved = limits(asked, card, empty, 8192)
    assert divide(empty, empty, "bf16", asked, card, 1).plan([range(0)], reserved) is None


MODELS = st.sampled_from(
    [
        "Qwen/Qwen3-8B",
        "google/gemma-3-27b-it",
        "openai/gpt-oss-20b",
        "deepseek-ai/DeepSeek-V4-Flash",
        "Qwen/Qwen3.5-9B",
        "LiquidAI/LFM2-1.2B",
        "state-spaces/mamba-2.8b-hf",
        "zai-org/GLM-5.3",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    ]
)


@given(MODELS, st.sampled_from([1, 2, 3]), st.integers(2**20, 200 * GIB), st.integers(1, 300_000))
def test_laws_of_a_plan(model, pp, budget, most):
    found = planned(model, pp=pp)
    budgets = [budget] * pp
    blocks = found.blocks(budgets)
    usable = found.usable_blocks(blocks)
    longest = found.cached_length(usable, most)
    assert 0 <= longest <= most
    assert longest == 0 or found.request_blocks(longest) <= usable
    assert longest == most or found.request_blocks(longest + 1) > usable
    assert blocks <= found.blocks([2 * budget] * pp)
    assert found.request_blocks(most) <= found.request_blocks(most + 1)
    held = int(found.concurrency(blocks, most))
    assert all(found.required_bytes(stage, held, most) <= budget for stage in range(pp))
    assert any(found.required_bytes(stage, held + 1, most) > budget for stage in range(pp))


def test_overridden_blocks():
    """--num-gpu-blocks-override stands for the budget."""
    found = planned("Qwen/Qwen3-8B", num_gpu_blocks_override=513)
    stated = [found.stated_bytes(0)]
    assert found.blocks(stated) == 513
    assert found.request_blocks(8192) == found.usable_blocks(513)
