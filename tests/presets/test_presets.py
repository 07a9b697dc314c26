"""The presets: each one exact, each figure with its source."""

import re
from collections import Counter
from datetime import UTC, datetime
from math import prod

import pytest
from pydantic import ValidationError

from calc import Architecture
from calc.families import settings
from presets import HERE, Release, models
from tests import load
from tests.cases import in_one_test

EACH = [pytest.param(preset, id=name) for name, preset in models().items()]
STORED = {row["id"]: row["tensors"] for row in load("stored_tensors.json")}
"""Of presets that transformers has no class for: every tensor of the checkpoint's files, weights of 4 bits unpacked."""


def counted(tensors):
    """Parameters of the language model by component."""
    components = Counter()
    for tensor in tensors:
        if tensor["component"] not in ("buffer", "vision"):
            components[tensor["component"]] += prod(tensor["shape"]) * tensor["copies"]
    return {"components": dict(components), "total": components.total()}


CLASSES = {row["id"]: row for name in ("oracle.json", "components.json") for row in load(name)}
CLASSES |= {name: counted(tensors) for name, tensors in STORED.items()}


@in_one_test("preset", EACH)
def test_every_component_and_the_published_total(preset):
    """Components as the class of transformers 5.23 has them on the meta device, or as the files do; the total as the
    Hub's page has it."""
    parameters = Architecture.from_config(preset.config).parameters()
    assert parameters.components == CLASSES[preset.id]["components"]
    assert parameters.total == sum(parameters.components.values()) == CLASSES[preset.id]["total"]
    if preset.published is None:
        assert preset.id in ("study/Qwen3-8B", "study/Qwen3-8B-MHA")  # theirs are in tests/calc/model/test_studies.py
    else:
        assert parameters.total + sum(preset.auxiliary_parts().values()) == preset.published.total
        assert all(preset.auxiliary_parts().values())


@pytest.mark.parametrize("name", STORED)
def test_every_tensor_of_the_files(name):
    def kind(tensor):
        return re.sub(r"\.(\d+|\{\w+\})(?=\.)", ".#", tensor)

    ours, theirs = Counter(), Counter()
    for tensor in Architecture.from_config(models()[name].config).tensors():
        ours.update((kind(each), tensor.shape) for each in tensor.names())
    for tensor in STORED[name]:
        theirs[kind(tensor["name"]), tuple(tensor["shape"])] += tensor["copies"]
    assert ours == theirs


@in_one_test("preset", EACH)
def test_file_and_source(preset):
    assert (HERE / "models" / f"{preset.id.replace('/', '--')}.json").is_file()
    assert preset.source.startswith("https://")
    assert settings(preset.config)


UNDATED = {
    "bigcode/gpt_bigcode-santacoder",
    "stabilityai/stablelm-2-12b",
    "Zyphra/Zamba2-1.2B",
    "moonshotai/Kimi-K3",
    "study/Qwen3-8B",
    "study/Qwen3-8B-MHA",
}


def test_release_dates():
    """None is in the future, and only those have none of which nobody was found who states it."""
    dated = {name: preset.released for name, preset in models().items() if preset.released is not None}
    assert set(models()) - set(dated) == UNDATED
    assert max(released.month for released in dated.values()) <= f"{datetime.now(UTC):%Y-%m}"


@pytest.mark.parametrize(
    "released",
    [
        {"month": "2024-09"},
        {"month": "2024-09", "source": "a blog"},
        *({"month": month, "source": "https://arxiv.org/abs/2412.15115"} for month in ("2024", "2024-13", "2024-9")),
    ],
)
def test_a_date_is_a_month_with_an_address(released):
    with pytest.raises(ValidationError):
        Release.model_validate(released)


def test_the_models_that_people_ask_for():
    wanted = """
        deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-R1 Qwen/Qwen2.5-0.5B Qwen/Qwen2.5-72B Qwen/Qwen3-0.6B
        Qwen/Qwen3-235B-A22B mistralai/Mistral-7B-v0.1 mistralai/Mixtral-8x7B-v0.1 meta-llama/Llama-3.1-8B
        meta-llama/Llama-3.1-70B meta-llama/Llama-3.1-405B meta-llama/Llama-2-7b-hf google/gemma-2-9b
        google/gemma-3-27b-it openai/gpt-oss-20b openai/gpt-oss-120b microsoft/phi-4 openai-community/gpt2
    """
    assert set(wanted.split()) <= set(models())


@pytest.mark.parametrize(
    ("model", "has", "lacks"),
    [
        ("deepseek-ai/DeepSeek-V3", {"kv_lora_rank", "first_k_dense_replace"}, {"num_key_value_heads", "head_dim"}),
        ("openai-community/gpt2", {"n_embd", "n_inner"}, {"num_key_value_heads", "head_dim"}),
        ("Qwen/Qwen3-30B-A3B", {"moe_intermediate_size"}, {"intermediate_size"}),
        ("mistralai/Mixtral-8x7B-v0.1", {"intermediate_size", "head_dim"}, {"moe_intermediate_size"}),
        ("meta-llama/Llama-3.1-8B", {"head_dim", "num_key_value_heads"}, {"sliding_window"}),
    ],
)
def test_settings_are_what_the_size_depends_on(model, has, lacks):
    found = settings(models()[model].config)
    assert has <= set(found)
    assert not lacks & set(found)
