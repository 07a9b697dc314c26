"""What every encoder for images or sound has."""

from collections.abc import Iterator

from calc.errors import Frozen
from calc.model.tensor import Shape

NamedShape = tuple[str, Shape, int]  # name, shape, number of layers that hold it


class Tower(Frozen):
    """What makes tokens of images or sound, before the language model."""

    def buffers(self) -> Iterator[NamedShape]:
        """Tensors of the checkpoint that are no parameters."""
        yield from ()
