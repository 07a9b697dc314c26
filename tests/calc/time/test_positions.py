"""Learned positions end where the config says (`n_positions`): no plan, map, lever or roofline goes beyond them."""

import pytest

from calc import Architecture, ConfigError, Layout, Precision, Workload, report
from calc.formats import Native
from calc.hardware.gpus import gpus
from calc.hardware.overhead import Overhead
from calc.serving.engines import ENGINES
from calc.serving.levers import levers
from calc.serving.memory import Serving
from calc.time.fitting import fitting, in_formats
from calc.time.plan import Needs, Search
from calc.time.plan_report import plan_report
from calc.time.report import operating_points
from presets import models

POSITIONS = {"openai-community/gpt2": 1024, "bigcode/gpt_bigcode-santacoder": 2048, "bigcode/starcoder": 8192}
"""`n_positions` of their config.json."""
H100 = gpus()["h100-sxm"]


@pytest.fixture(params=POSITIONS.items(), ids=POSITIONS)
def model(request):
    name, most = request.param
    return Architecture.from_config(models()[name].config), most


def search(architecture, **needs):
    return Search(architecture, ENGINES["vllm"](), Needs(users=4, **needs), [H100], [Precision()])


def test_no_plan_is_made_for_longer_requests(model):
    architecture, most = model
    assert search(architecture, prompt=most - 100, output=100).plans()
    with pytest.raises(ConfigError, match=f"learned positions for {most:,} tokens and none beyond") as caught:
        search(architecture, prompt=most - 99, output=100)
    assert (caught.value.field, caught.value.nearest) == ("prompt", (most - 100,))


def test_an_answer_longer_than_all_positions_has_no_prompt_near(model):
    architecture, most = model
    with pytest.raises(ConfigError, match="learned positions") as caught:
        search(architecture, prompt=1, output=most)
    assert (caught.value.field, caught.value.nearest) == ("prompt", ())


def test_what_nobody_asked_for_is_as_long_as_positions_allow(model):
    architecture, most = model
    usual = Needs()
    assert search(architecture).needs.context == min(most, usual.context)
    assert search(architecture, prompt=most - 8).needs.output == min(8, usual.output)
    assert search(architecture, output=most - 8).needs.prompt == min(8, usual.prompt)


def test_a_plan_says_so_and_its_command_asks_for_no_more(model):
    name, most = next(row for row in POSITIONS.items() if row[1] == model[1])
    found = plan_report(models()[name].config, Needs(prompt=most - 100, output=100), gpus=[H100])
    assert f"{most}" in found.launch.words
    assert any(f"positions for {most:,} tokens" in str(sentence) for sentence in found.assumptions)
    twice = next(row for row in found.sensitivity if str(row.what).startswith(f"Prompts of {2 * (most - 100):,}"))
    assert (twice.gpu, twice.gpus) == (None, None)


def test_no_lever_and_no_roofline_goes_beyond(model):
    architecture, most = model
    serving = Serving.of(architecture, ENGINES["vllm"](), Precision(), Layout(), Overhead())
    assert levers(H100, serving, Workload(context=most), Native("bf16")) is not None
    for ask in (
        lambda: levers(H100, serving, Workload(context=most + 1), Native("bf16")),
        lambda: operating_points(architecture, ENGINES["vllm"](), Precision(), H100, Layout(), most + 1),
    ):
        with pytest.raises(ConfigError, match="learned positions") as caught:
            ask()
        assert (caught.value.field, caught.value.nearest) == ("context", (most,))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_a_map_ends_there(model, engine):
    architecture, most = model
    formats = in_formats(architecture, ENGINES[engine](), [Precision()])
    found = fitting([("h100-sxm", formats, H100)], 4 * most)
    if any(formats.values()):
        assert found.max_context.tolist() == [[most]]


def test_weigh_says_the_same():
    for name, most in POSITIONS.items():
        with pytest.raises(ConfigError, match=f"learned positions for {most:,} tokens and none beyond"):
            report(models()[name].config, workload=Workload(context=most + 1))


def test_output_that_leaves_no_prompt_is_a_sentence():
    """GPT-2 has learned positions for 1,024 tokens (`n_positions` of its config.json)."""
    config = models()["openai-community/gpt2-large"].config
    with pytest.raises(ConfigError, match="leaves no prompt"):
        report(config, workload=Workload(generated=1024))
