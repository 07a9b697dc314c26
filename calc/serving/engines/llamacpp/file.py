"""A GGUF file as it is loaded: each weight with its shape and type, by layer."""

from dataclasses import dataclass
from math import prod

from calc.formats import Precision
from calc.formats.gguf_tensors import gguf_tensors
from calc.formats.gguf_types import Counted, GGUFTypes
from calc.model.architecture import Architecture
from calc.serving.engines.llamacpp.graph import BLOCKS


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of the file, sides as ggml counts them: the innermost first."""

    name: str
    ne: tuple[int, ...]
    type: str

    @property
    def elements(self) -> int:
        return prod(self.ne)

    @property
    def nbytes(self) -> int:
        block, size = BLOCKS[self.type]
        return prod(self.ne) // block * size


def layers_of(architecture: Architecture, *, predicts: bool) -> int:
    """Layers that are loaded: those for multi-token prediction only where they are asked for (`load_mtp`)."""
    return architecture.num_layers + (len(architecture.prediction) if predicts else 0)


class ModelFile:
    """The weights of a model outside the layers, and of each layer, by their names; a vision encoder has a file of its
    own."""

    def __init__(self, architecture: Architecture, precision: Precision, *, predicts: bool = False) -> None:
        """`predicts`: with the layers for multi-token prediction, which stand behind the last."""
        self.architecture = architecture
        tensors = gguf_tensors(architecture)
        types = GGUFTypes(Counted.of(architecture, tensors), precision)
        self.outside: dict[str, FileTensor] = {}
        self.layers: list[dict[str, FileTensor]] = [{} for _ in range(layers_of(architecture, predicts=predicts))]
        for tensor in tensors:
            if tensor.excluded_as == "vision" or (tensor.excluded_as == "multi_token_prediction" and not predicts):
                continue
            ne = tensor.shape[::-1]
            for form, layers in types.formats(tensor).items():
                kind = form.name.lower()
                if not layers:
                    self.outside[tensor.name] = FileTensor(tensor.name, ne, kind)
                for layer in layers:
                    name = tensor.name.removeprefix("blk.{layer}.")
                    self.layers[layer][name] = FileTensor(name, ne, kind)
