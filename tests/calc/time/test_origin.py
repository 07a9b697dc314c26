"""What times rest on. The counts are those of the public rows: served.json and speed.json."""

import pytest

from calc import Architecture
from calc.hardware.gpus import gpus
from calc.time.origin import COMPUTED, Origin, origin, runs_of_models
from presets import models


def of(model: str, gpu: str, engine: str) -> Origin:
    return origin(Architecture.from_config(models()[model].config), gpus()[gpu], engine)


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "basis", "rows"),
    [
        pytest.param("Qwen/Qwen3-32B", "h100-sxm", "vllm", "measured", 90, id="90 of served.json"),
        pytest.param("openai/gpt-oss-120b", "b200", "vllm", "measured", 56, id="56 of served.json"),
        pytest.param("Qwen/Qwen3-4B", "h100-sxm", "vllm", "generation", 151, id="other models there"),
        pytest.param("Qwen/Qwen3-32B", "h20", "vllm", "generation", 151, id="another GPU of the generation"),
        pytest.param("Qwen/Qwen3-32B", "gaudi3", "vllm", "computed", 0, id="nothing there"),
    ],
)
def test_a_time_says_what_it_rests_on(model, gpu, engine, basis, rows):
    assert of(model, gpu, engine) == Origin(basis=basis, rows=rows)


def test_a_sentence_says_how_many():
    assert "56 measured runs" in str(of("openai/gpt-oss-120b", "b200", "vllm").sentence)
    assert str(COMPUTED.sentence).startswith("Computed")


def test_what_is_counted_is_in_the_catalogue():
    assert {gpu for _, gpu, _ in runs_of_models()} <= set(gpus())
    assert sum(runs for (engine, *_), runs in runs_of_models().items() if engine == "sglang") >= 208
