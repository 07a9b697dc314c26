"""An engine on the GPUs that train: shares, sleep, what fits. What stays and what goes is from TRL 1.16
(trainer/grpo_config.py) and vLLM (device_allocator/cumem.py), as rl_steps.md has it."""

import pytest

from calc import RECIPES, Architecture, ConfigError, Objective, TrainingLayout, TrainingWorkload
from calc.hardware.custom_gpu import find_gpu
from calc.options import made
from calc.training import Colocated, Colocation, SmallerSteps, Training, TrainingScenario, training_report
from calc.training.levers import CHANGES, fields_of
from presets import models

CONFIG = models()["Qwen/Qwen2.5-1.5B"].config
H100 = find_gpu("h100-sxm")


def colocated(work=None, objective=None, layout=None, **options):
    scenario = TrainingScenario(
        workload=TrainingWorkload(
            **{"micro_batch": 8, "recompute": "full", "sequence": 2560, "optimizer_kernel": "fused"} | (work or {})
        ),
        recipe=RECIPES["bf16-autocast"],
        layout=TrainingLayout(**(layout or {})),
        objective=Objective(**{"method": "grpo", "completion": 2048, "engine_generates": True} | (objective or {})),
    )
    training = Training(Architecture.from_config(CONFIG), scenario)
    return Colocated(training, Colocation(**options), H100)


def phases(step):
    return {phase.name: phase for phase in step.phases}


def of_engine(phase):
    return sum(part.bytes for part in phase.parts if part.owner == "engine")


@pytest.mark.parametrize(("rollout", "share"), [("colocated", 0.3), ("server", 0.9)])
def test_the_share_is_trls(rollout, share):
    """TRL 1.16: vllm_gpu_memory_utilization 0.3 in GRPOConfig, 0.9 of trl vllm-serve."""
    assert Colocation(rollout=rollout).share == share


def test_an_engine_that_does_not_sleep_keeps_its_share():
    """rl_steps.md: with sleep off the engine keeps its share through the update."""
    step = colocated()
    for phase in step.phases:
        assert of_engine(phase) == step.plan.kv_budget.requested
        assert of_engine(phase) == pytest.approx(0.3 * H100.usable_bytes, abs=1)


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_gives_back_weights_and_cache(level):
    """vLLM: both levels free both pools; graphs and libraries stay; with level 1 weights wait in host memory."""
    step, awake = colocated(sleep_level=level), colocated()
    report = step.report()
    assert of_engine(phases(step)["update"]) == 0
    low, high = step.asleep()[1]
    assert 0 < low < high
    assert phases(step)["update"].total < phases(awake)["update"].total
    assert phases(step)["rollout"].total == phases(awake)["rollout"].total
    assert report.host_bytes == (step.engine_weights if level == 1 else 0)
    assert report.share_high > awake.report().share_high


def test_on_a_server_nothing_of_the_engine_is_here():
    step = colocated(rollout="server")
    assert {of_engine(phase) for phase in step.phases} == {0}


def test_what_waits_in_host_memory_is_not_on_the_gpu():
    step, whole = colocated(offload_weights=True, offload_optimizer=True), colocated()
    standing = whole.training.by_phase()["after_init"]
    away = standing.weights + standing.optimizer
    assert step.report().host_bytes == away
    there, here = (
        sum(
            part.bytes
            for part in phases(one)["rollout"].parts
            if part.owner == "trainer" and str(part.name) != "overhead"
        )
        for one in (step, whole)
    )
    assert here - there == away
    assert phases(step)["update"] == phases(whole)["update"]


def test_trained_weights_are_not_shared():
    with pytest.raises(ConfigError, match="goes with LoRA or QLoRA"):
        colocated(shared_weights=True)


def test_shared_weights_stand_once():
    """unsloth: the engine's weights are the frozen ones of LoRA."""
    lora = {"method": "lora", "fp32_adapters": True}
    shared, twice = colocated(lora, shared_weights=True), colocated(lora)
    saved = phases(twice)["rollout"].total - phases(shared)["rollout"].total
    assert saved == pytest.approx(twice.training.by_phase()["after_init"].weights, rel=0.05)


def test_the_least_share_is_the_least():
    step = colocated(sleep_level=2)
    report = step.report()
    for share, sequences in ((report.share_low, 1), (report.share_all, step.sequences)):
        assert step.allocation(share).concurrency(2) >= sequences
        less = step.allocation(round(share - 0.01, 2))
        assert not (less.starts(2) and less.concurrency(2) >= sequences)
    assert report.share_low <= report.share_all <= report.share_high


def test_the_largest_share_leaves_room_for_the_trainer():
    for level in (0, 2):
        share = colocated(sleep_level=level).report().share_high
        assert colocated(sleep_level=level, engine_share=share).word == "fits"
        assert colocated(sleep_level=level, engine_share=round(share + 0.01, 2)).word != "fits"


