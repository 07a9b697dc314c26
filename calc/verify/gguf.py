"""The header of a GGUF file: its metadata and its tensor table.

Source: github.com/ggml-org/ggml, docs/gguf.md; sizes of the types from ggml.h and gguf-py's GGML_QUANT_SIZES.
"""

import struct
from math import prod
from typing import Any

from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats.ggml import TYPES
from calc.verify.checkpoint import Checkpoint, StoredTensor

MAX_TENSORS = 32_768  # experts are stacked, so that the largest models have some 2,000
MAX_ENTRIES = 10_000  # some 50
MAX_ARRAY = 1_000_000  # vocabularies have up to 262,144 words, and twice as many merges
MAX_TEXT = 1_000_000
MAX_ARRAY_LENGTH = 4096  # numbers of an array: one for each layer


SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Value types of the metadata -> struct format; 8 is text and 9 an array."""


class GGUF(Frozen):
    """Arrays of the metadata, such as the vocabulary, are kept as their length only, unless they hold few numbers."""

    metadata: dict[str, Any]
    checkpoint: Checkpoint


class Short(ConfigError):
    """The bytes end before the header does."""


def read_gguf(data: bytes) -> GGUF:
    """The header, from the beginning of a file. Raises Short when more bytes are needed, else ConfigError."""
    if data[:4] != b"GGUF":
        raise ConfigError(Message("This is no GGUF file: one begins with the letters GGUF."))
    cursor = _Cursor(data)
    version = cursor.number("I")
    if version not in (2, 3):
        raise ConfigError(
            Message("This is GGUF version {version}; versions 2 and 3 are the ones we read.", version=version)
        )
    tensors, entries = cursor.number("Q"), cursor.number("Q")
    if tensors > MAX_TENSORS or entries > MAX_ENTRIES:
        sentence = "The GGUF header announces {tensors:,} tensors and {entries:,} entries: it is damaged."
        raise ConfigError(Message(sentence, tensors=tensors, entries=entries))
    metadata = {}
    for _ in range(entries):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("I"))
    return GGUF(metadata=metadata, checkpoint=Checkpoint(tensors=dict(cursor.tensor() for _ in range(tensors))))


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 4

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise Short(
                Message("The GGUF header goes on after the {length:,} bytes that are here.", length=len(self.data))
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def text(self) -> str:
        size = self.number("Q")
        if size > MAX_TEXT:
            raise ConfigError(Message("The GGUF header holds a text of {size:,} bytes: it is damaged.", size=size))
        return self.take(size).decode(errors="replace")

    def skip_texts(self, count: int) -> int:
        """Number of texts; a vocabulary is too long to read each with `text`."""
        data, at, size_of = self.data, self.at, struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                at += 8 + size_of(data, at)[0]
        except struct.error:  # beyond the end
            at = len(data) + 1
        self.take(at - self.at)
        return count

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == 8:
            return self.text()
        if kind != 9:
            raise ConfigError(
                Message("The GGUF header has a value of type {kind}, which the format does not know.", kind=kind)
            )
        inner, length = self.number("I"), self.number("Q")
        if length > MAX_ARRAY:
            raise ConfigError(
                Message("The GGUF header holds an array of {length:,} values: it is damaged.", length=length)
            )
        if inner == 8:
            return self.skip_texts(length)
        if inner not in SCALARS:
            raise ConfigError(Message("The GGUF header has an array of type {inner}, which is not read.", inner=inner))
        numbers = self.take(length * struct.calcsize("<" + SCALARS[inner]))
        return list(struct.unpack(f"<{length}{SCALARS[inner]}", numbers)) if length <= MAX_ARRAY_LENGTH else length

    def tensor(self) -> tuple[str, StoredTensor]:
        name, dims = self.text(), self.number("I")
        if dims > 4:
            raise ConfigError(Message("{name} has {dims} dimensions; GGUF allows four.", name=shown(name), dims=dims))
        shape = tuple(reversed([self.number("Q") for _ in range(dims)]))  # ggml counts from the innermost
        kind = self.number("I")
        self.number("Q")  # offset of its data
        if kind not in TYPES:
            raise ConfigError(
                Message("{name} is of the GGML type {kind}, which is not known.", name=shown(name), kind=kind)
            )
        size_of = TYPES[kind]
        if prod(shape) % size_of.block:
            sentence = "{name} has {weights:,} weights, no whole number of {format} blocks."
            raise ConfigError(Message(sentence, name=shown(name), weights=prod(shape), format=size_of.name))
        return name, StoredTensor(size_of.name, shape, prod(shape) // size_of.block * size_of.bytes)
