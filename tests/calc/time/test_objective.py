"""Time of a step of TRL's losses: its parts are those of the models of serving and of training."""

from statistics import median

import pytest

from benchmarks.accuracy.rl_times import step_times
from calc import RECIPES, Architecture, Objective, TrainingLayout, TrainingWorkload, Workload
from calc.errors import ConfigError
from calc.hardware.gpus import gpus
from calc.time.objective import ObjectiveSpeed, remainder
from calc.time.report import time_report
from calc.time.training import training_speed
from calc.training import METHODS, Colocation, Training, TrainingScenario
from presets import models

QWEN = Architecture.from_config(models()["Qwen/Qwen2.5-7B"].config)
H100 = gpus()["h100-sxm"]


def speed(method="grpo", *, dp=8, engine=None, work=None, **objective):
    """A step of Qwen2.5-7B on H100s with ZeRO-3."""
    step = TrainingWorkload(**{"micro_batch": 4, "recompute": "full"} | (work or {}))
    layout = TrainingLayout(dp=dp, zero=3 if dp > 1 else 0)
    objective = Objective(method=method, **objective)
    step = step.model_copy(update={"sequence": objective.sequence})
    training = Training(
        QWEN,
        TrainingScenario(workload=step, recipe=RECIPES["autocast"], layout=layout, objective=objective),
    )
    return ObjectiveSpeed(training, H100, None if engine is None else Colocation(**engine))


def seconds(step):
    """Expected seconds by phase."""
    return {phase.name: phase.seconds.expected for phase in step.time(divided=False).phases}


def test_an_update_is_a_training_step_but_for_the_tiles_of_its_head():
    """SFT scores all tokens but one: what differs is the head's tiles, which are made again (one product of four)."""
    step = speed("sft")
    plain = training_speed(QWEN, step.training.scenario, H100)
    assert seconds(step).keys() == {"update"}
    share = 152_064 * 3584 / 7_615_616_512  # of the products
    assert 1 < seconds(step)["update"] / plain.seconds("expected") < 1 + share


def test_generation_is_serving():
    """One wave: a prompt for each group, then a decode step for every further token."""
    objective = {"prompt": 512, "completion": 1024, "num_generations": 4}
    step = speed(engine={"engine_share": 0.5}, work={"micro_batch": 8}, **objective)
    assert step.engine.plan.concurrency(1) >= step.engine.sequences == 8
    serving = step.engine.serving
    decoded = time_report(serving, H100, Workload(batch=8, context=1536, generated=1024)).decode
    prompts = time_report(serving, H100, Workload(batch=2, context=513, generated=1)).prefill
    expected = 1023 * decoded.step_ms.expected + prompts.ttft_ms.expected
    assert 1000 * seconds(step)["rollout"] == pytest.approx(expected, rel=0.01)


def test_what_waits_takes_the_place_of_what_ends():
    """With equal lengths as long as in turns; with a mean an engine is full until none waits, and one tail follows."""
    few, many = (speed(engine={"engine_share": 0.26}, work={"accumulation": n}, completion=4096) for n in (1, 64))
    at_once = int(many.engine.plan.concurrency(1))
    assert many.engine.sequences > at_once >= few.engine.sequences
    assert seconds(many)["rollout"] > many.engine.sequences // at_once * seconds(few)["rollout"]
    lengths = {"completion": 4096, "mean_completion": 512}
    short = speed(engine={"engine_share": 0.26}, work={"accumulation": 64}, **lengths).generation("expected")
    places = short.full_s * short.full_steps + short.last_s * short.last_steps
    assert 0 < short.full_steps < many.generation("expected").full_steps * 512 / 4096
    assert short.prompts_s + places == short.seconds


@pytest.mark.parametrize("method", METHODS)
def test_more_tokens_never_take_less_time(method):
    engine = {} if METHODS[method].generates else None
    totals = [speed(method, completion=tokens, engine=engine).step_s.expected for tokens in (64, 512, 2048)]
    assert totals == sorted(totals)


@pytest.mark.parametrize(("method", "passes"), [("dpo", 1), ("kto", 3), ("orpo", 0), ("reward", 0), ("gkd", 1)])
def test_passes_without_gradients_are_forward_passes(method, passes):
    """KTO's reference runs twice, and the policy once more for its KL term; 6 FLOPs a weight and token of an update,
    8 with everything computed again, 2 of a forward pass: about a quarter each. verl's log in
    github.com/verl-project/verl/issues/1208: 3.566 s and 3.420 s of 14.302 s, 0.249 and 0.239."""
    phases = seconds(speed(method))
    assert phases.get("reference", 0) / phases["update"] == pytest.approx(passes / 4, abs=0.03 * passes)


