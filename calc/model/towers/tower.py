"""What every encoder for images or sound has."""

from calc.errors import Frozen
from calc.model.tensor import Shapes


class Tower(Frozen):
    """What makes tokens of images or sound, before the language model."""

    def buffers(self) -> Shapes:
        """Tensors of the checkpoint that are no parameters, by name, each once."""
        return {}
