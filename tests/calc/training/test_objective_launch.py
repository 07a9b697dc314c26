"""Commands that start a step of TRL's losses: every flag is one that the trainer's own parser has."""

import json
from pathlib import Path

import pytest

from calc import RECIPES, Objective, TrainingLayout, TrainingWorkload, training_report
from calc.training import METHODS, Colocation
from calc.training.launch import CONFIGS
from presets import models

FLAGS = json.loads(Path("tests/data/trainer_flags.json").read_text(encoding="utf-8"))
ACCELERATE = json.loads(Path("tests/data/engine_flags.json").read_text(encoding="utf-8"))["accelerate"]
NAME = "Qwen/Qwen2.5-7B"
QWEN = models()[NAME].config
WORKS = [
    pytest.param({"recompute": "full"}, id="full"),
    pytest.param({"method": "lora", "optimizer": "adamw-8bit"}, id="lora"),
    pytest.param({"method": "qlora", "recompute": "full", "fused": True}, id="qlora"),
]


def launches(method, work=None, engine=None, dp=1, **objective):
    """Commands by trainer."""
    report = training_report(
        QWEN,
        model=NAME,
        workload=TrainingWorkload(**(work or {})),
        recipe=RECIPES["bf16-autocast"],
        layout=TrainingLayout(dp=dp, zero=3 if dp > 1 else 0),
        gpus=[],
        objective=Objective(method=method, **objective),
        colocation=None if engine is None else Colocation(**engine),
    )
    return report.launches


def named(words):
    """Flags of a command line."""
    return {word for word in words if word.startswith("--")}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("method", METHODS)
def test_trl_has_every_flag(method, work):
    engines = [None, {"sleep_level": 2}, {"rollout": "server"}] if METHODS[method].generates else [None]
    for engine in engines:
        for dp in (1, 8):
            words = launches(method, work, engine, dp)["TRL"].words
            config = {"simpo": "cpo"}.get(method, method)
            known = set(FLAGS["trl"]) | set(FLAGS[f"trl {config}"]) | (set(ACCELERATE) if method in CONFIGS else set())
            assert named(words) <= known
            assert words[0] == ("accelerate" if method in CONFIGS else "trl")


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("method", ["grpo", "rloo", "ppo"])
def test_verl_and_openrlhf_have_every_flag(method, work):
    engine = {"sleep_level": 2, "offload_weights": True, "offload_optimizer": True}
    started = launches(method, work, engine, dp=8, reference="model")
    keys = {word.partition("=")[0] for word in started["verl"].words[3:]}
    assert keys <= set(FLAGS["verl"])
    words = started["OpenRLHF"].words
    assert named(words) <= set(FLAGS["openrlhf train_ppo_ray"])
    switches = set(FLAGS["openrlhf train_ppo_ray switches"])
    for word, following in zip(words, (*words[1:], "--"), strict=True):
        if word.startswith("--"):
            assert (word in switches) == following.startswith("--")


def test_openrlhf_has_every_flag_of_dpo():
    words = launches("dpo", {"method": "lora", "recompute": "full"})["OpenRLHF"].words
    assert named(words) - {"--module"} <= set(FLAGS["openrlhf train_dpo"])


def test_unsloth_has_every_argument():
    words = launches("grpo", {"method": "qlora"}, {"shared_weights": True})["Unsloth"].words
    code = compile(words[2], "script", "exec")
    assert code.co_names
    (arguments,) = [line for line in words[2].split("; ") if "from_pretrained(" in line]
    names = {part.partition("=")[0].strip() for part in arguments.partition("(")[2].rstrip(")").split(", ")}
    assert names <= set(FLAGS["unsloth from_pretrained"])


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("grpo", {"num_generations": 16, "completion": 2048}, "--num_generations 16"),
        ("grpo", {"generation_batch": 64}, "--generation_batch_size 64"),
        ("grpo", {"beta": 0.04}, "--beta 0.04"),
        ("dpo", {"reference": "precomputed"}, "--precompute_ref_log_probs true"),
        ("simpo", {}, "--loss_type simpo --cpo_alpha 0.0"),
        ("dpo", {"prompt": 1000, "completion": 500}, "--max_length 1500"),
    ],
)
def test_what_trl_is_told(method, options, said):
    assert said in " ".join(launches(method, **options)["TRL"].words)


def test_a_group_is_no_batch_of_verls():
    """verl counts prompts, TRL completions: 8 GPUs of 4 completions are 4 prompts of 8."""
    words = launches("grpo", {"micro_batch": 4}, {}, dp=8, num_generations=8)["verl"].words
    assert {"data.train_batch_size=4", "actor_rollout_ref.rollout.n=8"} <= set(words)


def test_a_plain_loss_has_none():
    assert training_report(QWEN, gpus=[]).launches == {}
