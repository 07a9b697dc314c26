"""Memory of a training step: outside numbers first, then laws."""

import json
from pathlib import Path

import pytest

from calc import Architecture
from calc.saved import kept_bytes
from calc.workload import TrainingWorkload
from presets import models

ARCHITECTURES = {name: Architecture.from_config(preset.config) for name, preset in models().items()}
SAVED = json.loads((Path(__file__).parent / "data" / "saved.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id="{model}-{attention}-{micro_batch}x{sequence}-{recompute}-{fused}".format(**row))
        for row in {json.dumps(row): row for row in SAVED}.values()
    ],
)
def test_saved_by_one_layer(row):
    """What autograd saved in the classes of transformers 5.23; DeepSeek's layer is one with experts."""
    architecture = ARCHITECTURES[row["model"]]
    fields = ("micro_batch", "sequence", "attention", "recompute", "fused")
    work = TrainingWorkload(**{field: row[field] for field in fields})
    tokens = row["micro_batch"] * row["sequence"]
    ours = kept_bytes(architecture.blocks[-1], architecture.hidden, work, tokens)
    assert ours == pytest.approx(row["bytes"], rel=0.001)
