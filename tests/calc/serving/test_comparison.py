"""Configurations side by side."""

import pytest

from calc import Architecture
from calc.serving.comparison import cache_growth, ratio, settings
from calc.serving.engines.vllm.engine import VLLM
from presets import models


@pytest.mark.parametrize(
    ("model", "nbytes"),
    [  # KV cache per token in 16 bits: arXiv:2505.09343, table 1, in KB of 1000
        pytest.param("deepseek-ai/DeepSeek-V3", 70_272, id="DeepSeek-V3"),
        pytest.param("Qwen/Qwen2.5-72B", 327_680, id="Qwen2.5-72B"),
        pytest.param("meta-llama/Llama-3.1-405B", 516_096, id="Llama-3.1-405B"),
    ],
)
def test_cache_grows_by_what_is_published(model, nbytes):
    sizes = cache_growth(Architecture.from_config(models()[model].config), VLLM(), "bf16", 3)
    assert sizes == {context: 3 * context * nbytes for context in sizes}
    assert min(sizes) == 1024
    assert max(sizes) == 131_072


@pytest.mark.parametrize(
    ("model", "gib"),
    [  # of 1,024 tokens in fp16: huggingface.co/blog/llama31, to three digits
        pytest.param("meta-llama/Llama-3.1-8B", 0.125, id="Llama-3.1-8B"),
        pytest.param("meta-llama/Llama-3.1-70B", 0.313, id="Llama-3.1-70B"),
    ],
)
def test_the_published_cache_of_1k_tokens(model, gib):
    sizes = cache_growth(Architecture.from_config(models()[model].config), VLLM(), "bf16", 1)
    assert round(sizes[1024] / 2**30 + 1e-9, 3) == gib


def test_fields_that_differ_come_first():
    rows = settings([{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4}])
    assert [row.name for row in rows] == ["b", "c", "d", "a"]
    assert [row.values for row in rows] == [(2, 5), (3, None), (None, 4), (1, 1)]
    assert [row.differs for row in rows] == [True, True, True, False]


def test_nothing_is_no_measure():
    assert ratio(3, 0) is None
    assert ratio(3, 2) == 1.5


def test_learned_positions_end_the_curve():
    """GPT-2 has a context of 1,024 (Radford et al. 2019, section 2.3): 12 layers of keys and values, 768 x 2 bytes."""
    sizes = cache_growth(Architecture.from_config(models()["openai-community/gpt2"].config), VLLM(), "bf16", 1)
    assert sizes == {1024: 1024 * 12 * 2 * 768 * 2}
