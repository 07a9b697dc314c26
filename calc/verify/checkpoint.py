"""The tensor table of a real checkpoint: names, shapes and bytes as they lie in its files, without the weights."""

from codecs import BOM_UTF8
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from calc.errors import ConfigError, Frozen, Message, shown
from calc.model.tensor import Shape
from calc.text import parse_json

MAX_HEADER_BYTES = 25_000_000
"""Limit of huggingface_hub; the largest published index has some 9 MB, and the format itself allows 100 MB."""
MAX_TENSORS = 500_000
MAX_ENTRIES = 1_250_000
"""Commas and brackets of a header; one of 150,000 tensors has as many."""
MAX_NUMBER = 2**53

# github.com/huggingface/safetensors, safetensors/src/tensor.rs: bits of one element
BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class StoredTensor(NamedTuple):
    """One tensor as it lies in the file; None for what the source does not say."""

    dtype: str | None
    shape: Shape | None
    bytes: int | None

    @property
    def elements(self) -> int:
        return 0 if self.shape is None else prod(self.shape)


class Checkpoint(Frozen):
    """Tensors of a checkpoint. An index names them without their shapes, a print-out shows no bytes."""

    tensors: dict[str, StoredTensor]
    total_bytes: int | None = None
    """Bytes that the source states for all tensors together; None where they are their sum."""
    unseen: tuple[Message, ...] = ()
    """Sentences on what the source cannot show."""

    @property
    def shapes(self) -> dict[str, Shape | None]:
        """The shape of each tensor; None where the source does not say it."""
        return {name: stored.shape for name, stored in self.tensors.items()}

    @property
    def elements(self) -> int:
        """Stored elements; packed weights count as they are packed."""
        return sum(stored.elements for stored in self.tensors.values())

    @property
    def bytes(self) -> int | None:
        """Bytes of all tensors; None when the source does not say."""
        if self.total_bytes is not None:
            return self.total_bytes
        sizes = [stored.bytes for stored in self.tensors.values()]
        return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None

    def bytes_by_dtype(self) -> dict[str, int]:
        """Largest first."""
        sums: dict[str, int] = {}
        for stored in self.tensors.values():
            if stored.dtype is not None and stored.bytes is not None:
                sums[stored.dtype] = sums.get(stored.dtype, 0) + stored.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def shares_by_dtype(self) -> list[tuple[str, int, float]]:
        """Each type with its bytes and their share of all."""
        sums = self.bytes_by_dtype()
        total = sum(sums.values())
        return [(dtype, size, size / total if total else 0.0) for dtype, size in sums.items()]


def read_safetensors(data: bytes) -> Checkpoint:
    """A safetensors file (its beginning is enough), its header as JSON, or a model.safetensors.index.json.

    Source: the format's own description, github.com/huggingface/safetensors. Raises ConfigError.
    """
    size = int.from_bytes(data[:8], "little")
    binary = size < MAX_NUMBER and data[8:9] == b"{"  # eight bytes of text would make a larger number
    if not binary and (text := data.removeprefix(BOM_UTF8)).lstrip()[:1] == b"{":
        return _from_json(text)
    if len(data) < 8 or data[8:9] != b"{":
        sentence = (
            "This is no safetensors file: after 8 bytes of length one begins with a brace. Give a .safetensors "
            "file, its header, or model.safetensors.index.json."
        )
        raise ConfigError(Message(sentence))
    if size > MAX_HEADER_BYTES:
        sentence = "The header should be {size:,} bytes long; {most:,} are the most that we read."
        raise ConfigError(Message(sentence, size=size, most=MAX_HEADER_BYTES))
    if size > len(data) - 8:
        sentence = "The header should be {size:,} bytes long, of which only {length:,} are here."
        raise ConfigError(Message(sentence, size=size, length=len(data) - 8))
    return _from_json(data[8 : 8 + size])


def _from_json(data: bytes) -> Checkpoint:
    try:
        table = parse_json(data.decode(), MAX_HEADER_BYTES, MAX_ENTRIES)
    except UnicodeDecodeError:
        raise ConfigError(Message("The header is not text in UTF-8, as JSON must be.")) from None
    if "weight_map" in table:
        return _from_index(table)
    return _from_rows(table)


def check_number(tensors: int) -> None:
    """Raise ConfigError for more tensors than are read."""
    if tensors > MAX_TENSORS:
        sentence = "The header names {length:,} tensors; {most:,} is the most that we read."
        raise ConfigError(Message(sentence, length=tensors, most=MAX_TENSORS))


def _from_rows(table: Mapping[str, Any]) -> Checkpoint:
    """The tensors of one or several headers, by name: dtype, shape and data_offsets of each. Raises ConfigError."""
    check_number(len(table))
    rows = {name: _stored(name, row) for name, row in table.items() if name != "__metadata__"}
    if not rows:
        raise ConfigError(Message("The header names no tensor."))
    return Checkpoint.model_construct(tensors=rows, total_bytes=None, unseen=())  # each row is checked above


def _stored(name: str, row: Any) -> StoredTensor:
    if not isinstance(row, Mapping) or not {"dtype", "shape", "data_offsets"} <= row.keys():
        sentence = "{name} is {row}; a tensor of a safetensors header has dtype, shape and data_offsets."
        raise ConfigError(Message(sentence, name=shown(name), row=shown(row)))
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        sentence = "{name} has the dtype {dtype}; safetensors knows {known}."
        raise ConfigError(Message(sentence, name=shown(name), dtype=shown(dtype), known=", ".join(BITS)))
    if not _whole_numbers(shape) or not _whole_numbers(offsets) or len(offsets) != 2:
        raise ConfigError(
            Message("The shape or data_offsets of {name} are not lists of whole numbers from 0 on.", name=shown(name))
        )
    size = offsets[1] - offsets[0]
    if size != -(-prod(shape) * BITS[dtype] // 8):
        sentence = "{name} takes {size:,} bytes by its data_offsets, but {expected:,} by its dtype and shape."
        raise ConfigError(Message(sentence, name=shown(name), size=size, expected=prod(shape) * BITS[dtype] // 8))
    return StoredTensor(dtype, tuple(shape), size)


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 16 and all(type(n) is int and 0 <= n < MAX_NUMBER for n in value)


def _from_index(index: Mapping[str, Any]) -> Checkpoint:
    names, about = index["weight_map"], index.get("metadata")
    if not isinstance(names, Mapping) or not names:
        raise ConfigError(Message("weight_map must be an object that says for each tensor which file holds it."))
    total = about.get("total_size") if isinstance(about, Mapping) else None
    total = int(total) if isinstance(total, float) and total.is_integer() else total
    if total is not None and not _whole_numbers([total]):
        raise ConfigError(Message("metadata.total_size is {total}; it must be a number of bytes.", total=shown(total)))
    return Checkpoint.model_construct(
        tensors=dict.fromkeys(names, StoredTensor(None, None, None)),
        total_bytes=total,
        unseen=(Message("An index holds names and the total of bytes, no shapes: only the names are compared."),),
    )
