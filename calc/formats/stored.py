"""Weights as stored: the tensors of one rank, each with its format."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Self

from calc.errors import Frozen
from calc.formats.format_names import FLOATS
from calc.formats.gguf_tensors import gguf_tensors
from calc.formats.gguf_types import GGUFTypes
from calc.formats.mixes import MIXES
from calc.formats.precision import Precision
from calc.formats.table import FIXED, FORMATS, Format
from calc.model.architecture import Architecture
from calc.model.tensor import Tensor


class Piece(NamedTuple):
    """A tensor of one rank in the layers that store it in the same format."""

    tensor: Tensor
    form: Format
    a_layer: int
    """Times that it occurs in a layer."""
    nbytes: int
    """Bytes of one occurrence, scales included."""
    scales: int
    """Bytes of one occurrence's scales and zero points."""

    @classmethod
    def of(cls, tensor: Tensor, form: Format) -> Self:
        scales = form.scale_nbytes(tensor.shape, tensor.stacked)
        return cls(tensor, form, tensor.a_layer, -(-tensor.numel * form.bits // 8) + scales, scales)


class CheckpointSize(Frozen):
    """Bytes of the files that hold a whole model, headers apart."""

    total: int
    text: int
    """The language model."""
    multi_token_prediction: int
    vision: int
    """Encoders of images and sound."""
    formats: dict[str, int]
    """Bytes by format, scales with the weights that they belong to."""

    @classmethod
    def of(cls, architecture: Architecture, precision: Precision) -> Self:
        parts, formats = Counter[str](), Counter[str]()
        for read in stored(architecture, precision):
            piece = Piece.of(read.tensor, read.form.in_file)
            nbytes = piece.nbytes * piece.tensor.count
            parts[piece.tensor.excluded_as or "text"] += nbytes
            formats[piece.form.name] += nbytes
        return cls(
            total=parts.total(),
            text=parts["text"] + parts["persistent_buffers"],
            multi_token_prediction=parts["multi_token_prediction"],
            vision=parts["vision"],
            formats=dict(formats.most_common()),
        )


StoredAs = Callable[[Architecture, Precision, Architecture], list[Piece]]
"""The tensors of one rank of a model, each with its format."""


def stored(architecture: Architecture, precision: Precision, rank: Architecture | None = None) -> list[Piece]:
    """The tensors of one rank, each with its format: that of the whole matrix, whatever the share."""
    if precision.weights in MIXES:
        return stored_gguf(architecture, precision, rank)
    choose, differs = chooser(architecture, precision)
    shares = (rank or architecture).tensors()
    pieces: list[Piece] = []
    for tensor in shares:
        if tensor.dtype is not None:
            pieces.append(Piece.of(tensor, FIXED[tensor.dtype]))
        elif differs and tensor.layers:
            pieces += by_format(tensor, choose)
        else:
            pieces.append(Piece.of(tensor, choose(tensor, tensor.layers[0] if tensor.layers else 0)))
    return pieces


def stored_gguf(architecture: Architecture, precision: Precision, rank: Architecture | None = None) -> list[Piece]:
    """The tensors of a GGUF file, each with its format; norms are in 32 bits in any mix."""
    types = GGUFTypes(architecture, precision)
    tensors = types.inputs.tensors
    shares = tensors if rank is None or rank is architecture else gguf_tensors(rank)
    return [
        piece
        for tensor, share in zip(tensors, shares, strict=True)
        for piece in pieces_of(share, types.formats(tensor))
    ]


def by_format(tensor: Tensor, choose: Callable[[Tensor, int], Format]) -> list[Piece]:
    """A tensor's layers by the format that they store it in."""
    layers_by_format: dict[Format, list[int]] = {}
    for layer in tensor.layers:
        layers_by_format.setdefault(choose(tensor, layer), []).append(layer)
    return pieces_of(tensor, {form: tuple(layers) for form, layers in layers_by_format.items()})


def pieces_of(tensor: Tensor, layers_by_format: Mapping[Format, tuple[int, ...]]) -> list[Piece]:
    """A tensor, or a rank's part of it, in the formats that its layers store it in."""
    if len(layers_by_format) == 1:
        return [Piece.of(tensor, form) for form in layers_by_format]
    return [Piece.of(replace(tensor, layers=layers), form) for form, layers in layers_by_format.items()]


def chooser(architecture: Architecture, precision: Precision) -> tuple[Callable[[Tensor, int], Format], bool]:
    """The format of a tensor in a layer, and whether layers differ in it."""
    weights = precision.weights
    if weights in FLOATS:
        return lambda tensor, layer: FORMATS[weights], False
    scheme = precision.scheme(experts=bool(architecture.experts))
    if (bits := architecture.names.fp8_scale_bits) is not None:
        return lambda tensor, layer: with_scales(scheme.form(tensor, layer), bits), scheme.differs_by_layer
    return scheme.form, scheme.differs_by_layer


def with_scales(form: Format, bits: int) -> Format:
    """A format with scales of another width, where it has one for a block of fp8."""
    in_blocks = form.bits == 8 and form.block[0] not in (1, None)
    return replace(form, scale_bits=bits) if in_blocks else form
