"""The size that meets a budget: the largest that keeps to it, and the next one."""

import pytest

from calc import Architecture
from calc.design.scale import scaled, token_flops
from calc.families import override
from presets import models

QWEN = models()["Qwen/Qwen3-8B"].config


def count(architecture):
    return architecture.parameters().total


@pytest.mark.parametrize(
    ("field", "values", "budget"),
    [
        ("num_hidden_layers", range(1, 513), 14_000_000_000),
        ("hidden_size", range(64, 65_537, 64), 14_000_000_000),
        ("intermediate_size", range(64, 262_145, 64), 9_000_000_000),
        ("vocab_size", range(64, 4_194_305, 64), 8_190_735_360),  # exactly Qwen3-8B itself
    ],
)
def test_the_nearest_designs(field, values, budget):
    found = scaled(QWEN, field, values, count, budget)
    below, above = (
        count(Architecture.from_config(override(QWEN, {field: d.value}))) for d in (found.below, found.above)
    )
    assert (below, above) == (found.below.amount, found.above.amount)
    assert below <= budget < above
    assert values.index(found.above.value) == values.index(found.below.value) + 1


def test_the_model_itself_meets_its_own_size():
    assert scaled(QWEN, "num_hidden_layers", range(1, 513), count, 8_190_735_360).below.value == 36


def test_values_that_make_no_model_are_passed_over():
    """32 query heads share only as many KV heads as divide them."""
    found = scaled(QWEN, "num_key_value_heads", range(1, 513), count, 8_500_000_000)
    assert (found.below.value, found.above.value) == (16, 32)


def test_a_budget_that_nothing_keeps_to():
    found = scaled(QWEN, "num_hidden_layers", range(1, 513), count, 1000)
    assert found.below is None
    assert found.above.value == 1
    assert scaled(QWEN, "num_hidden_layers", range(1, 9), count, 10**12).above is None


def test_flops_of_a_token():
    """2 for each active matrix parameter, and 4·n_q·d_head for each token looked at and layer: Kaplan et al., section
    2.1, arXiv:2001.08361."""
    architecture = Architecture.from_config(QWEN)
    matrices = 36 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 12288) + 151_936 * 4096
    assert token_flops(architecture, 8192) == 2 * matrices + 36 * 4 * 4096 * 8192
