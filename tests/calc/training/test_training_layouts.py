"""The peak of each depth and stage, what fits a GPU, and on how many."""

import pytest

from calc import RECIPES, ConfigError, Overhead, Precision, TrainingLayout, TrainingWorkload
from calc.training import Training
from calc.training.moments import dot
from calc.training.verdict import judge_training
from presets import gpus
from tests.calc.training import ARCHITECTURES, training


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-0.5B", "openai-community/gpt2", "LiquidAI/LFM2-1.2B"])
@pytest.mark.parametrize("gpu", ["v100-sxm2-16gb", "a100-sxm-40gb", "h100-sxm"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_what_the_solver_says_fits_fits_and_one_more_does_not(model, gpu, recompute):
    step = training(model, recompute=recompute)
    verdict = judge_training(gpus()[gpu], step)
    usable = gpus()[gpu].usable_bytes
    assert (verdict.verdict == "fits") == (step.memory().high <= usable)
    for field, most in (("micro_batch", verdict.max_micro_batch), ("sequence", verdict.max_sequence)):
        assert most == 0 or step.memory(**{field: most}).high <= usable
        assert step.memory(**{field: most + 1}).high > usable
    assert verdict.min_gpus is None or (verdict.min_gpus == 1) == (verdict.verdict == "fits")


@pytest.mark.parametrize(
    ("model", "layout", "field"),
    [
        ("Qwen/Qwen3-30B-A3B", TrainingLayout(ep=3, dp=4), "ep"),
        ("Qwen/Qwen3-30B-A3B", TrainingLayout(ep=3, dp=3), "ep"),
        ("meta-llama/Llama-3.1-8B", TrainingLayout(tp=3), "tp"),
        ("meta-llama/Llama-3.1-8B", TrainingLayout(pp=33), "pp"),
    ],
)
def test_layouts_that_do_not_divide(model, layout, field):
    with pytest.raises(ConfigError) as error:
        training(model, layout=layout)
    assert error.value.field == field


@pytest.mark.parametrize("model", ["ai21labs/AI21-Jamba-Reasoning-3B", "deepseek-ai/DeepSeek-V4-Pro", "Qwen/Qwen3-8B"])
@pytest.mark.parametrize(
    ("recipe", "layout", "work"),
    [
        pytest.param("bf16", {}, {}, id="gradients stay"),
        pytest.param("autocast", {"dp": 8, "zero": 3}, {"recompute": "full"}, id="FSDP"),
        pytest.param("master", {"tp": 2}, {"attention": "eager"}, id="sequence parallel"),
    ],
)
def test_the_peak_is_that_of_every_depth(model, recipe, layout, work):
    """Of equal layers only the depths that may be the peak are looked at; no other is above them."""
    layout, work = TrainingLayout(**layout), TrainingWorkload(**work)
    step = Training(ARCHITECTURES[model], work, RECIPES[recipe], layout, Overhead(), Precision())
    course = step.stage(0, single=False).course
    everywhere = [moment for here in (*course.forward(), *course.backward()) for moment in here.step_moments()]
    for micro_batch, sequence in ((1, 1), (1, 128), (2, 4096), (64, 1000), (1, 2**20)):
        units = step.units(micro_batch, sequence)
        peaks = [course.peak_bytes(units, backward=backward) for backward in (False, True)]
        assert max(peaks) == max(dot(moment.bytes, units) for moment in everywhere)


@pytest.mark.parametrize(("recipe", "layout"), [("bf16", {"pp": 4}), ("autocast", {"pp": 4, "dp": 4, "zero": 3})])
def test_equal_stages_weigh_the_same(recipe, layout):
    """The second and the third of four stages of eight equal layers each, with one micro-batch in flight."""
    step = training("meta-llama/Llama-3.1-8B", recipe, layout=TrainingLayout(**layout))
    assert step.by_stage[1] == step.by_stage[2]


@pytest.mark.parametrize(
    ("model", "gpu", "usable_by"),
    [
        pytest.param("mistralai/Mixtral-8x7B-v0.1", "h200-sxm", 8, id="more than 8 ranks gather more than 8 experts"),
        pytest.param("Qwen/Qwen1.5-MoE-A2.7B", "a100-sxm-40gb", 64, id="60 experts"),
    ],
)
def test_more_replicas_may_hold_more_experts(model, gpu, usable_by):
    """FSDP2 cuts a layer's experts between whole ones, so that each of 16 ranks has one of 8 and all of them gather 16:
    a GPU on which 1,024 replicas don't fit may do with a few. The fewest is that of trying one after the other."""
    step, card = training(model, "autocast"), gpus()[gpu]
    verdict = judge_training(card, step)
    tried = (n for n in range(1, usable_by + 1) if step.over(n).memory().high <= card.usable_bytes)
    assert verdict.min_gpus == next(tried)
    assert step.over(1024).memory().high > card.usable_bytes
