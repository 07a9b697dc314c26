"""What makes a step smaller: beside a published table, and as laws."""

import pytest

from benchmarks.accuracy.training import LADDER, ladder
from calc import RECIPES, Architecture, Precision, TrainingLayout, TrainingWorkload
from calc.errors import ConfigError
from calc.training import SmallerSteps, Training, TrainingScenario, more_gpus, over_gpus, usual_base
from calc.units import GIB
from presets import gpus, models


def training(model="Qwen/Qwen2.5-0.5B", recipe="master", weights="bf16", layout=None, **work):
    architecture = Architecture.from_config(models()[model].config)
    workload, layout = TrainingWorkload(**work), layout or TrainingLayout()
    frozen = Precision(weights=weights)
    return Training(
        architecture, TrainingScenario(workload=workload, recipe=RECIPES[recipe], layout=layout, frozen=frozen)
    )


@pytest.mark.parametrize(
    ("lever", "step"),
    [
        pytest.param("chunked_loss", "+ chunked cross entropy", id="chunked_loss"),
        pytest.param("checkpointing", "+ activation checkpointing", id="checkpointing"),
        pytest.param("in_backward", "+ optimizer step in backward", id="optimizer in backward"),
        pytest.param("offload", "+ activation offloading", id="offloading"),
    ],
)
def test_torchtune_ladder(lever, step):
    """README of torchtune 0.6, "Optimization flags": each technique on top of those before."""
    names = [name for name, _, _ in LADDER]
    before = ladder()[names.index(step) - 1]
    now = before.training()
    saves = {one.name: one.saves for one in SmallerSteps(gpus()["a100-sxm-80gb"], now).levers}
    measured = {name: gib for name, gib, _ in LADDER}
    saved = measured[names[names.index(step) - 1]] - measured[step]
    assert saves[lever] / GIB == pytest.approx(saved, abs=0.7)


STEPS = [
    pytest.param("h100-sxm", training("Qwen/Qwen3-8B"), id="full, one GPU"),
    pytest.param("rtx-4090", training("Qwen/Qwen3-8B", method="lora"), id="LoRA, 24 GB"),
    pytest.param("l40s", training("meta-llama/Llama-3.1-70B", weights="nf4-dq", method="qlora"), id="QLoRA, 48 GB"),
    pytest.param(
        "h100-sxm",
        training(
            "Qwen/Qwen3-8B",
            "autocast",
            micro_batch=6,
            attention="eager",
            layout=TrainingLayout(dp=8, zero=3, reshard_after_forward=False),
        ),
        id="FSDP",
    ),
    pytest.param("a100-sxm-40gb", training("Qwen/Qwen3-30B-A3B", micro_batch=2, keep_outputs=True), id="experts"),
]


def changed(step, changes):
    """The step with these fields, as a link sets them."""
    work = {name: value for name, value in changes.items() if name in TrainingWorkload.model_fields}
    layout = {name: value for name, value in changes.items() if name in TrainingLayout.model_fields}
    parts = {
        "workload": TrainingWorkload(**{**dict(step.work), **work}),
        "layout": step.layout.model_copy(update=layout),
    }
    if "recipe" in changes:
        parts["recipe"] = RECIPES[changes["recipe"]]
    if "weights" in changes:  # as the method usually has it
        parts["frozen"] = usual_base(work["method"])
    return step.changed(**parts)


@pytest.mark.parametrize(("gpu", "step"), STEPS)
def test_a_lever_does_what_it_says(gpu, step):
    usable, before = gpus()[gpu].usable_bytes, step.memory().total
    levers = SmallerSteps(gpus()[gpu], step).levers
    assert {"fused_loss", "checkpointing"} <= {lever.name for lever in levers}
    for lever in levers:
        after = changed(step, lever.changes).memory()
        assert (before - after.total, usable - after.total) == (lever.saves, lever.spare)
        assert lever.saves > 0
        assert (lever.verdict == "fits") == (after.high <= usable)


@pytest.mark.parametrize(("gpu", "step"), STEPS)
def test_the_least_that_fits_fits_and_less_does_not(gpu, step):
    here = SmallerSteps(gpus()[gpu], step)
    assert not here.fits(here.now)
    assert changed(step, here.least.changes).memory().high <= gpus()[gpu].usable_bytes
    for change in here.chosen:
        assert not here.fits(here.after(other for other in here.chosen if other is not change))


@pytest.mark.parametrize(("gpu", "step"), STEPS)
def test_the_fewest_gpus_with_what_has_to_change(gpu, step):
    found, usable = more_gpus(gpus()[gpu], step), gpus()[gpu].usable_bytes
    after = changed(step, found.changes)
    assert after.layout.gpus == found.gpus
    assert after.memory().high <= usable
    if found.gpus > 1:
        fewer = after.changed(layout=after.layout.model_copy(update={"dp": after.layout.dp - 1}))
        assert fewer.memory().high > usable


@pytest.mark.parametrize(
    ("gpu", "step", "what"),
    [
        pytest.param(
            "rtx-4090",
            training("Qwen/Qwen3-8B", method="lora", recompute="full"),
            {"loss": "fused"},
            id="LoRA of an 8B on 24 GB: one lever",
        ),
        pytest.param("h100-sxm", training(), None, id="it fits"),
        pytest.param("v100-sxm2-16gb", training("deepseek-ai/DeepSeek-V3"), None, id="nothing does"),
    ],
)
def test_the_least(gpu, step, what):
    least = SmallerSteps(gpus()[gpu], step).least
    assert (least and least.changes) == what


def test_one_piece_a_stage_holds_less():
    """Whoever interleaves is told what it costs: a bubble of (p - 1) / m, arXiv:2104.04473 section 2.2.1."""
    step = training("Qwen/Qwen3-8B", layout=TrainingLayout(pp=4, vp=3), accumulation=8)
    lever = next(lever for lever in SmallerSteps(gpus()["h100-sxm"], step).levers if lever.name == "one_piece")
    assert lever.changes == {"vp": 1}
    assert lever.saves == step.memory().total - changed(step, lever.changes).memory().total > 0
    assert "37.5%" in str(lever.cost)


def test_replicas_of_experts_are_whole():
    """A replica holds every expert whole; so 5 of them do, and 1,024, though neither divides the 768 columns."""
    for dp in (5, 1024):
        training("Qwen/Qwen3-30B-A3B", layout=TrainingLayout(dp=dp, zero=3))
    with pytest.raises(ConfigError, match="tp is 3"):
        training("Qwen/Qwen3-30B-A3B", layout=TrainingLayout(tp=3, dp=2))


@pytest.mark.parametrize("gpu", ["rtx-4090", "a100-sxm-40gb"])
@pytest.mark.parametrize("layout", [{}, {"dp": 2}, {"tp": 2, "dp": 2}, {"dp": 2, "zero": 3, "cpu_offload": True}])
def test_so_many_gpus_of_a_kind(gpu, layout):
    """What is offered fits so many GPUs with these changes and trains the same weights; what fits, fits on more."""
    step, before = training("Qwen/Qwen3-8B", layout=TrainingLayout(**layout)), False
    for count in (1, 2, 4, 8):
        way = over_gpus(gpus()[gpu], step, count)
        replica = layout.get("tp", 1)
        assert way is None or (way.gpus == count and count % replica == 0)
        if way is not None:
            after = changed(step, way.changes)
            assert after.fits(gpus()[gpu].usable_bytes)
            assert after.layout.gpus == count
            assert not {"method", "sequence", "recipe", "optimizer", "weights"} & way.changes.keys()
        assert way is not None or not before
        before = way is not None
