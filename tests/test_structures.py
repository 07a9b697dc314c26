"""Few presets stand for all in `make check`, and no structure is left to the night."""

import pytest

from presets import models
from tests.structures import architectures, representatives, structures


def of(name):
    return set(structures(architectures()[name], models()[name].config))


def test_representatives_have_every_structure_and_are_few():
    assert set().union(*map(of, representatives())) == set().union(*map(of, models()))
    assert 3 * len(representatives()) < len(models())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Qwen/Qwen2.5-3B", "Qwen/Qwen3-8B", id="biases of Qwen 2, norms of heads of Qwen 3"),
        pytest.param("openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B", id="sinks"),
        pytest.param("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V2-Lite", id="compressed queries"),
    ],
)
def test_what_papers_set_apart_is_apart(one, other):
    assert of(one) - of(other)
    assert of(other) - of(one)
