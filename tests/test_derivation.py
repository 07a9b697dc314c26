"""What is shown as a formula is what is computed."""

import json
from pathlib import Path

import pytest

from calc import Architecture
from calc.derivation import derive
from presets import models

ORACLE = json.loads((Path(__file__).parent / "data" / "oracle.json").read_text(encoding="utf-8"))
FAMILIES = {row["config"]["model_type"]: row["config"] for row in ORACLE}
ARCHITECTURES = [pytest.param(Architecture.from_config(config), id=name) for name, config in FAMILIES.items()]


def value(text):
    """The number that a formula with its values filled in comes to."""
    return eval(text.replace("·", "*").replace("×", "*").replace("²", "**2").replace(" layers", ""), {})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_line_comes_to_its_result(architecture):
    derivation = derive(architecture)
    for step in (*derivation.tensors, *derivation.parameters, *derivation.cache):
        assert value(step.values) == step.result, step


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_formulas_give_the_same_as_their_values(architecture):
    derivation = derive(architecture)
    legend = {name: number for name, (_, number) in derivation.legend.items()}
    for step in derivation.tensors:
        formula = step.formula.replace("·", "*").replace("×", "*").replace("²", "**2")
        assert eval(formula, {}, legend) == step.result, step


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_lines_sum_to_the_total(architecture):
    assert sum(step.result for step in derive(architecture).parameters) == architecture.parameters().total


def test_names_of_the_paper():
    derivation = derive(Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config))
    steps = {step.what: step for step in derivation.tensors}
    query = steps["model.layers.{layer}.self_attn.q_b_proj.weight"]
    assert query.formula == "(n_q·(d_nope + d_rope)) × r_q"
    assert query.values == "(128·(128 + 64)) × 1536"
    assert derivation.legend["r_q"] == ("q_lora_rank", 1536)
