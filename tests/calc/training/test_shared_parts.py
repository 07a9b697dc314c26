"""Steps of one model have parts in common, each made once: what is shared is what each step would make by itself."""

import pytest

from calc import Architecture, ConfigError, Objective, TrainingWorkload
from calc.hardware import find_gpu
from calc.training import RECIPES, Shared, SmallerSteps, Training, TrainingLayout, TrainingScenario, usual_base
from calc.training.decoder import Passes
from calc.training.modules import Settings
from presets import models
from tests.cases import in_one_test

GEMMA = models()["google/gemma-4-31B-it"].config
SINGLE = {"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262_144, "num_kv_shared_layers": 6}
NEMOTRON = models()["nvidia/Nemotron-H-8B-Base-8K"].config
CONFIGS = {
    "Qwen3": models()["Qwen/Qwen3-8B"].config,
    "experts": models()["openai/gpt-oss-20b"].config,
    "latents": models()["deepseek-ai/DeepSeek-V3"].config,
    "inputs of single layers": GEMMA | {"text_config": GEMMA["text_config"] | SINGLE | {"num_hidden_layers": 18}},
    "recurrent": NEMOTRON | {"num_hidden_layers": 13, "hybrid_override_pattern": "M-M-M-M*-M-M-"},
    "positions": models()["openai-community/gpt2"].config,
}


def step(objective=None, recipe="autocast", layout=(), **fields):
    work = TrainingWorkload(**fields)
    parts = {"recipe": RECIPES[recipe], "frozen": usual_base(work.method), "objective": objective}
    return TrainingScenario(workload=work, layout=TrainingLayout(**dict(layout)), **parts)


EIGHT, CUT = {"dp": 8, "zero": 3}, {"tp": 2, "pp": 2}
STEPS = {
    "plain": step(),
    "fused": step(loss="fused", fused=True, micro_batch=2),
    "chunked": step(loss="chunked", loss_chunks=4, keep_outputs=True),
    "eager": step(attention="eager", micro_batch=2, recipe="bf16"),
    "selective": step(attention="eager", recompute="selective", recipe="bf16"),
    "full": step(recompute="full", repeated_keys=True),
    "reentrant": step(recompute="full", reentrant=True),
    "alternate": step(recompute="alternate", recipe="megatron", layout=CUT),
    "sharded": step(layout=EIGHT),
    "DeepSpeed": step(layout=EIGHT, recipe="deepspeed", accumulation=2),
    "tensor parallel": step(layout={"tp": 2}),
    "in backward": step(recipe="bf16", optimizer="adamw-8bit", optimizer_in_backward=True),
    "LoRA": step(method="lora"),
    "LoRA, full": step(method="lora", recompute="full", lora_targets="dense"),
    "QLoRA": step(method="qlora", recompute="full", fp32_rest=True, recipe="bf16-autocast"),
    "dpo": step(Objective(method="dpo", trl="1.12"), recompute="full"),
    "reward": step(Objective(method="reward"), layout=EIGHT),
    "ppo": step(Objective(method="ppo"), recompute="full", recipe="bf16"),
    "grpo": step(Objective(method="grpo", beta=0.04), method="lora", recipe="bf16"),
}


def architecture(model):
    return Architecture.from_config(CONFIGS[model])


def memories(model):
    """Each step by itself, in its phases; with the parts of all before it; None where it can't be laid out."""
    shared, found = Shared(), {}
    for name, scenario in STEPS.items():
        try:
            own = shared if scenario.objective is None else None  # a loss may be of a model with another head
            training = Training(architecture(model), scenario, own)
            found[name] = training.memory(), training.by_phase()
        except ConfigError:
            found[name] = None
    assert sum(memory is not None for memory in found.values()) > 3
    return found


@pytest.mark.parametrize("model", CONFIGS)
def test_a_part_reads_no_setting_that_it_is_traced_without(model, monkeypatch):
    apart = memories(model)
    for name in ("of_layers", "of_head", "of_norm"):
        monkeypatch.setattr(Settings, name, property(lambda settings: settings))
    monkeypatch.setattr(Passes, "once", lambda passes, key, make: make())
    assert memories(model) == apart


@pytest.mark.parametrize("model", CONFIGS)
@in_one_test("name", STEPS)
def test_what_a_step_requires_are_the_totals_of_its_memory(model, name):
    try:
        training = Training(architecture(model), STEPS[name])
    except ConfigError:
        return
    memory, required = training.memory(), training.required
    assert (required.low, required.total, required.high) == (memory.low, memory.total, memory.high)


@pytest.mark.parametrize(
    ("model", "name"),
    [  # each model from one step in turn, and from the others by night
        pytest.param(model, name, marks=[pytest.mark.sweep] * ((number - turn) % 3 != 0))
        for number, model in enumerate(CONFIGS)
        for turn, name in enumerate(("plain", "sharded", "alternate"))
    ],
)
def test_a_lever_is_weighed_as_its_step_is_by_itself(model, name):
    training = Training(architecture(model), STEPS[name])
    smaller = SmallerSteps(find_gpu("rtx-4090"), training)
    for change in smaller.changes:
        after = change.on(smaller, smaller.now)
        assert smaller.fit(after).total == Training(training.base, after).memory().total
