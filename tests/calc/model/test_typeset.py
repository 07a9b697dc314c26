"""What is typeset says what is written."""

from math import ceil, floor, prod

import pytest

from calc import Architecture
from calc.model.derivation import derive
from calc.model.typeset import Node, latex, latex_lines, mathml, parsed
from tests import load

FAMILIES = {row["config"]["model_type"]: row["config"] for row in load("oracle.json")}
ARCHITECTURES = [pytest.param(Architecture.from_config(config), id=name) for name, config in FAMILIES.items()]


def value(node: Node, numbers):
    """What a formula comes to, read as a person reads it."""
    parts = [value(part, numbers) for part in node.parts]
    return {
        "number": lambda: int(node.text),
        "name": lambda: numbers[node.text],
        "sum": lambda: sum(parts),
        "minus": lambda: -parts[0],
        "product": lambda: prod(parts),
        "sides": lambda: prod(parts),
        "quotient": lambda: parts[0] / parts[1],
        "power": lambda: parts[0] ** parts[1],
        "group": lambda: parts[0],
        "floor": lambda: floor(parts[0]),
        "ceiling": lambda: ceil(parts[0]),
    }[node.kind]()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_line_is_read_and_comes_to_its_result(architecture):
    derivation = derive(architecture)
    numbers = {name: number for name, (_, number) in derivation.legend.items()}
    for step in (*derivation.tensors, *derivation.parameters, *derivation.active, *derivation.cache):
        assert value(parsed(step.formula), numbers) == step.result, step
        assert value(parsed(step.values), {}) == step.result, step


@pytest.mark.parametrize(
    ("written", "typeset"),
    [
        ("2·n_kv·d_head × h", r"2 \cdot n_{\mathrm{kv}} \cdot d_{\mathrm{head}} \times h"),
        ("36 layers · (3·f·h + h²)", r"36 \cdot \left(3 \cdot f \cdot h + h^{2}\right)"),
        ("n·bits / 8", r"\frac{n \cdot \text{bits}}{8}"),
        ("⌊(d_head + d_i) / m⌋ − 1", r"\left\lfloor \frac{d_{\mathrm{head}} + d_{i}}{m} \right\rfloor - 1"),
        ("⌈16777216 / f_e_2⌉", r"\left\lceil \frac{16{,}777{,}216}{f_{e,2}} \right\rceil"),
        ("bytes_per_token·S", r"\text{bytes\_per\_token} \cdot S"),
        ("max(φ_mlp / 2, b)", r"\max(\frac{φ_{\mathrm{mlp}}}{2}, b)"),
        ("2^(E + 1)", r"2^{E + 1}"),
    ],
)
def test_latex(written, typeset):
    assert latex(parsed(written)) == typeset


def test_mathml():
    assert mathml(parsed("(n_q + 1)·h² / 1024")) == (
        "<mfrac><mrow><mrow><mrow><mo>(</mo><mrow><msub><mi>n</mi><mi>q</mi></msub><mo>+</mo><mn>1</mn></mrow>"
        "<mo>)</mo></mrow><mo>·</mo><msup><mi>h</mi><mn>2</mn></msup></mrow></mrow><mrow><mn>1,024</mn></mrow></mfrac>"
    )


def test_a_long_sum_stands_on_several_lines():
    assert latex_lines(parsed("2 layers · (100·a + 200·b − 300·c)"), width=12) == [
        r"2 \cdot (100 \cdot a",
        r" + 200 \cdot b",
        r" - 300 \cdot c)",
    ]
    assert latex_lines(parsed("a + b"), width=12) == ["a + b"]


@pytest.mark.parametrize("written", ["", "a +", "(a", "a b", "·a", "⌊a)"])
def test_what_is_no_formula(written):
    with pytest.raises(ValueError, match="no formula"):
        parsed(written)
