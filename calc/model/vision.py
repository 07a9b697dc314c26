"""Encoders of images and sound as the list of their weights."""

from collections.abc import Iterator
from typing import NamedTuple

from calc.errors import Frozen
from calc.model.tensor import Shape

NamedShape = tuple[str, Shape, int]
"""Name, shape, and number of layers that hold it."""


class TowerBuffer(NamedTuple):
    """A tensor of the checkpoint that is no parameter, as a NamedShape."""

    name: str
    shape: Shape
    copies: int = 1


TEXT = -1
"""A side of a shape: the language model's width; -4 is four times that."""


class ListedTower(Frozen):
    """Encoders and projectors of one model, by their weights."""

    modules: tuple[NamedShape, ...]
    buffers: tuple[NamedShape, ...] = ()
    images: bool  # whether the config has a section for an encoder of images
    num_layers: int | None  # what that section says
    hidden: int | None
    deepstack: int = 0  # layers of the encoder that go into the language model's first ones by mergers of their own
    wrapper: str = ""  # model_type of the whole

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        for name, shape, copies in self.modules:
            yield name, tuple(side if side >= 0 else -side * text_hidden for side in shape), copies
