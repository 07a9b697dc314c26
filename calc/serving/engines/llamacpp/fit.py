"""What goes on the GPUs of a machine and what stays on the host, as llama.cpp's `--fit` decides it.

If all layers fit, they go there; else experts stay on the host, of as few layers as will do, the first ones first
(`--n-cpu-moe`); else whole layers do (`--n-gpu-layers`), the first ones first. Several GPUs are filled to the same
share of what is free on each. Source: common/fit.cpp of llama.cpp 0c1e57098, whose dry runs are the plans here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.solver import largest, least
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE
from calc.serving.engines.device_buffers import DeviceBuffers
from calc.serving.engines.llamacpp.context import PADDING, block_cache
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.placement import EXPERTS, layers_of
from calc.serving.engines.llamacpp.slots import SlotCache, set_up

STEPS = 12
"""Halvings of the share to which GPUs are filled: finer than a layer of any model."""


@dataclass(frozen=True)
class MachineRoom:
    """Bytes for buffers on each GPU, and on the host; `whole` is what both have together where they share memory."""

    gpus: tuple[int, ...]
    host: int | None = None  # None: not asked
    whole: int | None = None

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether buffers of these sizes, on each GPU and on the host, have room."""
        *on_gpus, on_host = sizes
        return (
            all(size <= room for size, room in zip(on_gpus, self.gpus, strict=True))
            and (self.host is None or on_host <= self.host)
            and (self.whole is None or sum(sizes) <= self.whole)
        )


@dataclass(frozen=True)
class Fitted:
    """A way to start with which everything has room."""

    options: LlamaCppOptions
    buffers: tuple[DeviceBuffers, ...]
    draft_buffers: tuple[DeviceBuffers, ...] = ()


