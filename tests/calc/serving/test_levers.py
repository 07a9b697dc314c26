"""What is offered where a model does not fit: each lever does what it says when it is asked anew."""

from itertools import cycle

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats import Native, native
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from calc.serving.levers import layout_label, layout_verdicts, levers
from calc.serving.memory import Serving
from presets import models
from tests.structures import generating, mark

KINDS = ("h100-sxm", "a100-sxm-80gb", "rtx-4090", "l40s")
STARTED = (("vllm", "int4"), ("sglang", None), ("transformers", None), ("llamacpp", "Q8_0"))
"""Engines, each with a format."""
CASES = [
    pytest.param("deepseek-ai/DeepSeek-V3", "h200-sxm", 64, 32_768, Layout(tp=8), "vllm", id="another layout"),
    pytest.param("deepseek-ai/DeepSeek-V3", "h100-sxm", 64, 32_768, Layout(tp=8), "vllm", id="weights and layout"),
    pytest.param("Qwen/Qwen3-8B", "v100-sxm2-16gb", 4, 8192, Layout(), "vllm", id="weights"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "vllm", id="weights and cache"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "sglang", id="SGLang"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "tensorrt-llm", id="TensorRT-LLM"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "transformers", id="transformers"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4070", 4, 32_768, Layout(), "llamacpp", id="llama.cpp"),
    pytest.param("google/gemma-3-27b-it", "rtx-6000-ada", 2, 16_384, Layout(tp=2), "vllm", id="two GPUs"),
    pytest.param("Qwen/Qwen3-30B-A3B", "rtx-4090", 1, 8192, Layout(pp=2), "llamacpp", id="shares of two GPUs"),
    pytest.param("moonshotai/Kimi-K2.5", "a100-sxm-80gb", 16, 8192, Layout(tp=8), "vllm", id="int4 in parts"),
]


def serving(model, engine, layout, precision=None):
    config = models()[model].config
    kind = ENGINES[engine]()
    return Serving.of(Architecture.from_config(config), kind, precision or Precision.of(config), layout, Overhead())


SAMPLE = [
    pytest.param(
        model,
        ("v100-sxm2-16gb", "rtx-4090", "h100-sxm", "mi300x")[number % 4],
        engine,
        weights,
        marks=[pytest.mark.sweep] * (number % 5 != 0),
    )
    for number, model in enumerate(generating())
    for engine, weights in (("vllm", ("fp8", "int4", None)[number % 3]), ("sglang", "nvfp4"), ("transformers", None))
    if number % 3 == 0
]
"""A third of the presets, each on one GPU in one format for each engine; in every run a fifth of those."""


def check_levers(model, gpu, workload, layout, engine, weights=None):
    """Each lever, asked anew, has the verdict and the headroom that it promised."""
    config, kind = models()[model].config, ENGINES[engine]
    one = serving(model, engine, layout, Precision.of(config, weights))
    asked_now = {"engine": kind(), "precision": one.precision, "layout": layout, "gpus": [gpus()[gpu]]}
    (before,) = report(config, workload=workload, **asked_now).verdicts
    offered = levers(gpus()[gpu], one, workload, native(config))
    for lever in offered:
        asked = dict(lever.changes)
        shape = layout.model_copy(update={name: asked.pop(name) for name in ("tp", "pp", "dp", "ep") if name in asked})
        work = workload.model_copy(update={name: asked.pop(name) for name in ("batch", "context") if name in asked})
        formats = asked.pop("weights", weights), asked.pop("kv", one.precision.kv)
        (after,) = report(
            config,
            engine=kind().with_options(**asked),
            workload=work,
            precision=Precision.of(config, *formats),
            layout=shape,
            gpus=[gpus()[gpu]],
        ).verdicts
        assert (after.verdict, after.spare, after.gpus) == ("fits", lever.spare, lever.gpus)
        assert lever.saves == after.spare - before.spare
        assert [str(sentence) for sentence in lever.what]
    return offered


@pytest.mark.parametrize(("model", "gpu", "batch", "context", "layout", "engine"), CASES)
def test_each_lever_does_it(model, gpu, batch, context, layout, engine):
    assert check_levers(model, gpu, Workload(batch=batch, context=context), layout, engine)


@pytest.mark.parametrize(("model", "gpu", "engine", "weights"), SAMPLE)
def test_each_lever_of_a_sample_does_it(model, gpu, engine, weights):
    context = min(8192, serving(model, "transformers", Layout()).architecture.learned_positions or 8192)
    check_levers(model, gpu, Workload(batch=4, context=context), Layout(), engine, weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpu", "batch", "context"),
    [
        pytest.param(model, gpu, batch, context, marks=mark(model, 3 * place + load, 12))
        for model in models()
        for place, gpu in enumerate(KINDS)
        for load, (batch, context) in enumerate([(4, 8192), (1, 32_768), (64, 4096)])
    ],
)
def test_each_lever_of_every_preset_does_it(model, gpu, batch, context):
    """vLLM's, in the checkpoint's own format; in every run each structure on one GPU under one load in turn."""
    most = Architecture.from_config(models()[model].config).learned_positions or context
    check_levers(model, gpu, Workload(batch=batch, context=min(most, context)), Layout(), "vllm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpu", "engine", "weights"),
    [
        pytest.param(model, gpu, engine, weights, marks=mark(model, number, len(STARTED)))
        for model, gpu in zip(models(), cycle(KINDS), strict=False)
        for number, (engine, weights) in enumerate(STARTED)
    ],
)
def test_each_lever_of_every_engine_does_it(model, gpu, engine, weights):
    """Each preset on one of the GPUs in turn."""
    config = models()[model].config
    try:
        found = serving(model, engine, Layout(), Precision.of(config, weights))
    except ConfigError:  # the engine does not read this model in this format
        return
    context = min(found.architecture.learned_positions or 8192, 8192)
    check_levers(model, gpu, Workload(batch=4, context=context), Layout(), engine, weights)


