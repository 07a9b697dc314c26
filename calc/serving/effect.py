"""What a change of a model does to its size and to its cache."""

from calc.errors import Frozen
from calc.formats import CacheFormat
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine


class Effect(Frozen):
    """The effect of one change alone."""

    parameters: int
    """Parameters more, or below zero fewer."""
    cache: float | None
    """Bytes of the cache of one sequence over those before; None where one of the two keeps none."""


def effect(before: Architecture, after: Architecture, engine: Engine, kv: CacheFormat, context: int) -> Effect:
    """What it is to have the one model in place of the other."""
    old, new = (engine.sequences_bytes(model, kv, 1, context) for model in (before, after))
    return Effect(
        parameters=after.parameters().total - before.parameters().total, cache=new / old if old and new else None
    )
