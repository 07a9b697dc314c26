"""What a derivation of times shows gives what the report says, line by line."""

import re

import pytest

from calc import Architecture, Layout, Precision, Workload
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus
from calc.hardware.overhead import Overhead
from calc.serving.engines import ENGINES
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.memory import Serving
from calc.time.figures import TimeStep
from calc.time.paper import PassDerivation, ServingDerivations, derive_step
from calc.time.report import time_report
from calc.time.training import training_speed
from calc.training import TrainingLayout, TrainingScenario, TrainingWorkload
from presets import models

EXPONENTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def computed(values: str) -> float:
    """A line's values, worked out."""
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda found: f"**({found[0].translate(EXPONENTS)})", values)
    text = re.sub(r"(\d(?:\.\d+)?)·10\*\*\((-?\d+)\)", r"\1e\2", text)
    text = re.sub(r"([\d.]+)·10\*\*\((-?\d+)\)", r"\1e\2", text)
    text = text.replace("·", "*").replace("−", "-").replace("^", "**")
    assert re.fullmatch(r"[\d\s.,e()+*/max-]+", text), text
    return float(eval(text))


def lines(found: PassDerivation) -> list[TimeStep]:
    return [*found.rows, *found.machine, *found.operations, *found.sums]


def serving(model, weights="bf16", engine="vllm", **layout) -> Serving:
    architecture = Architecture.from_config(models()[model].config)
    return Serving.of(architecture, ENGINES[engine](), Precision(weights=weights), Layout(**layout), Overhead())


CASES = [
    pytest.param("meta-llama/Llama-3.1-8B", "bf16", {}, id="dense"),
    pytest.param("meta-llama/Llama-3.1-70B", "fp8", {"tp": 4, "pp": 2}, id="tp-pp-fp8"),
    pytest.param("google/gemma-3-27b-it", "int4", {"tp": 2}, id="windows-int4"),
    pytest.param("deepseek-ai/DeepSeek-V3", "fp8", {"dp": 8, "ep": 8}, id="mla-experts-sent"),
    pytest.param("deepseek-ai/DeepSeek-V3", "fp8", {"tp": 8, "dcp": 8}, id="mla-tokens-shared"),
    pytest.param("Qwen/Qwen3-30B-A3B", "bf16", {"tp": 2, "dp": 2}, id="experts-in-slices"),
    pytest.param("Qwen/Qwen3.5-35B-A3B", "bf16", {}, id="recurrent"),
    pytest.param("openai/gpt-oss-120b", "mxfp4", {}, id="gpt-oss"),
]
WORK = Workload(batch=16, context=6000, generated=500)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "weights", "layout"), CASES)
def test_every_line_gives_its_result_and_all_lines_the_report(model, weights, layout):
    compare(serving(model, weights, **layout), gpus()["h100-sxm"])


@pytest.mark.parametrize("gpu", ["rtx-4090", "apple-m3-max", "p40"])
@pytest.mark.parametrize("options", [{}, {"cuda_force_cublas": True, "flash_attn": "off"}])
def test_every_line_of_a_prompt_of_llamacpp_gives_its_result(gpu, options):
    architecture = Architecture.from_config(models()["Qwen/Qwen3-8B"].config)
    engine = ENGINES["llamacpp"](LlamaCppOptions(**options))
    compare(Serving.of(architecture, engine, Precision(weights="Q4_K_M"), Layout(), Overhead()), gpus()[gpu])


def compare(weighed: Serving, gpu: GPU) -> None:
    """Every line of the derivations with its own values, and their sums with the report."""
    report, derivations = time_report(weighed, gpu, WORK), ServingDerivations(weighed, gpu, WORK)
    decode, prefill = derivations.decode(), derivations.prefill()
    for line in [*lines(decode), *lines(prefill)]:
        assert computed(str(line.values)) == pytest.approx(line.result, rel=2e-3), line
    sums = {f"{name} {line.what}": line.result for name, one in (("d", decode), ("p", prefill)) for line in one.sums}
    assert 1000 * sums["d step"] == pytest.approx(report.decode.step_ms.expected, rel=1e-9)
    assert sums["d rate"] == pytest.approx(report.decode.tokens_per_s.expected, rel=1e-9)
    assert 1000 * sums["p ttft"] == pytest.approx(report.prefill.ttft_ms.expected, rel=1e-9)
    assert sums["p rate"] == pytest.approx(report.prefill.tokens_per_s.expected, rel=1e-9)
    if weighed.layout.pp == 1:
        shown = {row.what: row.ms for row in report.decode.operations}
        times = {line.what: 1000 * line.result for line in decode.operations if line.unit == "s"}
        assert times == pytest.approx(shown)


@pytest.mark.parametrize(
    ("model", "layout", "work"),
    [
        pytest.param("meta-llama/Llama-3.1-8B", {"dp": 8, "zero": 3}, {}, id="fsdp"),
        pytest.param("meta-llama/Llama-3.1-70B", {"tp": 8, "pp": 4, "dp": 4, "zero": 1}, {"accumulation": 16}, id="3d"),
        pytest.param("meta-llama/Llama-3.1-70B", {"tp": 8, "pp": 4, "vp": 5}, {"accumulation": 16}, id="interleaved"),
        pytest.param("Qwen/Qwen3-30B-A3B", {"dp": 8, "ep": 8, "zero": 1}, {"recompute": "full"}, id="experts"),
        pytest.param("meta-llama/Llama-3.1-8B", {"cp": 4, "dp": 2}, {"sequence": 32_768}, id="context-parallel"),
    ],
)
def test_every_line_of_a_step_gives_its_result_and_all_lines_the_report(model, layout, work):
    architecture, gpu = Architecture.from_config(models()[model].config), gpus()["h100-sxm"]
    workload = TrainingWorkload(**{"sequence": 4096, **work})
    speed = training_speed(architecture, TrainingScenario(workload=workload, layout=TrainingLayout(**layout)), gpu)
    report, found = speed.time(), derive_step(speed)
    for line in lines(found):
        assert computed(str(line.values)) == pytest.approx(line.result, rel=2e-3), line
    sums = {line.what: line.result for line in found.sums}
    assert sums["step"] == pytest.approx(report.step_s.expected, rel=1e-9)
    assert sums["rate"] == pytest.approx(report.tokens_per_s_per_gpu.expected, rel=1e-9)
    assert sums["mfu"] == pytest.approx(report.mfu.expected, rel=1e-9)
