"""Every figure of serving has lines, made by its own formulas, that come to it."""

from functools import cache
from itertools import product
from math import ceil, floor

import pytest

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.formats import WEIGHT_FORMATS
from calc.formats.format_names import MLX_FORMATS
from calc.serving import derivation
from calc.serving.derivation import Derivations, ServingPaper, cache_steps, weight_steps
from calc.serving.engines import ENGINES
from calc.serving.engines.cache import Pool
from calc.serving.kv_cache import bytes_per_token, growth
from calc.serving.memory import Serving
from calc.serving.report import laid_out_report
from presets import gpus, models
from tests import CHECKPOINT_ENGINES, SAMPLED, load
from tests.cases import in_one_test
from tests.structures import architectures, served_by, staged

FAMILIES = {row["config"]["model_type"]: row["config"] for row in load("oracle.json")}
ARCHITECTURES = [pytest.param(Architecture.from_config(config), id=name) for name, config in FAMILIES.items()]
NUMBERED = [pytest.param(n, *case.values, id=case.id) for n, case in enumerate(ARCHITECTURES)]
FORMATS = [name for name in WEIGHT_FORMATS if name not in MLX_FORMATS]
"""Those of MLX, which MLX alone reads, are in tests/calc/serving/engines/test_mlx.py."""
PRESETS = architectures()


@cache
def value(text):
    """The number that a line's values come to."""
    text = text.replace("·", "*").replace("−", "-").replace(",", "").replace("²", "**2").replace("³", "**3")
    text = text.replace("⌊", "floor(").replace("⌋", ")").replace("⌈", "ceil(").replace("⌉", ")")
    return eval(text, {"floor": floor, "ceil": ceil})


def total(lines, figure=None):
    """The sum of lines, each of which comes to its result; or the result of one."""
    lines = list(lines)
    for line in lines:
        assert not line.values or value(str(line.values)) == line.result, line
    return sum(line.result for line in lines if figure in (None, line.what))


@in_one_test("architecture", ARCHITECTURES)
def test_cache_lines_sum_to_the_bytes_of_a_token(architecture):
    for kv in ("fp8", "int8"):
        steps = cache_steps(architecture, kv)
        assert [value(str(step.values).replace(" layers", "")) for step in steps] == [step.result for step in steps]
        bits = growth((*architecture.blocks, *architecture.shared), kv)
        assert sum(step.result for step in steps if str(step.what) == "whole context") == bytes_per_token(bits)
        assert sum(step.result for step in steps) == sum(bits.values()) // 8


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.sweep) for part in (1, 2, 3))])
@pytest.mark.parametrize(("number", "architecture"), NUMBERED)
def test_weight_lines_sum_to_the_bytes_on_a_gpu(number, architecture, part, monkeypatch):
    """In a quarter of the formats, another one for each family in turn, and in the others by night."""
    monkeypatch.setattr(derivation, "weight_step", cache(derivation.weight_step))  # formats share some
    for weights in FORMATS[(number + part) % 4 :: 4]:
        serving = Serving.of(architecture, ENGINES["transformers"](), Precision(weights=weights), Layout(), Overhead())
        (stage,), (layers,) = serving.laid_out.stages, serving.laid_out.ranges
        assert total(weight_steps(serving, layers)) == stage.weights, weights


@pytest.mark.parametrize(
    ("model", "cache", "weights"),
    [  # counted from their checkpoints
        ("Qwen/Qwen2.5-3B", 36_864, 6_171_877_376),
        ("deepseek-ai/DeepSeek-V3", 70_272, 2 * 671_026_404_352),
    ],
)
def test_known_totals(model, cache, weights):
    architecture = PRESETS[model]
    assert [step.result for step in cache_steps(architecture, "bf16")] == [cache]
    serving = Serving.of(architecture, ENGINES["vllm"](), Precision(), Layout(), Overhead())
    assert total(weight_steps(serving, serving.laid_out.ranges[0])) == weights


