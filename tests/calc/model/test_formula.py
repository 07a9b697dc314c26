"""A formula says the same in each notation."""

from fractions import Fraction
from math import ceil, floor, prod

import pytest

from calc import Architecture
from calc.model.derivation import derive
from calc.model.formula import (
    Formula,
    ceiling,
    largest,
    latex_lines,
    layer_count,
    minus,
    number,
    power,
    product,
    quotient,
    repeated,
    sides,
    total,
)
from calc.model.formula import floor as rounded_down
from tests import load
from tests.cases import in_one_test

FAMILIES = {row["config"]["model_type"]: row["config"] for row in load("oracle.json")}
ARCHITECTURES = [pytest.param(Architecture.from_config(config), id=name) for name, config in FAMILIES.items()]


def value(node: Formula, numbers):
    """What a formula comes to, read as a person reads it."""
    parts = [value(part, numbers) for part in node.parts]
    return {
        "number": lambda: int(node.text),
        "name": lambda: numbers[node.text],
        "sum": lambda: sum(parts),
        "minus": lambda: -parts[0],
        "layers": lambda: int(node.text),
        "product": lambda: prod(parts),
        "repeated": lambda: prod(parts),
        "sides": lambda: prod(parts),
        "quotient": lambda: parts[0] / parts[1],
        "power": lambda: parts[0] ** parts[1],
        "group": lambda: parts[0],
        "floor": lambda: floor(parts[0]),
        "ceiling": lambda: ceil(parts[0]),
    }[node.kind]()


@in_one_test("architecture", ARCHITECTURES)
def test_every_line_comes_to_its_result(architecture):
    derivation = derive(architecture)
    numbers = {name: number for name, (_, number) in derivation.legend.items()}
    for step in (*derivation.tensors, *derivation.parameters, *derivation.active, *derivation.cache):
        assert value(step.formula, numbers) == step.result, step
        assert value(step.values, {}) == step.result, step


@pytest.mark.parametrize(
    ("formula", "text", "typeset"),
    [
        (
            sides(product(2, "n_kv", "d_head"), "h"),
            "2·n_kv·d_head × h",
            r"2 \cdot n_{\mathrm{kv}} \cdot d_{\mathrm{head}} \times h",
        ),
        (
            repeated(layer_count(36), total(product(3, "f", "h"), power("h", 2))),
            "36 layers · (3·f·h + h²)",
            r"36 \cdot \left(3 \cdot f \cdot h + h^{2}\right)",
        ),
        (quotient(product("n", "bits"), 8), "n·bits / 8", r"\frac{n \cdot \text{bits}}{8}"),
        (product(3, quotient("w", "h")), "3·w / h", r"\frac{3 \cdot w}{h}"),
        (product(2, Fraction(17, 2)), "2·17 / 2", r"\frac{2 \cdot 17}{2}"),
        (quotient("a", product("b", "c")), "a / (b·c)", r"\frac{a}{b \cdot c}"),
        (
            total(rounded_down(quotient(total("d_head", "d_i"), "m")), minus(1)),
            "⌊(d_head + d_i) / m⌋ − 1",
            r"\left\lfloor \frac{d_{\mathrm{head}} + d_{i}}{m} \right\rfloor - 1",
        ),
        (
            ceiling(quotient(16777216, "f_e_2")),
            "⌈16777216 / f_e_2⌉",
            r"\left\lceil \frac{16{,}777{,}216}{f_{e,2}} \right\rceil",
        ),
        (product("bytes_per_token", "S"), "bytes_per_token·S", r"\text{bytes\_per\_token} \cdot S"),
        (
            largest(quotient("φ_mlp", 2), "b"),
            "max(φ_mlp / 2, b)",
            r"\max(\frac{φ_{\mathrm{mlp}}}{2}, b)",
        ),
        (power(2, total("E", 1)), "2^(E + 1)", r"2^{E + 1}"),
        (product("a", total("b", minus("c"))), "a·(b − c)", r"a \cdot \left(b - c\right)"),
        (total(number(-3), "a"), "−3 + a", "-3 + a"),
    ],
)
def test_text_and_latex(formula, text, typeset):
    assert (str(formula), formula.latex()) == (text, typeset)


def test_mathml():
    formula = quotient(product(total("n_q", 1), power("h", 2)), 1024)
    assert formula.mathml() == (
        "<mfrac><mrow><mrow><mrow><mo>(</mo><mrow><msub><mi>n</mi><mi>q</mi></msub><mo>+</mo><mn>1</mn></mrow>"
        "<mo>)</mo></mrow><mo>·</mo><msup><mi>h</mi><mn>2</mn></msup></mrow></mrow><mrow><mn>1,024</mn></mrow></mfrac>"
    )


def test_a_long_sum_stands_on_several_lines():
    terms = total(product(100, "a"), product(200, "b"), minus(product(300, "c")))
    assert latex_lines(repeated(layer_count(2), terms), width=12) == [
        r"2 \cdot (100 \cdot a",
        r" + 200 \cdot b",
        r" - 300 \cdot c)",
    ]
    assert latex_lines(total("a", "b"), width=12) == ["a + b"]
