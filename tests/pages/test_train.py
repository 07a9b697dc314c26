"""Train without a browser."""

from typing import get_args

import pytest

from calc import RECIPES
from calc.options import options
from calc.serving.engines import ENGINES
from calc.training.moments import Phase
from calc.training.training_report import PEAKS
from calc.training.training_workload import TrainingWorkload
from pages.parts import words
from pages.parts.state.scenario import places
from tests.pages.app import metrics, opened, page, run, texts


def train(**query):
    return page("train", **query)


def test_the_step_of_a_model():
    """16 bytes a weight: ZeRO section 3.1, arXiv:1910.02054; of them the gradients come with the backward pass."""
    app = train(model="Qwen/Qwen2.5-0.5B")
    shown = metrics(app)
    assert (shown["Parameters"], shown["Trainable parameters"]) == ("494.03 M", "494.03 M")
    assert shown["Weights"] == shown["Gradients"] == f"{494_032_768 * 2 / 2**20:.2f} MiB"
    assert shown["Master weights"] == f"{494_032_768 * 4 / 2**30:.2f} GiB"
    assert shown["Optimizer states"] == f"{494_032_768 * 8 / 2**30:.2f} GiB"


def test_controls_change_the_numbers_and_the_link():
    app = train(model="Qwen/Qwen2.5-0.5B")
    run(app.segmented_control(key="method").set_value("lora"))
    assert metrics(app)["Trainable parameters"] != "494.03 M"
    run(app.number_input(key="lora_rank").set_value(8))
    # rank times the sum of in and out of q, k, v, o, gate, up, down: (896+896)+2*(896+128)+(896+896)+3*(896+4864)
    assert metrics(app)["Trainable parameters"] == f"{24 * 8 * (2 * 1792 + 2 * 1024 + 3 * 5760) / 10**6:.2f} M"
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-0.5B", "method": "lora", "lora_rank": "8"}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"accumulation": "4", "optimizer_in_backward": "true"}, "accumulation must be 1"),
        ({"tp": "3"}, "does not divide"),
        ({"ep": "2"}, "does not divide"),
        ({"pp": "100"}, "only 24 layers"),
        ({"fp32_rest": "true"}, "fp32_rest is about"),
    ],
)
def test_what_does_not_go_together_is_a_sentence_beside_its_control(query, sentence):
    app = train(model="Qwen/Qwen2.5-0.5B", **query)
    assert any(sentence in error.value for error in app.sidebar.error)
    run(next(button for button in app.sidebar.button if button.key.startswith("near_")).click())
    assert not app.error


def test_every_option_has_a_control():
    app = opened(train(model="Qwen/Qwen2.5-0.5B", method="qlora"), "spread_drawer", "details_drawer")
    controls = (*app.number_input, *app.toggle, *app.selectbox, *app.segmented_control, *app.select_slider)
    known = places(("training",)).keys() - {"weights"} | {"frozen"}
    assert known <= {control.key for control in controls}


def test_every_choice_has_its_words():
    assert set(PEAKS) == set(words.PHASES) == set(get_args(Phase))
    for model in (TrainingWorkload, *(engine.options_type for engine in ENGINES.values())):
        for name, option in options(model).items():
            if name in words.CHOICES:
                assert set(words.CHOICES[name]) == set(option.choices), name
    assert set(words.CHOICES["recipe"]) == set(RECIPES)


def test_each_figure_opens_its_derivation():
    figures = ("trained", "weights", "master_weights", "gradients", "optimizer", "activations", "logits", "memory")
    app = opened(train(model="Qwen/Qwen2.5-0.5B"), *(f"derive_{name}" for name in figures))
    said = texts(app.markdown)
    for line in (
        "Every weight is trained: **494,032,768**.",
        "988,065,536",
        "3,952,262,144",
        "Sum with the overhead: **",
    ):
        assert any(line in text for text in said), line


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
    assert metrics(app)["Memory per GPU"].endswith("GiB")
