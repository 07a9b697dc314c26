"""Bars, cards, table and JSON of one report agree, for presets and GPUs: they are read off one allocation."""

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import ConfigError, Layout, Overhead, Precision, Workload, report
from calc.formats import WEIGHT_FORMATS
from calc.hardware.gpus import usual_gpus
from calc.hardware.overhead import HIGH, LOW, MIDDLE
from calc.hardware.parallel import shapes
from calc.serving.engines import ENGINES
from calc.serving.memory import Serving
from calc.serving.verdict import max_context, verdict_word
from presets import models
from tests import CHECKPOINT_ENGINES, SAMPLED
from tests.cases import in_one_test
from tests.structures import POOLED_BY, architectures, generating, mark, served_by, swept

pytestmark = pytest.mark.slow

KINDS = {"vllm": usual_gpus(), "sglang": usual_gpus()[::4], "transformers": usual_gpus()[::4]}
KINDS["tensorrt-llm"] = usual_gpus()[::8]
ARCHITECTURES = architectures()
CASES = [pytest.param(name, engine, marks=mark(name)) for name, engine in served_by(CHECKPOINT_ENGINES)]
CASES += [pytest.param(name, "tensorrt-llm") for name in SAMPLED]
SETS_ASIDE = [case for case in CASES if case.values[1] != "transformers" and not ARCHITECTURES[case.values[0]].encodes]


@st.composite
def asked(draw):
    """A GPU, a preset, an engine, and a workload whose context the model has positions for."""
    model = draw(st.sampled_from(list(models())))
    most = ARCHITECTURES[model].learned_positions
    contexts = [n for n in (1, 500, 8192, 100_000) if most is None or n <= most]
    workload = Workload(batch=draw(st.sampled_from([1, 2, 16, 200])), context=draw(st.sampled_from(contexts)))
    engines = CHECKPOINT_ENGINES if model in generating() else POOLED_BY
    engines = (*engines, *(["tensorrt-llm"] if model in SAMPLED else []))
    return draw(st.sampled_from(KINDS["vllm"])), model, draw(st.sampled_from(engines)), workload


@cache
def weighed(model, engine="vllm"):
    return report(models()[model].config, engine=ENGINES[engine](), gpus=KINDS[engine])


def serving(model, engine="vllm", layout=None, flags=()):
    kind = ENGINES[engine]
    options = dict(flag.removeprefix("--").split(" ") if " " in flag else (flag[2:], True) for flag in flags)
    one = kind(kind.options_type(**{name.replace("-", "_"): value for name, value in options.items()}))
    precision = Precision.of(models()[model].config)
    return Serving.of(ARCHITECTURES[model], one, precision, layout or Layout(), Overhead())


@pytest.mark.parametrize(("model", "engine"), SETS_ASIDE)
def test_cards_bars_and_table_agree(model, engine):
    """With an engine that sets its cache aside: what the card says fits, the table has room for, and nothing else."""
    found, one = weighed(model, engine), serving(model, engine)
    assert found.memory == found.verdicts[0].memory
    for gpu, verdict, budget in zip(KINDS[engine], found.verdicts, found.kv_budget, strict=True):
        allocation = one.on(gpu, Workload())
        memory, limits = verdict.memory, verdict.limits
        assert (budget.gpu, verdict.gpu) == (gpu.id, gpu.id)
        assert (budget.max_num_batched_tokens, budget.max_num_seqs) == (limits.step_tokens, limits.sequences)
        assert budget.gpu_memory_utilization == limits.share
        assert memory.total == verdict.required == verdict.usable - verdict.spare
        assert verdict.usable <= gpu.usable_bytes
        assert verdict.spare == budget.bytes - memory.kv_cache or any(
            b.shortage for b in allocation.room(MIDDLE).budgets
        )
        assert memory.activations == budget.profile
        starts = budget.max_model_len >= 8192 or budget.max_model_len == (ARCHITECTURES[model].max_positions or 8192)
        if verdict.verdict == "fits":
            assert starts
            assert budget.concurrency >= 1
            assert verdict.spare >= 0
            assert (verdict.min_gpus, verdict.flags) == (1, ())
        else:
            assert budget.concurrency < 1 or not allocation.starts(HIGH)
            assert verdict.min_gpus != 1
        if verdict.verdict == "tight":
            assert allocation.fits(LOW)
        assert verdict.max_batch == (int(budget.concurrency) if allocation.starts(HIGH) else 0)


