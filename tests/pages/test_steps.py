"""Training steps side by side, without a browser: each figure is that of the step's own page."""

import re

import pytest

from tests.pages.app import ask, finding, page, run, script, texts
from tests.pages.test_attention import row

GRPO = {"model": "Qwen/Qwen2.5-7B", "method": "grpo", "gpu": "h100-sxm", "dp": "8", "zero": "3", "rollout": "colocated"}
DPO = "model=Qwen/Qwen2.5-7B&method=dpo&dp=8&zero=3"


def figures(app):
    """The figures below the title of Train: time and headroom."""
    return " ".join(texts(app.markdown) + [one.proto.body for one in app.get("html")])


def test_a_step_is_kept_next_to_what_it_becomes():
    """GRPO is kept on Train, then the loss is another; the link has both, and so has the page that lays them side by
    side."""
    app = page("train", **GRPO)
    run(app.button(key="keep_step").click())
    kept = "model=Qwen/Qwen2.5-7B&method=grpo&dp=8&zero=3&rollout=colocated"
    assert app.query_params["steps"] == kept
    assert "with" not in app.query_params
    assert "Compare step A with B" in [link.proto.label for link in app.get("page_link")]
    ask(app, loss_method="dpo")
    app.query_params.clear()  # as the navigation does
    app = run(app.switch_page(script("steps")))
    assert app.query_params["steps"] == kept
    assert row(app, "Training objective") == ["Training objective", "DPO", "GRPO"]
    assert row(app, "Generation")[1] == "–"
    run(app.button(key="remove_B").click())
    assert "steps" not in app.query_params


@pytest.mark.parametrize("method", ["dpo", "grpo", "orpo", "reward", "sft"])
def test_each_figure_is_that_of_its_own_page(method):
    """Memory and time of a step beside another are what Train says of it alone."""
    settings = {"model": "Qwen/Qwen2.5-7B", "method": method, "dp": "8", "zero": "3", "gpu": "h100-sxm"}
    beside = "&".join(f"{name}={text}" for name, text in settings.items() if name != "gpu")
    both = page("steps", **GRPO, steps=beside)
    alone = page("steps", **settings)
    for name in ("Memory per GPU", "Peak", "Backward", "Optimizer", "Max micro-batch size", "Time per step"):
        _, _, second = row(both, name)
        assert re.sub(r" :gray-badge\[.*\]", "", second) == row(alone, name)[1]
    train = page("train", **settings)
    assert row(alone, "Time per step")[1] in figures(train)


def test_the_same_loss_with_other_settings():
    app = page("steps", **GRPO, steps="model=Qwen/Qwen2.5-7B&method=grpo&dp=8&zero=3&rollout=colocated&sleep_level=2")
    awake, asleep = row(app, "Update")[1:]
    assert float(awake.split()[0]) > float(asleep.split()[0])


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("model=Qwen/Qwen2.5-7B&method=grpo&num_generations=1", "A group of one"),
        ("model=Qwen/Qwen2.5-7B&frobnicate=1", "which is left out"),
        ("model=Qwen/Qwen2.5-7B&micro_batch=x", "which is left out"),
        ("model=Qwen/Qwen2.5-7B&gpu=h200-sxm", "on the same GPUs"),  # an IndexError once
    ],
)
def test_one_that_does_not_go_leaves_the_others(step, why):
    app = page("steps", **GRPO, steps=f"{step};{DPO}")
    assert why in app.error[0].value
    assert row(app, "Training objective")[1:] == ["GRPO", "DPO"]


def test_the_title_names_each_loss():
    """The one of transformers too, which has no name in TRL."""
    title = finding(page("steps", model="Qwen/Qwen3-0.6B", gpu="h100-sxm", steps="model=Qwen/Qwen3-0.6B&method=dpo"))
    assert "A · next token" in title
    assert "B · DPO" in title


def test_too_many_are_said():
    app = page("steps", **GRPO, steps=";".join([DPO] * 6))
    assert "which is left out" in app.warning[0].value


def test_no_gpu_no_comparison():
    app = page("steps", **(GRPO | {"gpu": "none"}), steps=DPO)
    assert "No GPU is chosen" in app.info[0].value
