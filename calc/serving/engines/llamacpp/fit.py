"""Offload to the GPUs of a machine and its host, as llama.cpp's `--fit` decides it.

If all layers fit, they go there; else experts stay on the host, of as few layers as will do, the first ones first
(`--n-cpu-moe`); else whole layers do (`--n-gpu-layers`), the first ones first. Several GPUs are filled to the same
share of what is free on each. Source: common/fit.cpp of llama.cpp 0c1e57098, whose dry runs are the plans here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from calc.formats import Precision
from calc.formats.gguf_file import layers_of
from calc.hardware.solver import largest, least
from calc.model.architecture import Architecture
from calc.serving.engines.llamacpp.context import PADDING, cache_tensors
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.placement import EXPERTS
from calc.serving.engines.llamacpp.slots import SlotCache, set_up

SHARES = 4096
"""Parts of a GPU in which its share is counted: finer than a layer of any model."""


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


class Offloading:
    """A model that is to be started on a machine for some sequences."""

    def __init__(
        self,
        architecture: Architecture,
        precision: Precision,
        options: LlamaCppOptions,
        room: MachineRoom,
        batch: int = 1,
        draft: Architecture | None = None,
    ) -> None:
        whole = layers_of(architecture, predicts=options.predicts) + 1
        # a number takes the place of one that is stated
        every = whole if isinstance(options.n_gpu_layers, int) else None
        free = {"n_gpu_layers": every, "n_cpu_moe": 0, "cpu_moe": False, "tensor_split": None, "override_tensor": None}
        self.model, self.precision, self.room, self.batch, self.draft = architecture, precision, room, batch, draft
        self.options = options.model_copy(update=free if room.gpus else free | {"device": "none"})
        self.unsplit = self.started(self.options)
        """With flags that put nothing on the host."""
        self.layers = len(self.unsplit.model.file.layers)

    def started(self, options: LlamaCppOptions) -> SlotCache:
        return set_up(self.model, self.precision, options, len(self.room.gpus), self.draft)

    def has_room(self, options: LlamaCppOptions, length: int) -> bool:
        """Whether everything has, each buffer where it lies; what needs no graph is asked first."""
        cache = self.started(options)
        return all(self.room.holds(cache.totals(self.batch, length, passes=passes)) for passes in (False, True))

    def fit(self, length: int) -> LlamaCppOptions | None:
        """Flags that put least on the host for sequences of so many tokens: experts of ever more layers, then ever more
        whole layers; None: even the host has no room for the rest."""
        whole, rooms = self.layers + 1, self.rooms(length)
        counts = [(whole, n) for n in range(whole if self.model.experts else 1)]
        counts += [(n, counts[-1][1]) for n in range(self.layers, 0, -1)]
        first = least(lambda i: filled(self.ends(*counts[i], length), rooms) is not None, len(counts) - 1, 0)
        for count, experts in counts[first:] if self.room.gpus and first is not None else ():
            options = self.offloaded(count, experts, length, rooms)
            *_, on_host = self.started(options).totals(self.batch, length, passes=False)
            if self.room.host is not None and on_host > self.room.host:
                break
            if self.has_room(options, length):
                return options
        nothing = self.options.model_copy(update={"n_gpu_layers": 0} if self.room.gpus else {})
        return nothing if self.has_room(nothing, length) else None

    def offloaded(self, count: int, experts: int, length: int, rooms: Sequence[int]) -> LlamaCppOptions:
        """Flags for the last so many layers on GPUs, the output among them, each GPU filled to the same share of its
        room as far as layers go, with the experts of the first of all layers on the host; those that put nothing there
        where these have no room."""
        ends = self.ends(count, experts, length)
        share = least(lambda n: filled(ends, rooms, n / SHARES) is not None, SHARES)
        split = None if share is None else filled(ends, rooms, share / SHARES)
        if split is None:
            return self.options
        return self.options.model_copy(
            update={
                "n_gpu_layers": self.options.n_gpu_layers if count > self.layers else count,
                "n_cpu_moe": experts,
                "tensor_split": ",".join(map(str, split)) if len(split) > 1 else None,
            }
        )

    def rooms(self, length: int) -> list[int]:
        """Bytes of each GPU for weights and cache of layers."""
        rooms = list(self.room.gpus)
        for i, buffer in enumerate(self.unsplit.draft_buffers(self.batch, length)[:-1]):
            rooms[i] -= buffer.total
        if len(rooms) > 1:  # of the pass, as much as on the GPU where it takes most if all layers are on GPUs
            *on_gpus, _ = self.unsplit.buffers(self.batch, length)
            rooms = [room - max(buffer.compute for buffer in on_gpus) for room in rooms]
        return rooms

    def ends(self, count: int, experts: int, length: int) -> list[int]:
        """Bytes of the last layers, of which the output is one, up to each, as the file and the cache have them."""
        first, sizes = self.layers + 1 - count, self.layer_sizes(length)
        each = (rest + (routed if i >= experts else 0) for i, (rest, routed) in enumerate(sizes[first:], first))
        return [*accumulate(each, initial=0)]

    def layer_sizes(self, length: int) -> list[tuple[int, int]]:
        """Bytes of weights without routed experts and of cache, and of these experts, by layer, the output last."""
        placed = self.unsplit.contexts(self.batch, length)[0]
        file, sizes = placed.model.file, placed.sizes

        def sized() -> list[tuple[int, int]]:
            total = sum(placed.model.weights[i] for i in range(len(self.room.gpus)))
            weights = [[(EXPERTS.match(name), weight.nbytes) for name, weight in x.items()] for x in file.layers]
            routed = [sum(nbytes for is_routed, nbytes in layer if is_routed) for layer in weights]
            rest = [sum(nbytes for is_routed, nbytes in layer if not is_routed) for layer in weights]
            rest.append(total - sum(routed) - sum(rest))
            for block in self.model.all_blocks if sizes.offload_cache else ():
                tensors = [x for mixer in block.mixers for x in cache_tensors(self.model, mixer, sizes)]
                nbytes = sum(tensor.nbytes(sizes) for tensor in tensors)
                for layer in block.runs_in:
                    rest[layer] += nbytes
            return list(zip(rest, [*routed, 0], strict=True))

        return file.once(("layers", placed.model.placement, placed.model.cuda, sizes), sized)

    def longest(self, options: LlamaCppOptions, most: int, near: int = PADDING) -> int:
        """Tokens of the longest sequences that the machine holds with these flags, in whole blocks of 256; looked for
        from `near` on."""
        blocks = -(-most // PADDING)
        return PADDING * largest(lambda n: self.has_room(options, PADDING * n), blocks, max(1, near // PADDING))


def filled(ends: Sequence[int], rooms: Sequence[int], share: float = 1) -> list[int] | None:
    """Numbers of layers, one after the other, of each GPU that may be filled to a share; None: some are left over."""
    starts = [0]
    for room in rooms:
        starts.append(max(starts[-1], bisect_right(ends, ends[starts[-1]] + share * room) - 1))
    counts = [stop - start for start, stop in pairwise(starts)]
    return counts if sum(counts) + 1 == len(ends) else None
