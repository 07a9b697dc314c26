"""Bytes of many tensors in many formats at once: what `stored` says of each, as arrays."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.formats import Precision
from calc.formats.format_names import FLOATS, WeightFormat
from calc.formats.gguf_tensors import gguf_tensors
from calc.formats.gguf_types import IN_FILES, Counted, GGUFTypes
from calc.formats.mixes import MIXES
from calc.formats.scheme import is_matrix, matrices
from calc.formats.stored import stored
from calc.formats.table import FIXED, FORMATS, Format
from calc.model.architecture import Architecture
from calc.model.tensor import Component, Excluded, Tensor

Array = np.ndarray[Any, np.dtype[np.float64]]

TensorPart = tuple[Component, Excluded | None]
MixShares = dict[TensorPart, float]
"""Bytes an element of each part of a model in a GGUF file."""
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int_]]


def read_only(array: Array) -> Array:
    """The array, which nobody can write to any more."""
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class Table:
    """Tensors as columns: elements, rows and columns of a matrix, how many one occurrence holds."""

    tensors: tuple[Tensor, ...]
    numel: Array
    rows: Array
    columns: Array
    matrices: Array
    is_matrix: Flags
    component: np.ndarray[Any, np.dtype[np.str_]]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Table":
        matrices_each = [matrices(tensor) for tensor in tensors]
        columns = [tensor.shape[-1] if tensor.shape else 1 for tensor in tensors]
        numel = [tensor.numel for tensor in tensors]
        return cls(
            tensors=tuple(tensors),
            numel=np.array(numel, dtype=np.float64),
            rows=np.array(
                [n // c // h for n, c, h in zip(numel, columns, matrices_each, strict=True)], dtype=np.float64
            ),
            columns=np.array(columns, dtype=np.float64),
            matrices=np.array(matrices_each, dtype=np.float64),
            is_matrix=np.array([is_matrix(tensor) for tensor in tensors], dtype=np.bool_),
            component=np.array([tensor.component for tensor in tensors]),
        )

    def nbytes(self, form: Format) -> Array:
        """Bytes of one occurrence of each tensor in a format, as `Format.nbytes` has it."""
        down, across = form.block
        blocks = np.ceil(self.rows / (down or self.rows)) * np.ceil(self.columns / (across or self.columns))
        outer = 0.0 if form.outer is None else 32 * np.ceil(blocks / form.outer)
        bits = blocks * form.scale_bits + outer + self.columns * form.column_bits + form.matrix_bits
        return np.ceil(self.numel * form.bits / 8) + np.ceil(self.matrices * bits / 8)

    def quantized(self, precision: Precision, *, experts: bool) -> Flags:
        """Which of them a plain format quantizes: all linear matrices that it is for."""
        (rule,) = precision.scheme(experts=experts).rules
        components = rule.components
        return np.asarray(self.is_matrix & np.isin(self.component, [str(component) for component in components]))


def is_plain(precision: Precision) -> bool:
    """Whether a format is chosen by component alone: no checkpoint's own list, no mix by layer."""
    return precision.checkpoint is None and precision.weights not in MIXES


def occurrence_bytes(table: Table, precision: Precision, *, experts: bool) -> Array:
    """Bytes of one occurrence of each tensor."""
    if precision.weights in FLOATS:
        sizes = table.nbytes(FORMATS[precision.weights])
    else:
        narrow = table.quantized(precision, experts=experts)
        sizes = np.where(narrow, table.nbytes(FORMATS[precision.weights]), table.nbytes(FORMATS["bf16"]))
    fixed = [0 if tensor.dtype is None else FIXED[tensor.dtype].bits // 8 for tensor in table.tensors]
    return np.where(fixed, table.numel * np.array(fixed), sizes)


def bytes_by_tensor(
    whole: Architecture, rank: Architecture, table: Table, precision: Precision, mixes: Mapping[WeightFormat, MixShares]
) -> Array:
    """Bytes of one occurrence in any format; the mean over layers, or parts of a model, where they differ."""
    if precision.weights in mixes:
        return bytes_of_mix(mixes[precision.weights], table)
    if is_plain(precision):
        return occurrence_bytes(table, precision, experts=any(t.component == "experts_routed" for t in table.tensors))
    pieces, sizes = iter(stored(whole, precision, rank)), []
    for tensor in table.tensors:
        size, left = 0, max(1, len(tensor.layers))
        while left:
            piece = next(pieces)
            here = max(1, len(piece.tensor.layers))
            size, left = size + piece.nbytes * here, left - here
        sizes.append(size / max(1, len(tensor.layers)))
    return np.array(sizes, dtype=np.float64)


def bytes_of_mix(mix: MixShares, table: Table) -> Array:
    """A GGUF file divides a layer into other tensors: each part of the model takes what it does there, its tensors by
    their elements."""
    return np.array([n * mix[t.component, t.excluded_as] for n, t in zip(table.numel, table.tensors, strict=True)])


def bytes_an_element(
    whole: Architecture, precisions: Sequence[Precision], *, gguf: bool = False
) -> dict[WeightFormat, MixShares]:
    """Bytes an element of each part of a model in a GGUF file, in those formats that are mixes, or in all of files."""
    files = (*MIXES, *(IN_FILES if gguf else ()))
    mixes = {precision.weights: precision for precision in precisions if precision.weights in files}
    if not mixes:
        return {}
    tensors, elements = gguf_tensors(whole), Counter[TensorPart]()
    for tensor in whole.tensors():
        elements[tensor.component, tensor.excluded_as] += tensor.parameters
    counted = Counted.of(whole, tensors)
    types = {name: GGUFTypes(counted, mix) for name, mix in mixes.items()}
    mixed = [tensor for tensor in tensors if counted.is_mixed(tensor)]
    alike = [tensor for tensor in tensors if not counted.is_mixed(tensor)]
    rest = {
        plain: file_bytes(types_of_format, alike)
        for plain, types_of_format in {
            types_of_format.plain: types_of_format for types_of_format in types.values()
        }.items()
    }
    shares: dict[WeightFormat, MixShares] = {}
    for name, types_of_mix in types.items():
        part_bytes = file_bytes(types_of_mix, mixed) + rest[types_of_mix.plain]
        shares[name] = {part: part_bytes[part] / elements[part] for part in elements}
    return shares


def file_bytes(types: GGUFTypes, tensors: Sequence[Tensor]) -> Counter[TensorPart]:
    """Bytes of each part of a model that some tensors of a file take."""
    part_bytes: Counter[TensorPart] = Counter()
    for tensor in tensors:
        for form, layers in types.formats(tensor).items():
            part_bytes[tensor.component, tensor.excluded_as] += form.nbytes(tensor.shape, matrices(tensor)) * max(
                1, len(layers)
            )
    return part_bytes
