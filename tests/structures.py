"""Presets that stand for all others in `make check`: together they have every structure that any preset has."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from calc import Architecture, Layout, Precision
from calc.errors import Frozen
from calc.model.attention import GQA
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from presets import models

APART = frozenset({"layers", "places", "begins", "name", "path"})
"""Fields that say where a part stands and not what it is."""


def structure(part: Any) -> Any:
    """Kind and flags of a part of a model, of a size only whether there is one: what decides which formula holds."""
    if isinstance(part, Frozen):
        fields = {name: structure(getattr(part, name)) for name in type(part).model_fields if name not in APART}
        return type(part).__name__, tuple((name, kind) for name, kind in fields.items() if kind is not None)
    if isinstance(part, bool | str | frozenset):
        return part
    return part > 0 if isinstance(part, int | float) else None


@cache
def architectures() -> dict[str, Architecture]:
    """Architectures of all presets by name; read once, for reading them takes a tenth of a second per file of tests."""
    return {name: Architecture.from_config(preset.config) for name, preset in models().items()}


def structures(model: Architecture, config: Mapping[str, Any]) -> Iterator[Any]:
    """Mixers, feed-forwards, how they and the norms stand in a layer, what a model has outside its layers, how its
    checkpoint is stored, and the decade of its size."""
    for block in (*model.blocks, *model.shared):
        for mixer in block.mixers:
            yield structure(mixer)
            if isinstance(mixer, GQA):
                yield "heads", mixer.n_kv == 1, mixer.n_kv == mixer.n_q
        yield "feed-forward", structure(block.ffn)
        yield "layer", tuple(type(mixer) for mixer in block.mixers), type(block.ffn)
        yield "norms", block.norm, block.norms_first, len(block.norms)
    yield "tables", model.tied, model.final_norm, model.positions > 0, model.d_embedding is None, model.head_bias
    yield "prediction", bool(model.prediction)
    yield "vision", model.vision is not None
    yield "positions", model.learned_positions is None, model.max_positions is None
    yield "stored", (config.get("quantization_config") or {}).get("quant_method")
    yield "decade", len(str(model.parameters().total))


@cache
def representatives() -> tuple[str, ...]:
    """Names of few presets that have all structures: one after the other, that which adds most (greedy set cover)."""
    every = {name: frozenset(structures(model, models()[name].config)) for name, model in architectures().items()}
    left, chosen = frozenset[Any]().union(*every.values()), []
    while left:
        chosen.append(max(every, key=lambda name: len(every[name] & left)))
        left -= every[chosen[-1]]
    return tuple(chosen)


@cache
def generating() -> tuple[str, ...]:
    """Names of presets that generate: every engine serves them, all that set memory aside with a cache, and their steps
    are timed. What others hold is in tests/calc/serving/test_pooling.py."""
    return tuple(name for name, model in architectures().items() if not model.pooled)


POOLED_BY = ("vllm", "transformers")
"""Engines that are weighed with models that pool."""


def served_by(engines: Iterable[str]) -> list[tuple[str, str]]:
    """Each preset with each of these engines that is weighed with it."""
    return [(name, engine) for name in models() for engine in engines if engine in POOLED_BY or name in generating()]


def mark(name: str, choice: int = 0, choices: int = 1) -> Any:
    """Marks of a case of a preset with one of several choices, such as loads: `make check` runs each representative
    with one of them in turn, `make sweep` the rest."""
    few = representatives()
    return () if name in few and few.index(name) % choices == choice else pytest.mark.sweep


def swept(names: Iterable[str] | None = None) -> list[Any]:
    """Cases of a test over presets."""
    return [pytest.param(name, marks=mark(name)) for name in names or models()]


def staged(engine: Engine, model: Architecture, precision: Precision, layout: Layout) -> Layout:
    """The layout, or one stage of it where the engine's class of the model takes no more."""
    refused = any(refusal.field == "pp" for refusal in engine.refusals(Question(model, precision, layout)))
    return layout.model_copy(update={"pp": 1}) if refused else layout
