"""Plans of a training run: what they promise holds by the memory report, and by the speed that they are ordered by."""

import pytest

from calc import RECIPES, Architecture, ConfigError
from calc.hardware.gpus import gpus
from calc.time.cluster import Cluster
from calc.time.training import training_speed
from calc.time.training_plan import PIECES, TrainingNeeds, training_plan_report
from calc.training import TrainingScenario, TrainingWorkload, training_report
from cli import main
from presets import models

LLAMA = models()["meta-llama/Llama-3.1-8B"].config
NEEDS = TrainingNeeds(tokens=1e11, gpus=16, global_batch=64)
KINDS = [gpus()[name] for name in ("h100-sxm", "a100-sxm-80gb", "rtx-4090")]


@pytest.fixture(scope="module")
def report():
    return training_plan_report(LLAMA, NEEDS, gpus=KINDS)


def test_a_plan_fits_and_the_next_larger_micro_batch_does_not(report):
    for plan in (*report.plans, *report.savings):
        assert plan.layout.gpus == NEEDS.gpus
        assert plan.layout.dp * plan.micro_batch * plan.accumulation == NEEDS.global_batch

        def verdict(micro_batch, plan=plan):
            accumulation = NEEDS.global_batch // plan.layout.dp // micro_batch
            work = TrainingWorkload(micro_batch=micro_batch, accumulation=accumulation, recompute=plan.recompute)
            found = training_report(LLAMA, workload=work, layout=plan.layout, gpus=[gpus()[plan.gpu]])
            return found.verdicts[0].verdict

        assert verdict(plan.micro_batch) == "fits"
        assert plan.accumulation == 1 or verdict(2 * plan.micro_batch) != "fits"


def test_the_fastest_of_each_gpu_stand_in_order(report):
    days = [plan.campaign.days.expected for plan in report.plans]
    assert days == sorted(days)
    assert {plan.gpu for plan in report.plans} == {gpu.id for gpu in KINDS}
    assert min(plan.campaign.days.expected for plan in report.savings) <= days[0]


def test_sharding_more_frees_memory_and_recomputing_costs_time(report):
    same = {(plan.layout.zero, plan.recompute): plan for plan in report.savings}
    for recompute in ("none", "full"):
        rooms = [same[zero, recompute] for zero in (1, 2, 3) if (zero, recompute) in same]
        assert [plan.micro_batch for plan in rooms] == sorted(plan.micro_batch for plan in rooms)
    rates = {key: plan.time.tokens_per_s_per_gpu.expected for key, plan in same.items()}
    assert rates[1, "none"] > rates[1, "full"]


def test_energy_and_cost_follow_the_days(report):
    plan = report.plans[0]
    hours = 24 * plan.campaign.days.expected * NEEDS.gpus
    assert gpus()[plan.gpu].tdp_w == 700
    assert plan.campaign.energy_mwh.expected == pytest.approx(hours * 700 / 1e6)
    priced = training_plan_report(LLAMA, NEEDS, gpus=KINDS[:1], cluster=Cluster(prices={"h100-sxm": 2.0})).plans[0]
    assert priced.campaign.cost.expected == pytest.approx(2 * hours)


def test_a_micro_batch_that_is_set_is_kept():
    needs = NEEDS.model_copy(update={"micro_batch": 2})
    found = training_plan_report(LLAMA, needs, gpus=KINDS[:1])
    assert {plan.micro_batch for plan in found.plans} == {2}


def test_stages_are_interleaved_where_that_is_faster_and_fits():
    """Of the same layout none is faster, with as many pieces as are tried or with fewer."""
    config, card = models()["meta-llama/Llama-3.1-70B"].config, gpus()["h100-sxm"]
    needs = TrainingNeeds(gpus=64, global_batch=256)
    (plan,) = training_plan_report(config, needs, gpus=[card]).plans
    assert plan.layout.vp == PIECES[0]
    work = TrainingWorkload(micro_batch=plan.micro_batch, accumulation=plan.accumulation, recompute=plan.recompute)
    seconds = []
    for vp in (*PIECES, 1):
        layout = plan.layout.model_copy(update={"vp": vp})
        found = training_report(config, workload=work, layout=layout, gpus=[card])
        assert found.verdicts[0].verdict == "fits"
        speed = training_speed(Architecture.from_config(config), TrainingScenario(workload=work, layout=layout), card)
        seconds.append(speed.seconds("expected"))
    assert plan.time.step_s.expected == pytest.approx(seconds[0])
    assert seconds == sorted(seconds)
    assert plan.accumulation % plan.layout.pp == 0


def test_deepspeed_has_one_piece_on_each_stage():
    config, card = models()["meta-llama/Llama-3.1-70B"].config, gpus()["h100-sxm"]
    needs = TrainingNeeds(gpus=64, global_batch=256)
    report = training_plan_report(config, needs, gpus=[card], recipe=RECIPES["deepspeed"])
    assert {plan.layout.vp for plan in (*report.plans, *report.savings)} == {1}


def test_gpus_that_no_layout_divides_are_an_error():
    with pytest.raises(ConfigError, match="No layout divides 7 GPUs"):
        training_plan_report(LLAMA, NEEDS.model_copy(update={"gpus": 7}), gpus=KINDS)


@pytest.mark.parametrize("name", ["google/recurrentgemma-2b", "BAAI/bge-m3"])
def test_a_model_whose_step_is_not_computed_has_no_plan(name):
    """The sentence of its step: an assertion failed for layers that no pass computes."""
    config = models()[name].config
    with pytest.raises(ConfigError) as step:
        training_report(config, workload=TrainingWorkload())
    with pytest.raises(ConfigError) as plan:
        training_plan_report(config, NEEDS, gpus=KINDS)
    assert str(plan.value) == str(step.value)


def test_the_command_line_plans_a_training_run(capsys):
    assert main(["plan", "Qwen/Qwen3-8B", "--train", "--gpus", "8", "--tokens", "1e10", "--gpu", "h200-sxm"]) == 0
    out = capsys.readouterr().out
    assert "h200-sxm" in out
    assert "ZeRO" in out
    assert main(["plan", "Qwen/Qwen3-8B", "--train", "--users", "3"]) == 2
    assert "--users has no effect with --train." in capsys.readouterr().err
    assert main(["plan", "Qwen/Qwen3-8B", "--gpus", "3"]) == 2
    assert "--gpus takes effect only with --train." in capsys.readouterr().err
