"""Sizes of a context under llama.cpp's flags, and the tensors of its cache.

Source: llama-context.cpp (llama_context::llama_context), llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
llama-memory-recurrent.cpp, llama-hparams.cpp (n_embd_r, n_embd_s); llama.cpp 0c1e57098.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from calc.formats.gguf_file import BLOCKS
from calc.model.architecture import Architecture
from calc.model.mixers import Mixer
from calc.serving.engines.families import families
from calc.serving.engines.llamacpp.options import CacheType, LlamaCppOptions
from calc.serving.engines.loading import round_up

PADDING = 256
"""Cells come in multiples of it."""
TAKEN_OVER = 32
"""Rows from which a GPU computes what has its weights on the host (ggml-cuda.cu: offload_op)."""
PASS, TOKEN, OUTPUT, SEQUENCE, CELL, TOKEN_AND_CELL = range(6)
"""Rows of a tensor: one, or as many as tokens, outputs, sequences, cells of all streams, or pairs of token and cell."""


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """A context that is set up: sizes as llama.cpp rounds them."""

    cells: int  # of one stream, in layers that keep everything
    streams: int  # caches of their own: one for each sequence, or one for all
    sequences: int
    ubatch: int  # tokens that a pass may hold
    tokens: int  # of the largest pass: as many of each sequence
    outputs: int  # rows of logits that it makes
    type_k: str
    type_v: str
    flash: bool
    transposed: bool
    """Whether the cache holds values transposed: without flash attention, unless it was found out too late that a
    device lacks it."""
    offload_cache: bool
    whole_windows: bool
    rollback: int
    """Tokens by which recurrent states can go back: each is kept as it was after every one of them (`n_rs_seq`)."""

    @classmethod
    def of(
        cls,
        options: LlamaCppOptions,
        size: int,
        sequences: int,
        outputs: int | None,
        types: tuple[CacheType, CacheType],
        rollback: int = 0,
    ) -> "ContextSizes":
        """A context of so many tokens under some flags; `outputs`: rows of logits, None for one of every token."""
        streams, whole = 1 if options.kv_unified else sequences, round_up(size, PADDING)
        cells = round_up(whole // streams, PADDING)
        batch = min(size, options.batch_size)
        ubatch = min(batch, options.ubatch_size)
        largest = min(cells * streams, ubatch)
        flash = options.flash_attn != "off"
        return cls(
            cells=cells,
            streams=streams,
            sequences=sequences,
            ubatch=ubatch,
            tokens=round_up(largest, sequences),
            outputs=max(min(largest, batch if outputs is None else outputs), sequences),
            type_k=types[0],
            type_v=types[1],
            flash=flash,
            transposed=not flash,
            offload_cache=options.kv_offload,
            whole_windows=options.swa_full,
            rollback=rollback,
        )

    @property
    def structure(self) -> "ContextSizes":
        """A context that stands for all whose passes have the same steps, whatever their sizes."""
        tokens, outputs = (TAKEN_OVER * (rows >= TAKEN_OVER) for rows in (self.tokens, self.outputs))
        return replace(self, cells=0, streams=1, sequences=1, ubatch=0, tokens=tokens, outputs=outputs)

    def cells_of(self, window: int | None) -> int:
        """Cells of one stream in a layer: those that a window passes over are used again."""
        if window is None or self.whole_windows:
            return self.cells
        live = window * (self.sequences if self.streams == 1 else 1) + self.ubatch
        return round_up(min(self.cells, live), PADDING)

    def count(self, per: int, window: int | None = None) -> int:
        """Rows of a tensor of a layer with such a window."""
        cells = self.cells_of(window)
        return (1, self.tokens, self.outputs, self.sequences, cells * self.streams, self.tokens * cells)[per]


class CacheTensor(NamedTuple):
    """One tensor of the cache of a layer: rows of a type."""

    type: str
    width: int
    per: int
    window: int | None = None  # of the layer
    copies: int = 1

    @property
    def each(self) -> int:
        """Bytes of a row."""
        block, size = BLOCKS[self.type]
        return self.copies * self.width // block * size

    def nbytes(self, context: ContextSizes) -> int:
        return self.each * context.count(self.per, self.window)


def window_of(mixer: Mixer, model: Architecture) -> int | None:
    """Tokens of the context that a layer keeps; None: all."""
    return mixer.window if model.model_type in families("llamacpp", "windowed") else None


def cache_tensors(model: Architecture, mixer: Mixer, context: ContextSizes) -> Iterator[CacheTensor]:
    """Tensors of a layer's cache: of the tokens, and of each sequence."""
    widths = list(mixer.cached_vectors())
    if context.transposed and len(widths) > 1:
        widths[1] = max(widths[1], widest_value(model))
    for width, kind in zip(widths, (context.type_k, context.type_v), strict=False):
        yield CacheTensor(kind, width, CELL, window_of(mixer, model))
    for width in filter(None, mixer.state_widths()):
        yield CacheTensor("f32", width, SEQUENCE, copies=1 + context.rollback)


def widest_value(model: Architecture) -> int:
    """Width of the values of the widest layer: without flash attention every layer has its width."""
    mixers = [mixer for block in model.all_blocks for mixer in block.mixers]
    return max((width for mixer in mixers for width in mixer.cached_vectors()[1:]), default=0)
