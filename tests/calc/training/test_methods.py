"""Steps of TRL's losses, next to torch's own account of them (rl_steps.json: TRL 1.16, 1.12 and 0.24)."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from benchmarks.accuracy.rl import compare, compare_kind, kinds, load, step_of
from benchmarks.accuracy.rl_records import readings, reserved
from benchmarks.accuracy.steps import high
from calc import (
    RECIPES,
    Architecture,
    ConfigError,
    Objective,
    TrainingLayout,
    TrainingWorkload,
    training_report,
)
from calc.training import METHODS, Training, TrainingScenario, phase_steps, scored_units
from presets import models
from tests.calc.training.test_steps import worth

ROWS, ARCHITECTURES = load()
QWEN = models()["Qwen/Qwen2.5-7B"].config
TEACHER = Architecture.from_config(models()["Qwen/Qwen2.5-14B"].config)


@cache
def steps():
    """Each row's step as it is computed and as torch ran it."""
    return list(compare(ROWS, ARCHITECTURES))


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({row["method"] for row in ROWS}))
def test_peaks_are_torchs(method):
    """The tolerances that were asked for: 0.1 % at the median, 1 % for 95 of 100, 3 % at worst."""
    errors = [abs(step.error) for step in steps() if step.row["method"] == method]
    assert median(errors) <= 0.001
    assert high(errors) <= 0.01
    assert max(errors) <= 0.03


@pytest.mark.parametrize("row", kinds(), ids=lambda row: f"{row['model']}-{row['method']}")
def test_peaks_of_other_kinds_are_torchs(row):
    """Models, variants of losses, ranks, lengths and teachers that the rows above do not have (loss_kinds.json): within
    0.03 % at the peak, at the optimizer and between steps."""
    step = compare_kind(row)
    assert abs(step.error) <= 0.0003
    assert abs(step.errors["after_init"]) <= 0.0003
    assert abs(step.errors["optimizer"]) <= 0.0003


@pytest.mark.parametrize("phase", ["after_init", "optimizer", "after_step"])
def test_what_stands_between_passes_is_torchs(phase):
    """Weights, states and reference; then gradients: within 0.05 % of torch's, whose storages end on 512 bytes."""
    assert max(abs(step.errors[phase]) for step in steps()) <= 0.0005


def test_trained_weights_are_torchs():
    """Adapters too, and of reward models the score, which PEFT trains whole."""
    assert [step_of(row, ARCHITECTURES[row["model"]]).trained_parameters() for row in ROWS] == [
        row["trained"] for row in ROWS
    ]


def test_scored_tokens_are_trls():
    for row in ROWS:
        step = step_of(row, ARCHITECTURES[row["model"]])
        rows = row["micro_batch"] * METHODS[row["method"]].sequences
        units = scored_units(step.objective, rows, step.work.sequence)
        if row["logits"] == "fused":
            assert units[1] == row["scored_tokens"]


def test_a_reference_adds_its_weights():
    """rl_steps.md, claim 1: the peak with a reference model less that without is the reference's weights."""
    peaks = defaultdict(dict)
    for step in steps():
        row = step.row
        if row["method"] in ("dpo", "grpo") and row["ranks"] == 1 and row["accumulation"] == 1:
            key = tuple((name, row[name]) for name in row if name not in ("reference", "phases"))
            peaks[key][row["reference"]] = max(step.predicted.values())
    pairs = [
        (pair["model"] - (pair.get("precomputed") or pair["none"]), dict(key)["trained"], dict(key)["recipe"])
        for key, pair in peaks.items()
        if "model" in pair and len(pair) > 1
    ]
    assert len(pairs) >= 10
    for added, parameters, recipe in pairs:
        assert added == parameters * (4 if recipe == "autocast" else 2)


EXPLAINED = {
    "dpo": ({"method": "dpo"}, {}),
    "dpo, whole logits": ({"method": "dpo", "trl": "1.12"}, {"recompute": "full"}),
    "dpo, hidden states": ({"method": "dpo", "trl": "0.24"}, {}),
    "grpo": ({"method": "grpo", "trl": "1.12", "iterations": 2}, {"method": "lora"}),
    "orpo": ({"method": "orpo"}, {}),
    "reward": ({"method": "reward"}, {}),
    "ppo": ({"method": "ppo"}, {"recompute": "full"}),
    "gkd": ({"method": "gkd"}, {"recompute": "full"}),
    "distillation": ({"method": "distillation"}, {}),
}