class Offloading:
    """A model that is to be started on a machine for some sequences."""

    def __init__(
        self,
        architecture: Architecture,
        precision: Precision,
        options: LlamaCppOptions,
        gpu: GPU | None,
        room: MachineRoom,
        batch: int = 1,
        draft: Architecture | None = None,
    ) -> None:
        """`gpu` is the first of them (None: there is none), `draft` the draft model."""
        free = {"n_gpu_layers": None, "n_cpu_moe": 0, "cpu_moe": False, "tensor_split": None, "override_tensor": None}
        self.model, self.precision, self.gpu, self.room, self.batch = architecture, precision, gpu, room, batch
        self.draft = draft
        self.options = options.model_copy(update=free if room.gpus else free | {"device": "none"})
        self.layers = layers_of(architecture, predicts=self.options.predicts)

    def started(self, options: LlamaCppOptions) -> SlotCache:
        return set_up(self.model, self.precision, options, len(self.room.gpus), self.gpu, self.draft)

    @cached_property
    def unsplit(self) -> SlotCache:
        """With flags that put nothing on the host."""
        return self.started(self.options)

    def has_room(self, options: LlamaCppOptions | None, length: int) -> bool:
        """Whether everything has, each buffer where it lies; weights and cache are looked at first."""
        if options is None:
            return False
        cache = self.started(options)
        fixed = cache.fixed_bytes(self.batch, length)
        return self.room.holds(fixed) and self.room.holds(
            [size + compute for size, compute in zip(fixed, cache.compute_bytes(self.batch, length), strict=True)]
        )

    def guessing(self, length: int) -> list[int]:
        """Bytes on each GPU of what guesses tokens."""
        on_gpus = self.unsplit.draft_buffers(self.batch, length)[:-1]
        return [buffer.total for buffer in on_gpus] or [0] * len(self.room.gpus)

    def fit(self, length: int) -> Fitted | None:
        """The most on the GPUs for sequences of so many tokens; None where even the host has no room for the rest."""
        options = self.most_on_gpus(length)
        if options is None:
            return None
        cache = self.started(options)
        return Fitted(options, tuple(cache.buffers(self.batch, length)), tuple(cache.draft_buffers(self.batch, length)))

    def most_on_gpus(self, length: int) -> LlamaCppOptions | None:
        if not self.room.gpus:
            return self.options if self.has_room(self.options, length) else None
        whole = self.layers + 1
        if self.has_room(everything := self.offloaded(whole, 0, length), length):
            return everything
        routed = any(isinstance(block.ffn, MoE) for block in self.model.all_blocks)
        roughly = least(lambda n: self.split(whole, n, length) is not None, self.layers) if routed else None
        if roughly is not None:
            layout = self.first_with_room((self.offloaded(whole, n, length) for n in range(roughly, whole)), length)
            if layout is not None:
                return layout
        experts = self.layers if routed else 0
        roughly = largest(lambda n: self.split(n, experts, length) is not None, whole)
        counts = (self.offloaded(n, experts, length) for n in range(roughly, 0, -1))
        layout = self.first_with_room(counts, length)
        nothing = self.options.model_copy(update={"n_gpu_layers": 0})
        return nothing if layout is None and self.has_room(nothing, length) else layout

    def first_with_room(self, tried: Iterable[LlamaCppOptions | None], length: int) -> LlamaCppOptions | None:
        """The first flags, of some that put ever more on the host, with which everything has room."""
        for options in tried:
            if options is None:
                continue
            if self.has_room(options, length):
                return options
            *_, on_host = self.started(options).fixed_bytes(self.batch, length)
            if self.room.host is not None and on_host > self.room.host:
                return None
        return None

    def offloaded(self, count: int, experts: int, length: int) -> LlamaCppOptions | None:
        """Flags for the last so many layers on GPUs, the output among them, with the experts of the first of all layers
        on the host; None where they have no room."""
        split = self.split(count, experts, length)
        if split is None:
            return None
        return self.options.model_copy(
            update={
                "n_gpu_layers": None if count > self.layers else count,
                "n_cpu_moe": experts,
                "tensor_split": ",".join(map(str, split)) if len(split) > 1 else None,
            }
        )

    def split(self, count: int, experts: int, length: int) -> list[int] | None:
        """Layers of each GPU, each filled to the same share of its room as far as layers go; None: there is none."""
        sizes = self.sizes(experts, length)[self.layers + 1 - count :]
        rooms = [room - taken for room, taken in zip(self.room.gpus, self.guessing(length), strict=True)]
        if len(rooms) == 1:
            return [count] if sum(sizes) <= rooms[0] else None
        rooms = [room - self.computed(length) for room in rooms]
        ends, low, high = [0, *accumulate(sizes)], 0.0, 1.0
        within_rooms = filled(ends, rooms, high)
        if within_rooms is None:
            return None
        for _ in range(STEPS):
            share = (low + high) / 2
            closer = filled(ends, rooms, share)
            low, high, within_rooms = (share, high, within_rooms) if closer is None else (low, share, closer)
        return within_rooms

    def computed(self, length: int) -> int:
        """Bytes of the largest pass on the GPU where it takes most, if all layers are on GPUs."""
        *on_gpus, _ = self.unsplit.model.compute(self.unsplit.context(self.batch, length))
        return max(buffer.size for buffer in on_gpus)

    def sizes(self, experts: int, length: int) -> list[int]:
        """Bytes of weights and cache of each layer on a GPU, and of the output, as the file and the cache have them."""
        cache, weights = self.cache_sizes(length), self.weight_sizes
        return [
            (weights[i][0] if i < experts else sum(weights[i])) + (cache[i] if i < self.layers else 0)
            for i in range(self.layers + 1)
        ]

    @cached_property
    def weight_sizes(self) -> list[tuple[int, int]]:
        """Bytes of weights without routed experts, and of these, by layer, the output last."""
        whole, rows = self.unsplit.model, []
        for weights in whole.file.layers:
            routed = sum(weight.nbytes for name, weight in weights.items() if EXPERTS.match(name))
            rows.append((sum(weight.nbytes for weight in weights.values()) - routed, routed))
        total = sum(whole.weights[i] for i in range(whole.machine.count))
        return [*rows, (total - sum(map(sum, rows)), 0)]

    def cache_sizes(self, length: int) -> list[int]:
        """Bytes of the cache on a GPU, by layer."""
        context, sizes = self.unsplit.context(self.batch, length), [0] * self.layers
        if not context.offload_cache:
            return sizes
        for block in self.model.all_blocks:
            nbytes = sum(tensor.nbytes for tensor in block_cache(self.model, block, context))
            for layer in block.runs_in:
                sizes[layer] += nbytes
        return sizes

    def longest(self, options: LlamaCppOptions, most: int, near: int = PADDING) -> int:
        """Tokens of the longest sequences that the machine holds with these flags, in whole blocks of 256; looked for
        from `near` on."""
        blocks = -(-most // PADDING)
        return PADDING * largest(lambda n: self.has_room(options, PADDING * n), blocks, max(1, near // PADDING))


def filled(ends: Sequence[int], rooms: Sequence[int], share: float) -> list[int] | None:
    """How many layers, one after the other, each GPU takes that may be filled to a share; None: some are left over."""
    counts, at = [], 0
    for room in rooms:
        start = at
        while at + 1 < len(ends) and ends[at + 1] - ends[start] <= share * room:
            at += 1
        counts.append(at - start)
    return counts if at + 1 == len(ends) else None
