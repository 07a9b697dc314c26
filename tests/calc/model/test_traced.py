"""Numbers with their formulas: the same arithmetic yields both."""

import pytest

from calc.model.traced import TracedSymbols


def swiglu(hidden, intermediate, tokens):
    """Bytes that a layer of Llama 3.1 8B keeps of its feed-forward: the input, gate, silu, up and product."""
    return 2 * hidden * tokens + 4 * (2 * intermediate * tokens)


def test_plain_and_traced_numbers_agree():
    symbols, sizes = TracedSymbols(), {"hidden": 4096, "intermediate": 14_336, "tokens": 2048}
    plain = swiglu(*sizes.values())
    step = symbols.step("feed-forward", swiglu(*(symbols.of(*size) for size in sizes.items())))
    assert plain == step.result == 2048 * 2 * (4096 + 4 * 14_336)
    assert eval(str(step.values).replace("·", "*")) == plain


@pytest.mark.parametrize(
    ("compute", "formula"),
    [
        pytest.param(lambda h, t: 3 + h * t - t, "h·T + 3 − T", id="sum and difference"),
        pytest.param(lambda h, t: h * t // 2, "h·T / 2", id="exact quotient"),
        pytest.param(lambda h, t: t // h + h, "h + ⌊T / h⌋", id="quotient rounded down"),
        pytest.param(lambda h, t: -(-t // 8) * h, "h·⌈T / 8⌉", id="quotient rounded up"),
        pytest.param(lambda h, t: sum([h, t, h]), "2·h + T", id="sum of a list"),
        pytest.param(lambda h, t: max(h, t), "h", id="the larger by its value"),
        pytest.param(lambda h, t: 7 - h, "7 − h", id="from a plain number"),
    ],
)
def test_arithmetic_keeps_the_formula(compute, formula):
    symbols = TracedSymbols()
    traced = compute(symbols.of("hidden", 100), symbols.of("tokens", 70))
    assert traced == compute(100, 70)
    step = symbols.step("x", traced)
    assert (str(step.formula), step.result) == (formula, compute(100, 70))
