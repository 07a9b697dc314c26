"""Every family through every door of calc: an answer or a ConfigError, nothing else."""

import json
from pathlib import Path
from typing import get_args

import pytest

from calc import Architecture, ConfigError, Layout, Precision, Workload, report, training_report
from calc.families import settings
from calc.families.family_table import FAMILIES, WRAPPED
from calc.formats.format_names import MLX_FORMATS, CacheFormat, WeightFormat
from calc.hardware.gpus import gpus
from calc.hardware.overhead import Overhead
from calc.model.derivation import derive
from calc.serving.derivation import Derivations, cache_steps
from calc.serving.engines import ENGINES
from calc.serving.memory import Serving
from calc.training import RECIPES, Method, Recompute, TrainingLayout, TrainingWorkload
from tests.cases import in_one_test

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
SMALL, ORACLE, TOWERS = (
    json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) for name in ("small", "oracle", "towers")
)
ENCODERS = {row["config"]["model_type"]: row for row in TOWERS}
"""The last row of each wrapper: small."""
PUBLISHED = {row["config"]["model_type"]: row["config"] for row in ORACLE}
SMALL_OF = {
    name: [row["config"] for row in SMALL if name in (kind := row["config"]["model_type"], WRAPPED.get(kind))]
    for name in FAMILIES
}
NEED_A_CONFIG = {"bailing_moe", "diffusion_gemma_text", "openelm"}
"""Nothing is known of their layers without one."""
SERVERS = [*(engine() for engine in ENGINES.values()), ENGINES["transformers"]().with_options(attention="eager")]
H100 = gpus()["h100-sxm"]
FIGURES = (Derivations.weights, Derivations.loaded, Derivations.kv_cache, Derivations.activations)
FIGURES += (Derivations.overhead, Derivations.total)
WEIGHTS, CACHES = [name for name in get_args(WeightFormat) if name not in MLX_FORMATS], get_args(CacheFormat)
"""Those of MLX, which MLX alone reads, are in tests/calc/serving/engines/test_mlx.py."""
LAYOUTS = [Layout(), Layout(tp=2), Layout(pp=2), Layout(tp=2, pp=2), Layout(dp=2, ep=2), Layout(tp=2, ep=2)]
TRAINING_LAYOUTS = [
    TrainingLayout(),
    TrainingLayout(tp=2, pp=2),
    TrainingLayout(dp=2, zero=3),
    TrainingLayout(dp=2, ep=2, zero=1),
]


def answers(ask):
    """What comes back, or None where a sentence says why nothing does."""
    try:
        return ask()
    except ConfigError as error:
        assert str(error).endswith((".", "?"))
        return None


def serve(config, engine, weights, cache, layout):
    """A report on a GPU of its own, and the derivation of each of its figures."""
    workload, precision = Workload(context=300, batch=2), Precision(weights=weights, kv=cache)
    asked = {"engine": engine, "precision": precision, "layout": layout}
    found = answers(lambda: report(config, workload=workload, gpus=[H100], **asked))
    if found is not None:
        assert found.memory.total > found.memory.weights > 0
        serving = Serving.of(architecture=Architecture.from_config(config), overhead=Overhead(), **asked)
        derivations = Derivations(serving.on(H100, workload))
        for lines in FIGURES:
            assert all(str(step) for step in lines(derivations))


def train(config, method, recompute, recipe, layout):
    work = TrainingWorkload(method=method, recompute=recompute, sequence=300)
    found = answers(lambda: training_report(config, workload=work, recipe=RECIPES[recipe], layout=layout, gpus=[]))
    assert found is None or found.memory.total > 0


def derived(config):
    architecture = Architecture.from_config(config)
    steps = derive(architecture)
    assert sum(step.result for step in steps.parameters) == architecture.parameters().total
    for cache in CACHES:
        assert all(step.result > 0 for step in cache_steps(architecture, cache))


CHOICES = (WEIGHTS, CACHES, LAYOUTS)
TRAINING_CHOICES = (get_args(Method), get_args(Recompute), list(RECIPES), TRAINING_LAYOUTS)


@pytest.mark.parametrize("part", ["one", pytest.param("rest", marks=pytest.mark.sweep)])
@pytest.mark.parametrize(("number", "model_type"), [pytest.param(i, name, id=name) for i, name in enumerate(FAMILIES)])
def test_every_family(number, model_type, part):
    """What its class makes of an empty config, and small configs with flags at random, the first of which is in every
    run. Each meets every engine, with some of the formats and layouts, and each of these many families: they go round
    at different paces."""
    configs = [{"model_type": model_type}, *(SMALL_OF[model_type][:2] or [PUBLISHED.get(model_type, {})])]
    known = [config for config in configs if answers(lambda c=config: Architecture.from_config(c)) is not None]
    assert known or model_type in NEED_A_CONFIG
    always = min(1, len(known) - 1)
    for i, config in enumerate(known):
        if (i == always) != (part == "one"):
            continue
        assert settings(config)
        for j, engine in enumerate(SERVERS):
            serve(config, engine, *(choice[(3 * number + 5 * i + j) % len(choice)] for choice in CHOICES))
        train(config, *(choice[(3 * number + i) % len(choice)] for choice in TRAINING_CHOICES))
    if SMALL_OF[model_type] and (number % 4 == 0) == (part == "one"):  # symbols are of kinds, not of families
        derived(SMALL_OF[model_type][0])


@in_one_test("model_type", WRAPPED)
def test_every_wrapper(model_type):
    answers(lambda: report({"model_type": model_type, "text_config": {"num_hidden_layers": 2}}, gpus=[]))


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.sweep)])
@pytest.mark.parametrize(("number", "model_type"), [pytest.param(i, name, id=name) for i, name in enumerate(ENCODERS)])
def test_every_encoder(number, model_type, part):
    """Its weights are among what a report counts, and every engine has an answer: every other engine for each encoder
    in turn, and the rest by night."""
    row = ENCODERS[model_type]
    assert report(row["config"], gpus=[]).memory.vision == 2 * row["vision"]
    for i, engine in list(enumerate(SERVERS))[(number + part) % 2 :: 2]:
        serve(row["config"], engine, *(choice[(number + i) % len(choice)] for choice in CHOICES))
    train(row["config"], *(choice[number % len(choice)] for choice in TRAINING_CHOICES))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_weight_format(weights):
    """A number without sides, experts, latents and states in each of them."""
    for model_type in ("apertus", "deepseek_v3", "qwen3_5_moe_text", "zamba2"):
        config = next(iter(SMALL_OF[model_type]))
        assert report(config, precision=Precision(weights=weights), gpus=[]).memory.weights > 0