def test_a_generation_that_serves_several_steps_is_divided_over_them():
    engine = {"engine_share": 0.5}
    once, often = (seconds(speed(engine=engine, iterations=n)) for n in (1, 4))
    assert often["rollout"] == once["rollout"] / 4
    assert often["update"] == once["update"]
    smaller = speed(engine=engine, generation_batch=16)  # of half a step
    half = speed(engine=engine, work={"micro_batch": 2})
    assert seconds(smaller)["rollout"] == pytest.approx(2 * seconds(half)["rollout"])
    larger = speed(engine=engine, generation_batch=128)  # of four steps
    assert larger.engine.sequences == 4 * speed(engine=engine).engine.sequences
    assert seconds(larger)["rollout"] < once["rollout"]


def test_sleeping_moves_weights_over_the_bus():
    """15.2 GB of weights, there and back over PCIe 5.0, whose 64 GB/s nobody exceeds."""
    awake, asleep = (seconds(speed(engine={"sleep_level": level})) for level in (0, 1))
    assert asleep["weight_sync"] - awake["weight_sync"] > 2 * 15.2 / 64
    assert asleep["rollout"] == awake["rollout"]


def test_other_divisions_have_as_many_gpus_and_sequences():
    step = speed(engine={"engine_share": 0.4})
    divisions = step.time().divisions
    assert [(row.engine_gpus, row.training_gpus) for row in divisions] == [(0, 8), (1, 7), (2, 6), (4, 4)]
    assert divisions[0].step_s == step.step_s
    assert step.divided(4).sequences == step.sequences


def test_a_server_is_divided_too():
    step = speed(dp=6, engine={"rollout": "server", "rollout_dp": 2})
    assert step.gpus == 8
    assert [row.engine_gpus for row in step.time().divisions] == [0, 1, 2, 4]
    assert step.engine.sequences == 6 * 4 // 2


def test_without_an_engine_generation_is_said_not_to_be_timed():
    time = speed().time()
    assert time.generated_tokens_per_s is None
    assert any("not timed" in str(sentence) for sentence in time.assumptions)


def test_an_engine_runs_until_the_longest_completion_is_done():
    """With a mean below the longest: less than if all were so long, more than if none were longer."""
    engine, lengths = {"engine_share": 0.5}, {"prompt": 512, "completion": 2048}
    longest = seconds(speed(engine=engine, **lengths))
    mean = seconds(speed(engine=engine, **lengths, mean_completion=512))
    short = seconds(speed(engine=engine, prompt=512, completion=512))
    assert short["rollout"] < mean["rollout"] < longest["rollout"]
    assert mean["update"] == short["update"] < longest["update"]
    assert mean["weight_sync"] == longest["weight_sync"]
    assert seconds(speed(engine=engine, **lengths, mean_completion=2048)) == longest
    time = speed(engine=engine, **lengths, mean_completion=512).time()
    assert any("512 tokens on average" in str(sentence) for sentence in time.assumptions)


@pytest.mark.parametrize(
    ("method", "mean", "sentence"),
    [("grpo", 600, "are not 600 tokens long on average"), ("dpo", 100, "generates none")],
)
def test_a_mean_that_makes_no_sense_is_said(method, mean, sentence):
    with pytest.raises(ConfigError, match=sentence):
        speed(method, completion=512, mean_completion=mean)


def test_stated_steps():
    """NeMo RL's performance summary: every stated step lies in our range, within 10 % at the median. What generates for
    the next step while this one trains takes no longer than the step."""
    steps = list(step_times())
    assert all(one.is_inside for one in steps)
    assert median(abs(one.error) for one in steps) < 0.1
    for one in steps:
        assert not one.row["engine_gpus"] or one.phases["rollout"] < one.row["step_s"]


def test_the_remainder_is_what_other_stated_steps_take_beyond_their_phases():
    """Each step by the remainder of the other eight; and the median of all is the row of efficiencies.json."""
    beyond = [float(one.row["step_s"]) / one.within_phases_s - 1 for one in step_times()]
    left_out = [(1 + median(beyond[:i] + beyond[i + 1 :])) / (1 + each) - 1 for i, each in enumerate(beyond)]
    assert median(map(abs, left_out)) < 0.1
    assert remainder("expected") == pytest.approx(median(beyond), abs=0.01)


def test_only_a_step_with_an_engine_has_a_remainder():
    assert "remainder" not in seconds(speed())
    phases = seconds(speed(engine={"engine_share": 0.5}))
    assert phases.pop("remainder") == remainder("expected") * sum(phases.values())
