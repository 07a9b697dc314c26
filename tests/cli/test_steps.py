"""python -m calc MODEL --train --with FLAGS: training steps side by side."""

import json

import pytest

from tests.cli.test_training import run

GRPO = "Qwen/Qwen2.5-7B --train --method grpo --dp 8 --zero 3 --rollout colocated --gpu h100-sxm".split()
DPO = "--method dpo --dp 8 --zero 3"


def test_each_step_is_what_its_own_report_says(capsys):
    """Memory by phase, the largest micro-batch, and the time that --time says of it."""
    status, out, err = run(capsys, *GRPO, "--with", DPO, "--json")
    assert (status, err) == (0, "")
    comparison = json.loads(out)
    assert comparison["gpu"] == "h100-sxm"
    for step, words in zip(comparison["steps"], (GRPO, [*GRPO[:2], *DPO.split(), *GRPO[-2:]]), strict=True):
        alone = json.loads(run(capsys, *words, "--time", "--json")[1])
        assert step["verdict"] == alone["verdicts"][0]
        assert step["phases"] == {name: phase["memory"]["total"] for name, phase in alone["phases"].items()}
        assert step["rollout"] == {
            phase["name"]: phase["total"] for rollout in alone.get("rollouts", ()) for phase in rollout["phases"]
        }
        assert step["step_s"] == alone["time"]["step_s"]
        prompt = alone["scenario"]["objective"]["prompt"]
        assert step["max_completion"] == alone["verdicts"][0]["max_sequence"] - prompt


def test_a_table_has_a_column_for_each(capsys):
    status, out, _ = run(capsys, *GRPO, "--with", DPO, "--with", "--method lora --zero 2 --dp 8")
    assert status == 0
    assert out.splitlines()[0].split() == ["h100-sxm", "grpo", "dpo", "lora"]
    (line,) = [line for line in out.splitlines() if "rollout" in line and "engine" in line]
    assert line.split()[-2:] == ["-", "-"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Qwen/Qwen2.5-7B", "--with", DPO], "--with takes effect only with --train."),
        ([*GRPO, "--with", f"{DPO} --gpu l4"], "--gpu, --json, --time and --with can't stand inside --with"),
        ([*GRPO, "--with", "--method 'dpo"], "--with takes flags of a step in quotes"),
        ([*GRPO, "--with", "--method grpo --num-generations 1"], "A group of one"),
        ([*GRPO, "--with", "--frobnicate 1"], "nrecognized arguments"),
    ],
)
def test_what_makes_no_sense_is_said(capsys, words, sentence):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert sentence in err
