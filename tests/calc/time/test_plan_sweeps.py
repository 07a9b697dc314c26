"""Plan, the map and Weigh give one answer: presets on four usual GPUs under three loads."""

from functools import cache

import pytest

from calc import Architecture, ConfigError, Workload, report
from calc.formats import native
from calc.hardware.gpus import gpus
from calc.hardware.overhead import Overhead
from calc.serving.engines import ENGINES
from calc.serving.memory import MOST_TOKENS, Serving
from calc.serving.verdict import max_batch
from calc.time.fitting import MAPPED, fitting, in_formats
from calc.time.plan import Needs, Search
from calc.time.report import reply
from presets import models
from tests import SAMPLED
from tests.structures import generating, mark, swept

pytestmark = pytest.mark.slow
KINDS = ("h100-sxm", "a100-sxm-80gb", "rtx-4090", "l40s")
FORMATS = ("bf16", "fp8", "int4")
LOADS = {
    "4 users at 8k": Needs(users=4, prompt=7680, output=512),
    "1 user at 32k": Needs(users=1, prompt=32_000, output=768),
    "64 users at 4k": Needs(users=64, prompt=3584, output=512),
}


@cache
def architecture(name):
    return Architecture.from_config(models()[name].config)


def possible(name):
    """Loads whose requests a model has positions for."""
    most = architecture(name).learned_positions
    return [load for load, needs in LOADS.items() if most is None or needs.context <= most]


def planned(name, needs):
    """A search in the checkpoint's own format and the usual ones; None where vLLM takes the model in none."""
    own, engine = native(models()[name].config), ENGINES["vllm"]
    precisions = [engine.precision(own, form) for form in (None, *FORMATS)]
    try:
        return Search(architecture(name), engine(), needs, [gpus()[kind] for kind in KINDS], precisions)
    except ConfigError:
        return None


def laid_out(search, plan):
    precision = next(p for p in search.precisions if (p.weights, p.kv) == (plan.weights, plan.kv))
    return Serving.of(search.architecture, search.engine, precision, plan.layout, Overhead())


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        pytest.param(name, LOADS[load], id=f"{name}, {load}", marks=mark(name, number, len(loads)))
        for name in generating()
        for loads in [possible(name)]
        for number, load in enumerate(loads)
    ],
)
def test_every_plan_fits_as_weigh_says(name, needs):
    """The verdict, the headroom and the sequences of the best layout of each GPU and format."""
    search = planned(name, needs)
    for plan in search.plans() if search else ():
        serving, gpu = laid_out(search, plan), gpus()[plan.gpu]
        work = Workload(batch=plan.batch, context=needs.context, generated=needs.output)
        allocation = serving.on(gpu, work)
        assert allocation.surely_fits
        assert plan.headroom_gib == allocation.spare / 2**30
        assert plan.capacity == max_batch(allocation, plan.layout.dp)
        asked = {"engine": search.engine, "precision": serving.precision, "layout": plan.layout, "gpus": [gpu]}
        (verdict,) = report(models()[name].config, workload=work, **asked).verdicts
        assert (verdict.verdict, verdict.flags, verdict.max_batch) == ("fits", (), plan.capacity)


@pytest.mark.parametrize("name", swept(generating()))
def test_one_user_waits_for_no_other_prompt(name):
    """With one user a step of each plan is the decode step that Weigh shows."""
    needs = Needs(users=1, prompt=32_000, output=768)
    search = planned(name, needs)
    for plan in search.plans() if search else ():
        work = Workload(context=needs.context, generated=needs.output)
        told = reply(laid_out(search, plan), gpus()[plan.gpu], work)
        assert plan.tokens_per_s_per_user == pytest.approx(told.tokens_per_s_per_user.expected, rel=1e-12)
        assert plan.ttft_ms == pytest.approx(told.ttft_ms.expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        pytest.param(name, engine, marks=mark(name, number, len(MAPPED)))
        for name in generating()
        for number, engine in enumerate(MAPPED)
        if engine != "tensorrt-llm" or name in SAMPLED
    ],
)
def test_every_cell_of_the_map_says_what_weigh_says(name, engine):
    """The longest context and the tokens a second of the reports' own verdicts and times."""
    forms = FORMATS if ENGINES[engine].keeps("fp8") else ("bf16", "Q8_0", "Q4_K_M")
    kinds = [gpus()[kind] for kind in KINDS]
    model, started = architecture(name), ENGINES[engine]()
    formats = in_formats(model, started, [started.precision(native(models()[name].config), form) for form in forms])
    found = fitting(((gpu.id, formats, gpu) for gpu in kinds), 4096)
    for column, serving in enumerate(formats.values()):
        if serving is None:
            assert not found.max_context[:, column].any()
            continue
        asked = {"engine": started, "precision": serving.precision, "layout": serving.layout, "gpus": kinds}
        most = model.max_positions or MOST_TOKENS
        for row, verdict in enumerate(report(models()[name].config, workload=Workload(), **asked).verdicts):
            longest = most if verdict.max_context is None else verdict.max_context
            assert found.max_context[row, column] == longest
            if longest == 0:
                assert found.tokens_per_s[row, column] == 0
            else:
                work = Workload(context=max(2, min(4096, longest)))
                told = reply(serving, kinds[row], work).tokens_per_s_per_user.expected
                assert found.tokens_per_s[row, column] == told
