"""What is offered where a model does not fit: each lever does what it says when it is asked anew."""

import pytest

from calc import Architecture, Layout, Overhead, Precision, Workload, report
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from calc.serving.levers import levers, spelled, ways
from calc.serving.memory import Serving
from presets import models

CASES = [
    pytest.param("deepseek-ai/DeepSeek-V3", "h200-sxm", 64, 32_768, Layout(tp=8), "vllm", id="another layout"),
    pytest.param("deepseek-ai/DeepSeek-V3", "h100-sxm", 64, 32_768, Layout(tp=8), "vllm", id="weights and layout"),
    pytest.param("Qwen/Qwen3-8B", "v100-sxm2-16gb", 4, 8192, Layout(), "vllm", id="weights"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "vllm", id="weights and cache"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "sglang", id="SGLang"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4090", 4, 32_768, Layout(), "transformers", id="transformers"),
    pytest.param("Qwen/Qwen3-8B", "rtx-4070", 4, 32_768, Layout(), "llamacpp", id="llama.cpp"),
    pytest.param("google/gemma-3-27b-it", "rtx-6000-ada", 2, 16_384, Layout(tp=2), "vllm", id="two GPUs"),
]


def serving(model, engine, layout, precision=None):
    config = models()[model].config
    kind = ENGINES[engine]()
    return Serving(Architecture.from_config(config), kind, precision or Precision.of(config), layout, Overhead())


@pytest.mark.parametrize(("model", "gpu", "batch", "context", "layout", "engine"), CASES)
def test_each_lever_does_it(model, gpu, batch, context, layout, engine):
    config, kind, workload = models()[model].config, ENGINES[engine], Workload(batch=batch, context=context)
    one = serving(model, engine, layout)
    (before,) = report(config, engine=kind(), workload=workload, layout=layout, gpus=[gpus()[gpu]]).verdicts
    offered = levers(gpus()[gpu], one, workload)
    assert offered
    for lever in offered:
        asked = dict(lever.changes)
        shape = layout.model_copy(update={name: asked.pop(name) for name in ("tp", "pp", "dp", "ep") if name in asked})
        work = workload.model_copy(update={name: asked.pop(name) for name in ("batch", "context") if name in asked})
        kv, weights = asked.pop("kv", "bf16"), asked.pop("weights", None)
        (after,) = report(
            config,
            engine=kind().with_options(**asked),
            workload=work,
            precision=Precision.of(config, weights, kv),
            layout=shape,
            gpus=[gpus()[gpu]],
        ).verdicts
        assert (after.verdict, after.spare, after.gpus) == ("fits", lever.spare, lever.gpus)
        assert lever.saves == after.spare - before.spare
        assert [str(sentence) for sentence in lever.what]


def test_deepseek_v3_on_eight_h200():
    """The first question of an engineer: TP repeats the latent cache of MLA on every GPU, copies of the attention that
    share the experts do not."""
    one, workload = serving("deepseek-ai/DeepSeek-V3", "vllm", Layout(tp=8)), Workload(batch=64, context=32_768)
    found = ways(gpus()["h200-sxm"], one, workload, 8)
    assert (spelled(found[0].layout), found[0].verdict, found[0].spare > 0) == ("DP 8 + EP 8", "fits", True)
    assert {spelled(way.layout): way.verdict for way in found}["TP 8"] == "does not fit"
    first = levers(gpus()["h200-sxm"], one, workload)[0]
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
    assert spelled(found.scenario.layout) == "DP 8 + EP 8"
    assert [verdict.verdict for verdict in found.verdicts] == ["does not run", "fits", "fits", "does not fit"]


def test_ways_are_over_as_many_gpus_and_the_best_is_first():
    one, workload = serving("Qwen/Qwen3-235B-A22B", "vllm", Layout()), Workload(batch=8, context=32_768)
    for count in (1, 6, 8, 16):
        found = ways(gpus()["h100-sxm"], one, workload, count)
        assert {way.layout.gpus for way in found} <= {count}
        fits = [way.verdict == "fits" for way in found]
        assert fits == sorted(fits, reverse=True)


def test_nothing_is_offered_that_the_engine_refuses():
    """MLA's latent cache in fp8 is offered where it is smaller; a dense model has no experts to spread."""
    one = serving("Qwen/Qwen3-8B", "vllm", Layout())
    for lever in levers(gpus()["v100-sxm2-16gb"], one, Workload(batch=4, context=8192)):
        assert lever.changes.keys().isdisjoint({"ep", "dp"})
