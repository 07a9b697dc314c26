"""Bytes of stored checkpoints by scheme, as tensor headers have them: tests/data/checkpoint_bytes.json."""

import json
from fractions import Fraction
from math import prod

import pytest

from benchmarks.accuracy.checkpoint_bytes import sample, weigh
from benchmarks.oracle.stored_checkpoints import names
from calc import Architecture, report
from calc.formats import Precision, native, with_hf_quant_config
from calc.serving.engines import ENGINES
from calc.units import GIB
from cli import main
from presets import models
from tests import load
from tests.cases import in_one_test

ROWS = sample()
CONFIGS = {row["id"]: row for row in ROWS if "id" in row}
PRESETS = {row["preset"] for row in ROWS if "preset" in row}
WITHOUT_TOWER = {"MiniMaxAI/MiniMax-M3-MXFP8"}
"""Configs of the language model alone whose checkpoint holds an encoder for images, 0.4 % of it."""


@in_one_test("row", ROWS, ids=lambda row: row.get("id") or row["preset"])
def test_bytes_of_a_stored_checkpoint(row):
    """To 0.001 %: the truth has the biases that balance load in 16 bits in some families and in 32 in most."""
    weighed = weigh(row)
    assert weighed.refusal == ""
    ours = weighed.report.checkpoint
    parts = ["text", "multi_token_prediction"] + ["vision"] * (row.get("id") not in WITHOUT_TOWER)
    assert [getattr(ours, part) for part in parts] == pytest.approx([row[part] for part in parts], rel=1e-5)
    assert weighed.kv == row["kv"]
    assert weighed.report.checkpoint.total == sum(ours.formats.values())


OTHERS = [preset for name, preset in models().items() if name not in PRESETS]
SIBLINGS = {"moonshotai/Kimi-K2.6": "moonshotai/Kimi-K2.5"}
"""The same architecture, quantized the same way."""
STORED = {row["id"]: row["tensors"] for row in load("stored_tensors.json")}
BITS = {"bf16": 16, "fp32": 32, "mxfp4": Fraction(17, 4)}


@in_one_test("preset", OTHERS, ids=lambda preset: preset.id)
def test_bytes_of_the_other_presets(preset):
    """Two for each element of a checkpoint in 16 bits, four for a bias that balances load."""
    ours = report(preset.config, gpus=[]).checkpoint
    if preset.id == "openai/gpt-oss-20b":
        assert round(ours.total / GIB, 1) == 12.8  # arXiv:2508.10925, table 1
    elif preset.id in SIBLINGS:
        assert ours == report(models()[SIBLINGS[preset.id]].config, gpus=[]).checkpoint
    elif preset.id in STORED:  # its convolutions and one norm in 32 bits are 0.001 % of it
        bits = sum(prod(tensor["shape"]) * tensor["copies"] * BITS[tensor["format"]] for tensor in STORED[preset.id])
        assert ours.total == pytest.approx(int(bits / 8), rel=2e-5)
    else:
        assert ours.formats.keys() <= {"bf16", "fp32"}
        elements = sum(tensor.parameters for tensor in Architecture.from_config(preset.config).tensors())
        assert ours.total == 2 * elements + ours.formats.get("fp32", 0) // 2


def test_names_of_a_pattern():
    assert list(names("a.{0..2}.b.{4,7..8}")) == [f"a.{i}.b.{j}" for i in range(3) for j in (4, 7, 8)]
    assert list(names("lm_head")) == ["lm_head"]


FOLDER = CONFIGS["nvidia/Qwen3-235B-A22B-NVFP4"]


def test_the_folder_of_a_checkpoint(tmp_path, capsys):
    """As the command line takes it, with or without the name of its config.json."""
    for name in ("config", "hf_quant_config"):
        (tmp_path / f"{name}.json").write_text(json.dumps(FOLDER[name]))
    for path in (tmp_path, tmp_path / "config.json"):
        assert main([str(path), "--json", "--gpu", "h200-sxm"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["checkpoint"]["text"] == FOLDER["text"]
        assert printed["scenario"]["precision"] == {"weights": "nvfp4", "kv": "fp8", "imatrix": False}


def test_the_config_itself_goes_before_the_file():
    """Unless it says of mixed formats nothing more: vLLM `model_loader/weight_utils.py`."""
    own = {"quantization_config": {"quant_method": "fp8"}}
    assert with_hf_quant_config(own, FOLDER["hf_quant_config"]) == own
    mixed = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}
    assert "quantization" in with_hf_quant_config(mixed, FOLDER["hf_quant_config"])["quantization_config"]


@pytest.mark.parametrize(
    ("engine", "kv"), [("vllm", "fp8"), ("sglang", "fp8"), ("transformers", "bf16"), ("llamacpp", "bf16")]
)
def test_an_engine_takes_the_cache_that_the_checkpoint_asks_for_or_not(engine, kv):
    asked = native(with_hf_quant_config(FOLDER["config"], FOLDER["hf_quant_config"]))
    assert ENGINES[engine].precision(asked).kv == kv
    assert ENGINES[engine].precision(asked, kv="bf16").kv == "bf16"
    assert Precision.stored_as(asked).kv == "fp8"


def test_a_checkpoint_that_names_no_plain_modules_says_so():
    """NVIDIA's Nemotron 3 Super and Ultra, whose hf_quant_config.json has no exclude_modules."""
    config = models()["Qwen/Qwen3-8B"].config
    bare = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    said = report(with_hf_quant_config(config, bare), gpus=[]).assumptions
    assert any("exclude_modules" in str(sentence) for sentence in said)