def test_the_largest_micro_batch_fits():
    step = colocated(sleep_level=2)
    most = step.report().max_micro_batch
    for size, fits in ((most, True), (most + 1, False)):
        training = step.training.changed(workload=step.training.work.model_copy(update={"micro_batch": size}))
        update = phases(Colocated(training, step.colocation, H100))["update"]
        assert (update.high <= H100.usable_bytes) is fits


def test_the_longest_completion_fits():
    step = colocated(sleep_level=2)
    longest = step.report().max_completion
    assert step.plan.longest_request(2**20) >= step.objective.prompt + longest
    objective = step.objective.model_copy(update={"completion": longest})
    work = step.training.work.model_copy(update={"sequence": objective.sequence})
    training = step.training.changed(workload=work, objective=objective)
    assert phases(Colocated(training, step.colocation, H100))["update"].high <= H100.usable_bytes


def test_a_report_has_one_verdict():
    objective = Objective(method="grpo", completion=2048)
    report = training_report(
        CONFIG,
        workload=TrainingWorkload(micro_batch=8, recompute="full"),
        recipe=RECIPES["bf16-autocast"],
        objective=objective,
        colocation=Colocation(sleep_level=1),
        gpus=[H100],
    )
    (verdict,), (rollout,) = report.verdicts, report.rollouts
    assert verdict.required == max(phase.total for phase in rollout.phases)
    assert verdict.max_micro_batch == rollout.max_micro_batch
    assert verdict.reason == rollout.reason
    assert "reference" in report.phases  # old log-probabilities, made again for what an engine generates


@pytest.mark.parametrize(
    ("options", "field"),
    [({"sleep_level": 1}, "sleep_level"), ({"shared_weights": True}, "shared_weights")],
)
def test_a_server_gives_nothing_back(options, field):
    with pytest.raises(ConfigError, match="GPUs of its own") as caught:
        made(Colocation, {"rollout": "server"} | options)
    assert caught.value.field == field


def test_an_engine_needs_something_to_generate():
    training = Training(Architecture.from_config(CONFIG), TrainingScenario(recipe=RECIPES["bf16"]))
    with pytest.raises(ConfigError, match="generated completions"):
        Colocated(training, Colocation(), H100)


def test_an_engine_spans_gpus_that_train():
    with pytest.raises(ConfigError, match="does not divide the 2 GPUs") as caught:
        colocated(layout={"dp": 2}, rollout_tp=4)
    assert caught.value.nearest == (1, 2)


def levers_of(work=None, layout=None, objective=None, **engine):
    """Changes of a step with an engine on an H100, by name."""
    step = colocated(work, objective, layout, **engine)
    return SmallerSteps(step.gpu, step.training, colocation=step.colocation)


def test_each_lever_saves_what_it_says():
    """What is said is what the step with its changes takes."""
    smaller = levers_of({"micro_batch": 8, "recompute": "none"}, {"dp": 2}, {"trl": "1.12"}, engine_share=0.6)
    names = {lever.name for lever in smaller.levers}
    assert {"without_logits", "sleep", "engine_share", "micro-batch", "checkpointing", "zero_3", "LoRA"} <= names
    for lever in smaller.levers:
        change = next(change for changes in CHANGES.values() for change in changes if change.name == lever.name)
        after = change.on(smaller, smaller.now)
        peak = Colocated(smaller.at(after), after.colocation, smaller.gpu).peak
        assert peak.total == smaller.fit(smaller.now).total - lever.saves
        assert lever.changes.items() <= fields_of(after).items() | {"recipe": "bf16", "weights": None}.items()


def test_the_least_that_fits_fits():
    work = {"micro_batch": 16, "recompute": "none", "sequence": 4608}
    smaller = levers_of(work, {"dp": 8, "zero": 3}, {"completion": 4096})
    least = smaller.least
    assert smaller.fit(smaller.now).verdict == "does not fit"
    assert smaller.fits(smaller.after(smaller.chosen))
    assert least.spare >= 0
    assert least.changes


def test_a_smaller_sequence_is_a_shorter_completion():
    work = {"micro_batch": 64, "sequence": 8704}
    smaller = levers_of(work, {"dp": 8, "zero": 3}, {"completion": 8192})
    lever = next(lever for lever in smaller.levers if lever.name == "sequence")
    assert set(lever.changes) == {"completion"}
    assert str(lever.what) == f"Completions of {lever.changes['completion']:,} tokens"
    assert lever.verdict == "fits"


def test_a_share_too_small_says_which_does():
    step = colocated(engine_share=0.05)
    assert step.word == "does not fit"
    enough = step.report().share_low
    assert f"{enough:.2f} is enough" in str(step.reason)
    assert colocated(engine_share=enough).starts


def test_a_verdict_says_with_which_flags_it_fits():
    step = colocated(engine_share=0.95)
    assert step.word != "fits"
    (note,) = step.notes()
    assert str(note) == f"With --engine-share {step.least_share(1)} it fits."
    assert [str(note) for note in colocated(engine_share=0.85).notes()] == ["With --sleep-level 2 it fits."]
    assert not list(colocated().notes())