@pytest.mark.parametrize(
    ("name", "recipe"),
    [  # each with one of two recipes in turn, and with the other by night
        pytest.param(name, recipe, marks=[pytest.mark.sweep] * ((number + turn) % 2))
        for number, name in enumerate(EXPLAINED)
        for turn, recipe in enumerate(("bf16", "autocast"))
    ],
)
def test_each_part_is_its_formula(name, recipe):
    """The values that stand in a formula give the bytes, in every phase."""
    method, work = EXPLAINED[name]
    report = training_report(
        QWEN, workload=TrainingWorkload(**work), recipe=RECIPES[recipe], gpus=[], objective=Objective(**method)
    )
    assert "reference" in report.phases or method["method"] in ("orpo", "reward")
    for phase, peak in report.phases.items():
        steps, _ = phase_steps(Architecture.from_config(QWEN), report.scenario, phase)
        assert [(str(step.what), step.result) for step in steps] == [(str(t.name), t.bytes) for t in peak.tensors]
        assert [worth(step.values) for step in steps] == [step.result for step in steps]


@pytest.mark.parametrize(
    ("options", "work", "field", "sentence"),
    [
        pytest.param({"method": "dpo", "reference": "none"}, {}, "reference", "none is given", id="no reference"),
        pytest.param({"method": "kto", "beta": 0}, {}, "reference", "none is given", id="weight 0"),
        pytest.param({"method": "orpo", "reference": "model"}, {}, "reference", "has no reference", id="orpo"),
        pytest.param({"method": "dpo", "reference": "adapter-off"}, {}, "reference", "adapters", id="no adapters"),
        pytest.param({"method": "grpo", "reference": "precomputed"}, {}, "reference", "anew", id="precomputed"),
        pytest.param({"method": "grpo", "beta": 0, "reference": "model"}, {}, "reference", "beta 0", id="beta 0"),
        pytest.param(
            {"method": "grpo", "num_generations": 1}, {}, "num_generations", "group of one", id="group of one"
        ),
        pytest.param(
            {"method": "rloo", "num_generations": 4, "generation_batch": 6},
            {},
            "generation_batch",
            "no multiple of the 4",
            id="groups",
        ),
        pytest.param({"method": "orpo", "log_probs": "fused"}, {}, "log_probs", "does not compute", id="fused ORPO"),
        pytest.param({"method": "grpo", "trl": "0.24"}, {}, "trl", "0.24", id="release"),
        pytest.param({"method": "gkd", "reference": "none"}, {}, "reference", "teacher runs", id="no teacher"),
        pytest.param({"method": "gkd", "beta": 2}, {}, "beta", "between 0 and 1", id="weight above 1"),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(options, work, field, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        training_report(QWEN, workload=TrainingWorkload(**work), gpus=[], objective=Objective(**options))
    assert caught.value.field == field
    assert caught.value.nearest


def test_other_layouts_are_refused():
    with pytest.raises(ConfigError, match="data-parallel ranks only"):
        training_report(QWEN, layout=TrainingLayout(tp=2), gpus=[], objective=Objective(method="dpo"))


@pytest.mark.parametrize("method", METHODS)
def test_longer_completions_never_take_less(method):
    totals = [
        training_report(QWEN, gpus=[], objective=Objective(method=method, completion=tokens)).memory.total
        for tokens in (1, 100, 512, 4096, 5000)
    ]
    assert totals == sorted(totals)


def test_a_fused_head_takes_less_than_whole_logits():
    """Issue 28: the same GRPO step takes less in TRL 1.16 than in 1.12."""
    work = TrainingWorkload(micro_batch=8, recompute="full")
    fused, whole = (
        training_report(QWEN, workload=work, gpus=[], objective=Objective(method="grpo", trl=trl)).memory
        for trl in ("1.16", "1.12")
    )
    assert fused.total < whole.total


def test_public_records():
    """Issue 28: stated peaks within 10 % at the median; what fitted is not called too large beyond 5 %, what ran out of
    memory does not fit beyond 15 %."""
    rows = list(readings())
    errors = [abs(row.error) for row in rows if row.error is not None]
    assert median(errors) <= 0.10
    for row in rows:
        if row.record["kind"] == "fits":
            assert row.low <= 1.05 * row.record["gpu_GiB"]
        elif row.record["kind"] == "oom":
            assert row.high >= 0.85 * row.record["gpu_GiB"]


DIVERGENCES = json.loads(Path("tests/data/divergences.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", DIVERGENCES, ids=lambda row: f"{row['type']}, {row['beta']}, {row['scored']}")
def test_a_divergence_takes_what_torch_gives_it(row):
    """divergences.json: TRL 1.16's `generalized_jsd_loss` under torch's dispatch, by token and word."""
    tokens, sequences = row["tokens"], 64
    objective = Objective(
        method="gkd", prompt=tokens - row["scored"], completion=row["scored"], beta=row["beta"], teacher=TEACHER
    )
    work = TrainingWorkload(micro_batch=sequences, recompute="full")
    report = training_report(QWEN, workload=work, recipe=RECIPES[row["type"]], gpus=[], objective=objective)
    for phase, measured in (("loss", row["forward"]), ("backward", row["backward"])):
        peak = report.phases[phase].tensors
        of_divergence = sum(part.bytes for part in peak if part.component == "logits" or is_gradient(part))
        assert of_divergence / (152_064 * tokens * sequences) == pytest.approx(measured, rel=1e-3)


def is_gradient(part):
    """A gradient between loss and head, of sums too."""
    return str(part.name) == "gradients of activations"


def test_a_teacher_stands_next_to_the_policy():
    """Its weights, in the type of the policy's: Qwen2.5-14B's 14,770,033,664."""
    own, other = (
        training_report(QWEN, recipe=RECIPES["bf16"], gpus=[], objective=Objective(method="gkd", teacher=teacher))
        for teacher in (None, TEACHER)
    )
    before = [report.phases["after_init"].memory.weights for report in (own, other)]
    assert before[1] - before[0] == 2 * (14_770_033_664 - 7_615_616_512)
    assert other.phases["reference"].memory.total > own.phases["reference"].memory.total


def test_a_teacher_of_another_vocabulary_gets_a_sentence():
    llama = Architecture.from_config(models()["meta-llama/Llama-3.1-8B"].config)
    with pytest.raises(ConfigError, match="must be the same") as caught:
        training_report(QWEN, gpus=[], objective=Objective(method="gkd", teacher=llama))
    assert caught.value.field == "teacher"


def test_ppo_trains_a_value_model_next_to_the_policy():
    """TRL 1.12, trl/experimental/ppo: both have weights, gradients and states; reference and reward model stand by."""
    work = TrainingWorkload(micro_batch=2, recompute="full", optimizer_kernel="fused")
    options = {"workload": work, "recipe": RECIPES["bf16"], "gpus": []}
    ppo = training_report(QWEN, objective=Objective(method="ppo"), **options)
    rloo = training_report(QWEN, objective=Objective(method="rloo", trl="1.12"), **options)
    head = 152_064 * 3584  # Qwen2.5-7B's, which a model with one score has not
    value = 7_615_616_512 - head + 3584
    assert ppo.trained_parameters == 7_615_616_512 + value
    before = [report.phases["after_init"].memory for report in (ppo, rloo)]
    assert before[0].optimizer - before[1].optimizer == 2 * 2 * value
    assert before[0].weights - before[1].weights == 2 * 2 * value  # and the reward model's
    assert any("No computed or measured step" in str(said) for said in ppo.assumptions)
    assert not any("No computed or measured step" in str(said) for said in rloo.assumptions)


def test_what_is_reserved_is_at_least_the_peak():
    """torch, notes/cuda: cached blocks stay; the cast of DeepSpeed's flattened gradients is one of four bytes for each
    trained weight of a rank, Qwen2.5-7B's 7,615,616,512 over two."""
    work = TrainingWorkload(micro_batch=4, recompute="full", sequence=1024)
    for recipe in ("bf16", "autocast", "deepspeed"):
        layout = TrainingLayout(dp=2, zero=2)
        scenario = TrainingScenario(
            workload=work, recipe=RECIPES[recipe], layout=layout, objective=Objective(method="cpo")
        )
        step = Training(Architecture.from_config(QWEN), scenario)
        phases = step.by_phase()
        if recipe != "deepspeed":
            assert reserved(step) == step.memory().total
        else:
            assert reserved(step) == phases["backward"].total + 4 * 7_615_616_512 // 2 > step.memory().total


def test_deepspeed_gathers_a_reference_of_its_own():
    """ZeRO-3 (runtime/zero/partitioned_param_coordinator.py): its head of 152,064 x 3,584 and 50,000,000 elements that
    come ahead, in 16 bits, while it runs."""
    layout, work = TrainingLayout(dp=8, zero=3), TrainingWorkload(recompute="full")
    options = {"workload": work, "layout": layout, "recipe": RECIPES["deepspeed"], "gpus": []}
    objective = Objective(method="dpo", trl="1.12")
    report = training_report(QWEN, objective=objective, **options)
    gathered = [part.bytes for part in report.phases["reference"].tensors if "gathered" in str(part.name)]
    assert max(gathered) >= 2 * (152_064 * 3584 + 50_000_000)
