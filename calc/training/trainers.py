"""What trainers set by default, where a step's memory depends on it."""

from typing import Any

from calc.errors import Frozen


class Trainer(Frozen):
    """Options of a step, of mixed precision and of the layout as a trainer leaves them."""

    workload: dict[str, Any] = {}
    recipe: str
    layout: dict[str, Any] = {}


TRAINERS: dict[str, Trainer] = {}
