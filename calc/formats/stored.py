"""Weights as stored: the tensors of one rank, each with its format."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from calc.formats.format_names import FLOATS, WeightFormat
from calc.formats.mixes import MIXES, TYPES, Sizes, fitted, role_of, type_of
from calc.formats.precision import Precision
from calc.formats.scheme import is_matrix, matrices
from calc.formats.table import FORMATS, Format
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.feedforward import MoE
from calc.model.mla import LatentAttention
from calc.model.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of one rank in the layers that store it in the same format."""

    tensor: Tensor
    form: Format

    @property
    def nbytes(self) -> int:
        """Bytes of one occurrence, scales included."""
        return self.form.nbytes(self.tensor.shape, matrices(self.tensor))

    @property
    def scales(self) -> int:
        """Bytes of one occurrence's scales and zero points."""
        return self.form.scale_nbytes(self.tensor.shape, matrices(self.tensor))

    @property
    def a_layer(self) -> int:
        """How many times it occurs in a layer."""
        return self.tensor.count // max(1, len(self.tensor.layers))


def stored(architecture: Architecture, precision: Precision, rank: Architecture | None = None) -> list[Piece]:
    """The tensors of one rank, each with its format: that of the whole matrix, whatever the share."""
    choose, differs = chooser(architecture, precision)
    shares = (rank or architecture).tensors()
    pieces = []
    for tensor, share in zip(architecture.tensors() if precision.weights in MIXES else shares, shares, strict=True):
        if not differs or not tensor.layers:
            pieces.append(Piece(share, choose(tensor, tensor.layers[0] if tensor.layers else 0)))
            continue
        alike: dict[Format, list[int]] = {}
        for layer in tensor.layers:
            alike.setdefault(choose(tensor, layer), []).append(layer)
        pieces += [Piece(replace(share, layers=tuple(layers)), form) for form, layers in alike.items()]
    return pieces


def chooser(architecture: Architecture, precision: Precision) -> tuple[Callable[[Tensor, int], Format], bool]:
    """The format of a tensor in a layer, and whether layers differ in it."""
    weights = precision.weights
    if weights in FLOATS:
        return lambda tensor, layer: FORMATS[weights], False
    if weights in MIXES:
        return mixer(architecture, weights), True
    scheme = precision.scheme(experts=any(isinstance(block.ffn, MoE) for block in architecture.blocks))
    return scheme.form, scheme.differs_by_layer


def mixer(architecture: Architecture, mix: WeightFormat) -> Callable[[Tensor, int], Format]:
    """llama.cpp's choice for each matrix; what is no matrix, and the router, stays in 32 bits."""
    blocks = architecture.all_blocks
    attention = [m for block in blocks for m in block.mixers if isinstance(m, GQA | LatentAttention)]
    places = sorted({i for block in blocks for i in block.layers if any(m in attention for m in block.mixers)})
    first = attention[0] if attention else None
    sizes = Sizes(
        layers=architecture.num_layers,
        attention_layers=len(places),
        group=first.n_q // first.n_kv if isinstance(first, GQA) else 1,
        experts=max((block.ffn.n_experts for block in blocks if isinstance(block.ffn, MoE)), default=0),
    )

    def choose(tensor: Tensor, layer: int) -> Format:
        if not is_matrix(tensor) or tensor.component in ("router", "norms"):
            return TYPES["F32"]
        role = role_of(tensor)
        if role == "embedding" and architecture.tied:
            role = "output"
        place = places.index(layer) if role == "v" and layer in places else layer
        return fitted(type_of(mix, role, place, sizes), tensor.shape[-1])

    return choose
