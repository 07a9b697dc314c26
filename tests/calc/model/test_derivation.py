"""What is shown as a formula is what is computed."""

import subprocess
import sys
from math import floor

import pytest

from calc import Architecture
from calc.model.block import Block
from calc.model.derivation import PARTS, SYMBOLS, Symbols, derive
from calc.model.feedforward import MLP
from calc.model.mla import LatentAttention, LightningIndexer
from presets import models
from tests import load
from tests.cases import in_one_test

BORROWED = LightningIndexer(n_index=2, d_index=4, owned=False)
ORACLE = load("oracle.json")
FAMILIES = {row["config"]["model_type"]: row["config"] for row in ORACLE}
ARCHITECTURES = [pytest.param(Architecture.from_config(config), id=name) for name, config in FAMILIES.items()]


def preset(name):
    return Architecture.from_config(models()[name].config)


def number(side, numbers):
    """A side of a shape with numbers for its symbols."""
    return side if isinstance(side, int) else side.subs({symbol: numbers[symbol.name] for symbol in side.free_symbols})


def value(text, symbols=None):
    """The number that a formula comes to, with its values filled in or with those of its symbols."""
    text = text.replace("·", "*").replace("×", "*").replace(" layers", "").replace(" layer", "").replace(",", "")
    text = text.replace("⌊", "floor(").replace("⌋", ")").replace("²", "**2").replace("³", "**3")
    return eval(text, {"floor": floor}, symbols or {})


@in_one_test("architecture", ARCHITECTURES)
def test_every_line_comes_to_its_result(architecture):
    derivation = derive(architecture)
    for step in (*derivation.tensors, *derivation.parameters, *derivation.active, *derivation.cache):
        assert value(str(step.values)) == step.result, step


@in_one_test("architecture", ARCHITECTURES)
def test_formulas_give_the_same_as_their_values(architecture):
    derivation = derive(architecture)
    numbers = {name: number for name, (_, number) in derivation.legend.items()}
    for step in (*derivation.tensors, *derivation.parameters, *derivation.active, *derivation.cache):
        assert value(str(step.formula), numbers) == step.result, step


@in_one_test("architecture", ARCHITECTURES)
def test_symbols_stand_for_the_sizes(architecture):
    numbers = {name: number for name, (_, number) in derive(architecture).legend.items()}
    formulas = Symbols().apply(architecture).tensors()
    assert [formula.name for formula in formulas] == [tensor.name for tensor in architecture.tensors()]
    for formula, tensor in zip(formulas, architecture.tensors(), strict=True):
        assert tuple(number(side, numbers) for side in formula.shape) == tensor.shape


def test_a_symbol_of_a_part_is_that_of_a_field():
    fields = {field for part in PARTS for field in part.model_fields}
    assert {name.partition(".")[0] for name in SYMBOLS if "." in name} <= fields


@in_one_test("architecture", ARCHITECTURES)
def test_the_legend_names_what_occurs(architecture):
    derivation = derive(architecture)
    written = " ".join(str(step.formula) for step in (*derivation.tensors, *derivation.active, *derivation.cache))
    words = set(written.translate(dict.fromkeys(map(ord, "·×()+/⌊⌋²³"), " ")).split())
    assert set(derivation.legend) == {word for word in words if not word.isdigit()} - {"layer", "layers"}


@in_one_test("architecture", ARCHITECTURES)
def test_the_lines_sum_to_the_totals(architecture):
    counts = architecture.parameters()
    assert sum(step.result for step in derive(architecture).parameters) == counts.total
    assert sum(step.result for step in derive(architecture).active) == counts.active


def test_known_totals():
    """Qwen2.5-3B and DeepSeek-V3, counted from their checkpoints."""
    qwen, v3 = preset("Qwen/Qwen2.5-3B"), preset("deepseek-ai/DeepSeek-V3")
    assert sum(step.result for step in derive(qwen).parameters) == 3_085_938_688
    assert sum(step.result for step in derive(v3).parameters) == 671_026_404_352
    assert sum(step.result for step in derive(v3).active) == 37_552_282_624


def test_sizes_that_differ_between_layers_have_symbols_of_their_own():
    """Gemma 4's whole-context layers have wider heads; Falcon-H1 has heads of two kinds side by side."""
    rows = derive(preset("google/gemma-4-31B-it")).legend
    assert rows["d_head"] != rows["d_head_2"]
    rows = derive(preset("tiiuae/Falcon-H1-0.5B-Base")).legend
    assert (rows["d_head"][0], rows["d_m"][0]) == ("head_dim", "head width of the recurrent mixer")


def test_a_size_that_no_formula_uses_is_not_in_the_legend():
    """A layer that takes the choice of an earlier layer's indexer holds none of the indexer's weights: GLM-5.2."""
    mixer = LatentAttention(n_q=4, q_rank=8, kv_rank=8, d_nope=4, d_rope=2, d_v=4, indexer=BORROWED)
    block = Block(layers=(0,), mixers=(mixer,), ffn=MLP(intermediate=32), norms=("input_layernorm",))
    assert {"n_i", "d_i"}.isdisjoint(
        derive(Architecture(model_type="glm", hidden=16, vocab=64, tied=True, blocks=(block,))).legend
    )


def test_factors_stand_as_in_the_paper():
    steps = {step.what: step for step in derive(preset("Qwen/Qwen2.5-3B")).tensors}
    key = steps["model.layers.{layer}.self_attn.k_proj.weight"]
    assert (str(key.formula), str(key.values), key.result, key.unit) == (
        "n_kv·d_head × h",
        "2·128 × 2048",
        524_288,
        "parameters",
    )


def test_calc_imports_without_sympy():
    code = "import calc, calc.model.derivation, sys; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_of_the_paper():
    derivation = derive(preset("deepseek-ai/DeepSeek-V3"))
    steps = {step.what: step for step in derivation.tensors}
    query = steps["model.layers.{layer}.self_attn.q_b_proj.weight"]
    assert str(query.formula) == "(n_q·(d_nope + d_rope)) × r_q"
    assert str(query.values) == "(128·(128 + 64)) × 1536"
    assert derivation.legend["r_q"] == ("q_lora_rank", 1536)