def test_what_runs_is_offered_where_a_format_does_not():
    """docs.vllm.ai, Quantization: FP8 from compute capability 7.5 on, GPTQ from 7.0, which a V100 has."""
    large, small = (
        check_levers("Qwen/Qwen3-8B", gpu, Workload(), Layout(), "vllm", "fp8")
        for gpu in ("v100-sxm2-32gb", "v100-sxm2-16gb")
    )
    assert [lever.changes for lever in large] == [{"weights": form} for form in ("bf16", "int8-gptq", "int4-gptq")]
    assert [lever.changes for lever in small] == [{"weights": form} for form in ("int8-gptq", "int4-gptq")]


def test_what_has_kernels_is_offered_where_16_bits_do_not_fit():
    """docs.vllm.ai, Quantization: of fp8, AWQ and GPTQ a V100 has kernels for GPTQ alone; a T4 for all, and gets the
    usual ones."""
    volta, turing = (
        check_levers("Qwen/Qwen3-8B", gpu, Workload(), Layout(), "vllm") for gpu in ("v100-sxm2-16gb", "t4")
    )
    weights = [lever.changes["weights"] for lever in volta if "weights" in lever.changes]
    assert weights == ["int8-gptq", "int4-gptq"]
    assert {lever.changes.get("weights") for lever in turing} & {"int8-gptq", "int4-gptq"} == set()


def test_deepseek_v3_on_eight_h200():
    """The first question of an engineer: TP repeats the latent cache of MLA on every GPU, copies of the attention that
    share the experts do not."""
    one, workload = serving("deepseek-ai/DeepSeek-V3", "vllm", Layout(tp=8)), Workload(batch=64, context=32_768)
    found = layout_verdicts(gpus()["h200-sxm"], one, workload, 8)
    assert (layout_label(found[0].layout), found[0].verdict, found[0].spare > 0) == ("DP 8 + EP 8", "fits", True)
    assert {layout_label(way.layout): way.verdict for way in found}["TP 8"] == "does not fit"
    first = levers(gpus()["h200-sxm"], one, workload, native(models()["deepseek-ai/DeepSeek-V3"].config))[0]
    assert first.changes == {"tp": 1, "dp": 8, "ep": 8}


def test_the_layout_of_several_gpus_is_one_that_fits_on_some():
    """V100s come first and hold DeepSeek-V3 in no way; eight H200 do with DP 8 + EP 8, and so do eight B200."""
    kinds = [gpus()[name] for name in ("v100-sxm2-16gb", "b200", "h200-sxm", "h100-sxm")]
    found = report(
        models()["deepseek-ai/DeepSeek-V3"].config,
        workload=Workload(batch=64, context=32_768),
        num_gpus=8,
        gpus=kinds,
    )
    assert layout_label(found.scenario.layout) == "DP 8 + EP 8"
    assert [verdict.verdict for verdict in found.verdicts] == ["does not run", "fits", "fits", "does not fit"]


def test_ways_are_over_as_many_gpus_and_the_best_is_first():
    one, workload = serving("Qwen/Qwen3-235B-A22B", "vllm", Layout()), Workload(batch=8, context=32_768)
    for count in (1, 6, 8, 16):
        found = layout_verdicts(gpus()["h100-sxm"], one, workload, count)
        assert {way.layout.gpus for way in found} <= {count}
        fits = [way.verdict == "fits" for way in found]
        assert fits == sorted(fits, reverse=True)


def test_nothing_is_offered_that_the_engine_refuses():
    """MLA's latent cache in fp8 is offered where it is smaller; a dense model has no experts to spread."""
    one = serving("Qwen/Qwen3-8B", "vllm", Layout())
    for lever in levers(gpus()["v100-sxm2-16gb"], one, Workload(batch=4, context=8192), Native("bf16")):
        assert lever.changes.keys().isdisjoint({"ep", "dp"})