@pytest.mark.slow
@in_one_test(("model", "engine"), [*served_by(CHECKPOINT_ENGINES), *product(SAMPLED, ["tensorrt-llm"])])
def test_the_lines_of_every_figure_come_to_it(model, engine):
    architecture = PRESETS[model]
    precision = Precision.of(models()[model].config)
    workload = Workload(batch=3, context=5000, generated=100 if engine == "transformers" else 0)
    layout = staged(ENGINES[engine](), architecture, precision, Layout(pp=2))
    allocation = Serving.of(architecture, ENGINES[engine](), precision, layout, Overhead()).on(
        gpus()["h100-sxm"], workload
    )
    memory, budget, of = allocation.memory, allocation.kv_budget, Derivations(allocation)
    assert total(of.weights()) == memory.weights
    assert total(of.loaded()) == allocation.serving.laid_out.stages[allocation.most_loaded].loaded.total
    assert total(of.kv_cache()) == memory.kv_cache
    assert total(of.activations()) == memory.activations
    assert total(of.overhead(), "overhead") == memory.overhead
    assert total(of.total()) == memory.total
    assert total(of.spare()) == allocation.spare
    lines = of.kv_budget()
    if budget is None:
        assert not lines
        assert not isinstance(allocation.cache, Pool) or allocation.limits.share is None
    else:
        assert total(lines, "requested") == budget.requested
        assert total(lines, "weights") == budget.weights
        assert total(lines, "available") == budget.bytes
        assert total(lines, "blocks") == budget.blocks


@pytest.mark.parametrize(
    ("engine", "options", "what", "formula"),
    [
        pytest.param("vllm", {}, "logits, their copies and what sampling takes", "14·V·R", id="vLLM's sampler"),
        pytest.param("transformers", {}, "hidden states", "8·h·T", id="transformers' feed-forward"),
        pytest.param(
            "transformers",
            {"attention": "eager"},
            "scores and their softmax",
            "10·n_q·S·T",
            id="one score for each pair of tokens and head",
        ),
    ],
)
def test_formulas_are_written_in_the_symbols_of_configs(engine, options, what, formula):
    """Llama 3.1 8B: four states of the hidden width beside the feed-forward; the softmax in 16 bits and twice in 32."""
    kind = ENGINES[engine]
    one = kind(kind.options_type(**options))
    serving = Serving.of(PRESETS["meta-llama/Llama-3.1-8B"], one, Precision(), Layout(), Overhead())
    lines = {line.what: line for line in Derivations(serving.on(gpus()["h100-sxm"], Workload())).activations()}
    assert str(lines[what].formula) == formula


@pytest.mark.parametrize("engine", [*CHECKPOINT_ENGINES, "tensorrt-llm"])
def test_the_legend_names_what_occurs(engine):
    serving = Serving.of(PRESETS["deepseek-ai/DeepSeek-V3"], ENGINES[engine](), Precision(), Layout(), Overhead())
    of = Derivations(serving.on(gpus()["b200"], Workload()))
    lines = [*of.kv_cache(), *of.activations(), *of.overhead(), *of.kv_budget(), *of.spare()]
    written = " ".join(str(line.formula) for line in lines if line.formula)
    words = set(written.translate(dict.fromkeys(map(ord, "·+−/⌊⌋()²"), " ")).split())
    assert {word for word in words if not word.isdigit()} == set(of.symbols.occurring())


@pytest.mark.parametrize(("kv", "layers"), [("bf16", None), ("q8_0", None), ("bf16", 10)])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "zai-org/GLM-4.5"])
def test_llamacpps_buffers_are_on_paper(model, kv, layers):
    """Weights that lie on the host are copied for a run, under names with points; gaps have a name with commas."""
    engine, config = ENGINES["llamacpp"], models()[model].config
    asked = {"precision": Precision(weights="Q4_K_M", kv=kv), "gpus": [gpus()["h100-sxm"]]}
    started = engine(engine.options_type(n_gpu_layers=layers))
    serving, report = laid_out_report(config, engine=started, workload=Workload(), **asked)
    of = Derivations(serving.on(gpus()["h100-sxm"], Workload()))
    assert total(of.activations()) == of.memory.activations
    (verdict,) = report.verdicts
    assert [part.anchor for part in ServingPaper(PRESETS[model], report, of).sections(verdict)][-1] == "verdict"
