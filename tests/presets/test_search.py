"""Presets by the words that people type."""

import pytest

from presets import models
from presets.search import by_maker, exact, find, label


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("deepseek v3", "deepseek-ai/DeepSeek-V3", id="spaces"),
        pytest.param("DEEPSEEK-v3", "deepseek-ai/DeepSeek-V3", id="case"),
        pytest.param("qwen2.5 3b", "Qwen/Qwen2.5-3B", id="name"),
        pytest.param("Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B", id="instruct"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", id="id-of-instruct"),
        pytest.param("llama 405b", "meta-llama/Llama-3.1-405B", id="only-one"),
        pytest.param("70b", None, id="several"),
        pytest.param("2022-02", None, id="date-of-one"),
        pytest.param("nobody's model", None, id="none"),
    ],
)
def test_what_a_text_names(text, named):
    found = exact(text)
    assert (found and found.id) == named


@pytest.mark.parametrize("text", ["qwen moe", "MoE Qwen"])
def test_words_in_any_order(text):
    found = {preset.id for preset in find(text)}
    assert {"Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen1.5-MoE-A2.7B"} <= found
    assert "Qwen/Qwen3-8B" not in found


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        pytest.param("2024", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", id="year"),
        pytest.param("2025-04 qwen", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B", id="month"),
        pytest.param("gemma 12", "google/gemma-3-12b-it", "google/gemma-2-9b", id="size-not-month"),
        pytest.param(
            "mistral 24", "mistralai/Mistral-Small-24B-Instruct-2501", "mistralai/Mixtral-8x22B-v0.1", id="24"
        ),
    ],
)
def test_dates(text, has, lacks):
    found = {preset.id for preset in find(text)}
    assert has in found
    assert lacks not in found


def test_the_newest_come_first():
    months = [preset.month for preset in find("qwen")]
    assert months == sorted(months, reverse=True)
    listed = by_maker()
    assert sorted(listed) == sorted(models())
    assert listed.index("Qwen/Qwen3-8B") < listed.index("Qwen/Qwen2.5-7B") < listed.index("stabilityai/stablelm-2-1_6b")


def test_every_preset_is_found_by_its_own_name():
    for name, preset in models().items():
        assert exact(name) == preset
    assert (
        label("deepseek-ai/DeepSeek-V3") == "DeepSeek-V3 · 685B MoE · 2024-12 · deepseek-ai"
    )  # as published, with its MTP layer