@pytest.mark.parametrize("model", swept())
def test_cards_and_bars_agree_where_nothing_is_set_aside(model):
    found = weighed(model, "transformers")
    assert found.kv_budget == ()
    assert {verdict.memory for verdict in found.verdicts} == {found.memory}
    for gpu, verdict in zip(KINDS["transformers"], found.verdicts, strict=True):
        memory = verdict.memory
        assert (memory.total, gpu.usable_bytes) == (verdict.required, verdict.usable)
        assert verdict.spare == verdict.usable - verdict.required
        assert (verdict.verdict == "fits") == (memory.high <= gpu.usable_bytes) == (verdict.min_gpus == 1)
        assert (verdict.verdict == "does not fit") == (memory.low > gpu.usable_bytes)
        assert (verdict.verdict == "fits") == (verdict.max_batch is None or verdict.max_batch >= 1)


@in_one_test(("model", "engine"), CASES)
def test_the_longest_context_fits_and_one_more_token_does_not(model, engine):
    one = serving(model, engine)
    for gpu, verdict in zip(KINDS[engine], weighed(model, engine).verdicts, strict=True):
        longest, most = verdict.max_context_memory, ARCHITECTURES[model].max_positions
        assert verdict.max_context == min((n for n in (longest, most) if n is not None), default=None)
        if longest is None:
            assert verdict_word(one.on(gpu, Workload(context=2**30))) == "fits"
            continue
        assert longest == 0 or verdict_word(one.on(gpu, Workload(context=longest))) == "fits"
        assert verdict_word(one.on(gpu, Workload(context=longest + 1))) != "fits"


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3"])
@pytest.mark.parametrize("engine", [*CHECKPOINT_ENGINES, "tensorrt-llm"])
def test_json_has_the_same_figures(model, engine):
    found = weighed(model, engine)
    written = json.loads(found.model_dump_json())
    assert written["memory"] == written["verdicts"][0]["memory"] == found.memory.model_dump()
    for verdict, row in zip(found.verdicts, written["verdicts"], strict=True):
        assert row["reason"] == str(verdict.reason)
        assert row["required"] + row["spare"] == row["usable"]
        assert row["memory"]["total"] == row["required"]
    assert [row["bytes"] for row in written["kv_budget"]] == [budget.bytes for budget in found.kv_budget]


@given(asked())
@settings(max_examples=60, deadline=None)
def test_flags_that_are_named_do_it(case):
    gpu, model, engine, workload = case
    config, kind = models()[model].config, ENGINES[engine]
    (verdict,) = report(config, engine=kind(), workload=workload, gpus=[gpu]).verdicts
    assert (verdict.verdict == "fits with") == bool(verdict.flags)
    if verdict.flags:
        changed = serving(model, engine, flags=verdict.flags)
        (again,) = report(config, engine=changed.engine, workload=workload, gpus=[gpu]).verdicts
        assert (again.verdict, again.min_gpus) == ("fits", 1)


@given(asked(), st.sampled_from(WEIGHT_FORMATS), st.sampled_from([Layout(), Layout(tp=2), Layout(pp=2)]))
@settings(max_examples=60, deadline=None)
def test_what_outweighs_a_gpu_never_fits_it(case, weights, layout):
    """Weights as stored bound those that an engine loads from below, so that a map need not lay them out."""
    gpu, model, engine, workload = case
    try:
        one = Serving.of(ARCHITECTURES[model], ENGINES[engine](), Precision(weights=weights), layout, Overhead())
    except ConfigError:  # the engine does not take it
        return
    loaded = sum(stage.loaded.total for stage in one.laid_out.stages)
    assert one.weighing.stored <= loaded
    if one.outweighs(gpu):
        assert max_context(one.on(gpu, workload)) == 0
        assert not one.on(gpu, workload).fits(LOW)


@given(asked())
@settings(max_examples=40, deadline=None)
def test_the_fewest_gpus_do_and_fewer_do_not(case):
    gpu, model, engine, workload = case
    config, kind, architecture = models()[model].config, ENGINES[engine], ARCHITECTURES[model]
    (verdict,) = report(config, engine=kind(), workload=workload, gpus=[gpu]).verdicts

    def fits(layout):
        try:
            return verdict_word(serving(model, engine, layout).on(gpu, workload)) == "fits"
        except ConfigError:  # the engine does not take it
            return False

    if verdict.layout is not None:
        assert verdict.layout.gpus == verdict.min_gpus
        (again,) = report(config, engine=kind(), workload=workload, layout=verdict.layout, gpus=[gpu]).verdicts
        assert (again.verdict, again.gpus) == ("fits", verdict.min_gpus)
    fewer = [
        shape.model_copy(update={"pp": pp})
        for shape in shapes(architecture)
        for pp in range(1, architecture.num_layers + 1)
        if shape.gpus * pp < min(verdict.min_gpus or 1025, 13)
    ]
    assert [layout for layout in fewer if fits(layout)] == []
