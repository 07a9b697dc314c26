"""Every model of the oracle: transformers 5.23 on the meta device, from published configs."""

import json
from pathlib import Path

import pytest

from calc import Architecture
from calc.cache import growth

ORACLE = json.loads((Path(__file__).parent / "data" / "oracle.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ORACLE])
def test_exact(row):
    architecture = Architecture.from_config(row["config"])
    parameters = architecture.parameters()
    assert parameters.total == row["total"]
    assert parameters.active == row["active"]
    assert parameters.components == row["components"]
    assert parameters.not_in_total == {
        "persistent_buffers": row["persistent_buffers"],
        "multi_token_prediction": row["multi_token_prediction"],
        "vision": row["vision"],
    }


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ORACLE])
def test_cache(row):
    elements = growth(Architecture.from_config(row["config"]))
    assert elements.pop(None, 0) == row["cached_full"]
    assert sum(elements.values()) == row["cached_sliding"]
    assert sorted(elements) == row["windows"]


@pytest.mark.parametrize(
    ("config", "total"),
    [  # each class of transformers 5.23 with no argument at all, on the meta device
        pytest.param({"model_type": "llama"}, 6_738_415_616, id="llama"),
        pytest.param({"model_type": "mistral"}, 7_241_732_096, id="mistral"),
    ],
)
def test_absent_fields_mean_the_class_default(config, total):
    assert Architecture.from_config(config).parameters().total == total


def test_names_are_unique_and_complete():
    architecture = Architecture.from_config(next(row["config"] for row in ORACLE if row["id"].endswith("DeepSeek-V3")))
    names = [name for tensor in architecture.tensors() for name in tensor.names()]
    assert len(names) == len(set(names))
    assert "model.layers.60.mlp.experts.255.down_proj.weight" in names
    assert "model.layers.2.mlp.gate_proj.weight" in names
    assert "model.layers.3.mlp.gate.e_score_correction_bias" in names
    assert "model.layers.61.shared_head.head.weight" in names
