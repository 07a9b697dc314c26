"""The Train screen without a browser."""

from typing import get_args

import pytest
from streamlit.testing.v1 import AppTest

from calc.serving.engines.transformers.options import Logits
from calc.serving.engines.vllm.options import Speculative
from calc.training.moments import Phase
from calc.training.optimizer import Optimizer
from calc.training.recipe import RecipeName
from calc.training.training_workload import LoraTargets, Loss, Method, Recompute
from pages.parts.inputs import serving
from pages.parts.inputs import training as controls
from pages.parts.outputs import training_step
from tests.pages.test_weigh import metrics, run


def train(**query):
    app = AppTest.from_file("../../pages/router.py", default_timeout=30)
    app.switch_page("train.py")
    for name, value in query.items():
        app.query_params[name] = value
    return run(app)


def test_the_step_of_a_model():
    """16 bytes a weight: ZeRO section 3.1, arXiv:1910.02054; of them the gradients come with the backward pass."""
    app = train(model="Qwen/Qwen2.5-0.5B")
    shown = metrics(app)
    assert (shown["Parameters"], shown["Trained"]) == ("494.03 M", "494.03 M")
    assert shown["Weights"] == f"{494_032_768 * 6 / 2**30:.2f} GiB"
    assert shown["Gradients, optimizer"] == f"{494_032_768 * 10 / 2**30:.2f} GiB"


def test_controls_change_the_numbers_and_the_link():
    app = train(model="Qwen/Qwen2.5-0.5B")
    run(app.selectbox(key="method").select("lora"))
    assert metrics(app)["Trained"] != "494.03 M"
    run(app.number_input(key="lora_rank").set_value(8))
    # rank times the sum of in and out of q, k, v, o, gate, up, down: (896+896)+2*(896+128)+(896+896)+3*(896+4864)
    assert metrics(app)["Trained"] == f"{24 * 8 * (2 * 1792 + 2 * 1024 + 3 * 5760) / 10**6:.2f} M"
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-0.5B", "method": "lora", "lora_rank": "8"}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"accumulation": "4", "optimizer_in_backward": "true"}, "accumulation must be 1"),
        ({"tp": "3"}, "does not divide"),
        ({"ep": "2"}, "does not divide"),
        ({"pp": "100"}, "only 24 layers"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(query, sentence):
    app = train(model="Qwen/Qwen2.5-0.5B", **query)
    assert any(sentence in error.value for error in app.error)


def test_every_choice_has_its_words():
    assert set(training_step.PHASES) == set(get_args(Phase))
    for words, choices in (
        (controls.METHODS, Method),
        (controls.OPTIMIZERS, Optimizer),
        (controls.RECIPES, RecipeName),
        (controls.RECOMPUTE, Recompute),
        (controls.LOSS, Loss),
        (controls.TARGETS, LoraTargets),
        (serving.LOGITS, Logits),
        (serving.DRAFTS, Speculative),
    ):
        assert set(words) == set(get_args(choices))


@pytest.mark.parametrize(
    "query",
    [
        {
            "model": "deepseek-ai/DeepSeek-V3",
            "tp": "8",
            "pp": "4",
            "dp": "16",
            "ep": "16",
            "zero": "1",
            "accumulation": "32",
        },
        {"model": "Qwen/Qwen3-8B", "method": "qlora", "recompute": "full", "loss": "fused", "fused": "true"},
        {"model": "state-spaces/mamba-130m-hf", "optimizer": "muon", "recipe": "fp32"},
        {"micro_batch": "none", "zero": "7", "fused": "maybe", "loss": "big"},
    ],
)
def test_every_kind_of_step_draws(query):
    app = train(**query)
    assert metrics(app)["Memory, one GPU"].endswith("GiB")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"method": "lora", "recompute": "full"},
        {"dp": "8", "zero": "3", "recipe": "autocast"},
    ],
)
def test_each_phase_has_its_derivation(query):
    app = train(model="Qwen/Qwen2.5-0.5B", **query)
    peak = next(name for name in app.segmented_control(key="phase").options if "(peak)" in name)
    shown = [table.value for table in app.markdown]
    run(app.segmented_control(key="phase").select("optimizer"))
    assert any("states of the optimizer" in table.value and table.value not in shown for table in app.markdown)
    assert peak
