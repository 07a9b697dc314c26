"""Pages of vLLM's cache, against its code and its logs."""

import pytest

from benchmarks.accuracy.records import QWEN3_NEXT
from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.memory import MIDDLE, Serving
from calc.serving.paging import alike, pool
from presets import gpus, models


def test_attention_blocks_as_long_as_a_state():
    """vLLM's log: "Setting attention block size to 544 tokens" for Qwen3-Next-80B on two GPUs, and page padding of
    1.49 %. A delta net of 32 value heads, 128 x 128, in 16 bits, beside a convolution of 4 columns."""
    rank = Architecture.from_config(QWEN3_NEXT).rank(2)
    pages = pool(alike(rank.blocks, "bf16"))
    assert [group.block for group in pages.groups if group.block] == [544]
    assert len(pages.groups) == 4
    state = 16 * 128 * 128 * 2 + 4096 * 3 * 2
    assert pages.block_bytes == 12 * 544 * 1024
    assert pages.block_bytes / 12 / state - 1 == pytest.approx(0.0149, abs=0.0001)


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


@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize("model", ["state-spaces/mamba-2.8b-hf", "meta-llama/Llama-3.1-8B", "google/gemma-3-27b-it"])
def test_the_stage_with_the_least_room_decides(model, pp):
    architecture = Architecture.from_config(models()[model].config)
    serving = Serving(architecture, VLLM(), Precision(), Layout(pp=pp), Overhead())
    found = serving.on(gpus()["h100-sxm"], Workload(context=4096))
    each = [room // found.cache.block_bytes(stage) for stage, room in enumerate(found.available(MIDDLE))]
    assert found.kv_budget.blocks == min(each) > 0
    assert pp == 1 or min(each) < max(each)
