"""Sizes of a field that meet a budget: the nearest valid designs below it and above."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calc.errors import ConfigError, Frozen
from calc.families import override
from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.time.operations import decode, demand

Measure = Callable[[Architecture], int]


class Design(Frozen):
    """A value of the field, and what it comes to."""

    value: int
    amount: int


class Scaled(Frozen):
    """The nearest designs; None where there is none on that side."""

    below: Design | None
    """The largest that keeps to the budget."""
    above: Design | None
    """The next one, beyond it."""


def scaled(config: Mapping[str, Any], field: str, values: Sequence[int], measure: Measure, budget: int) -> Scaled:
    """The values, in ascending order, around a budget. A value that makes no valid model is passed over; the measure
    grows with the field."""
    known: dict[int, Design | None] = {}

    def design(index: int) -> Design | None:
        if index not in known:
            try:
                architecture = Architecture.from_config(override(config, {field: values[index]}))
                known[index] = Design(value=values[index], amount=measure(architecture))
            except ConfigError:
                known[index] = None
        return known[index]

    low, high = -1, len(values)  # all up to low keep to it, all from high on do not
    below = above = None
    while high - low > 1:
        middle = (low + high) // 2
        place = next((i for i in range(middle, high) if design(i) is not None), None)
        if place is None:
            high = middle
        elif (bigger := design(place)) is not None and bigger.amount <= budget:
            low, below = place, bigger
        else:
            high, above = middle, bigger
    return Scaled(below=below, above=above)


def token_flops(architecture: Architecture, context: int) -> int:
    """FLOPs of decoding one token at the end of a context, 2 for each multiply-add."""
    stage = range(architecture.num_layers)
    whole = demand(architecture, architecture, Precision(), Layout(), stage)
    return int(sum(operation.flops for operation in whole.operations(decode(1, context))))
