"""The tensors of one micro-batch in the order in which they are made, and the peak on each device.

A tensor is alive from the step that makes it to the last one that reads it, and lies in the smallest gap that holds it
(ggml-alloc.c); what a device reads of another is copied there before a run of its steps (ggml-backend.cpp).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

ALIGNMENT = 128
ENDLESS = 2**62


@dataclass(eq=False, slots=True)
class PassTensor:
    """Bytes on a device; `fixed` ones lie in a buffer of their own, weights and the cache."""

    name: str
    nbytes: int
    device: int | None = None
    fixed: bool = False
    weight: bool = False
    stays: bool = False  # until the end of the pass
    scratch: int = 0  # bytes behind it that the kernel writes
    whole: "PassTensor | None" = None  # of which it is a view
    readers: int = 0
    offset: int = -1

    @property
    def holder(self) -> "PassTensor":
        return self.whole or self

    @property
    def allocated(self) -> int:
        return -(-(self.nbytes + self.scratch) // ALIGNMENT) * ALIGNMENT


@dataclass(slots=True)
class PassStep:
    """One operation; without `makes` it writes into what is there."""

    device: int | None  # None: where its neighbours are
    makes: PassTensor | None
    reads: Sequence[PassTensor]
    over: Sequence[PassTensor] = ()  # sources that the result may be written over


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of one device: its size, and by name what is alive when it is largest."""

    size: int
    peak: Mapping[str, int]


class DeviceMemory:
    """The buffer of one device while tensors are placed in it."""

    def __init__(self) -> None:
        self.gaps = [[0, ENDLESS]]  # offset and size of each
        self.size = 0
        self.alive: dict[int, PassTensor] = {}
        self.peak: list[PassTensor] = []

    def place(self, tensor: PassTensor, over: Sequence[PassTensor] = ()) -> None:
        """Into the smallest gap, or over a source of its size that nothing else reads."""
        size = tensor.allocated
        for source in over:
            alike = source.nbytes + source.scratch == tensor.nbytes and source.device == tensor.device
            if alike and source.readers == 1 and not (source.fixed or source.stays or source.whole):
                tensor.offset, source.fixed = source.offset, True
                del self.alive[id(source)]
                self.alive[id(tensor)] = tensor
                return
        best = self.gaps[-1]
        for gap in self.gaps[:-1]:
            if size <= gap[1] <= best[1]:
                best = gap
        tensor.offset = best[0]
        best[0] += size
        best[1] -= size
        if not best[1]:
            self.gaps.remove(best)
        self.alive[id(tensor)] = tensor
        if tensor.offset + size > self.size:
            self.size, self.peak = tensor.offset + size, list(self.alive.values())

    def free(self, tensor: PassTensor) -> None:
        del self.alive[id(tensor)]
        size, at = tensor.allocated, bisect_right(self.gaps, [tensor.offset])
        if tensor.offset + size == self.gaps[at][0]:
            size += self.gaps.pop(at)[1]
        if at and sum(self.gaps[at - 1]) == tensor.offset:
            self.gaps[at - 1][1] += size
        else:
            self.gaps.insert(at, [tensor.offset, size])

    def buffer(self) -> Buffer:
        sizes: Counter[str] = Counter()
        for tensor in self.peak:
            sizes[tensor.name] += tensor.nbytes
        return Buffer(self.size, MappingProxyType(sizes))


def buffers(steps: Sequence[PassStep], inputs: Sequence[PassTensor], devices: int, copies: int) -> tuple[Buffer, ...]:
    """The buffer of every device, the host's last. Where devices work on successive batches, there are several `copies`
    of what each is given."""
    settle(steps, devices)
    memory = [DeviceMemory() for _ in range(devices + 1)]
    for tensor in inputs:
        tensor.stays = copies > 1
        for copy in (tensor, *duplicates(tensor, devices, copies - 1)):
            memory[devices].place(copy)
    there: dict[tuple[int, int], PassTensor] = {}
    ordered: list[PassStep] = []
    for copied, run in runs(steps):
        device = run[0].device or 0
        for source in copied:
            first, *others = duplicates(source, device, copies)
            there[id(source), device] = first
            ordered += [PassStep(source.holder.device, None, (source.holder,)), PassStep(device, first, ())]
            for copy in (first, *others) if copies > 1 else ():
                memory[device].place(copy)
        for step in run:
            over = [there.get((id(source), device), source) for source in step.over]
            reads = [there.get((id(source), device), source.holder) for source in step.reads]
            ordered.append(PassStep(device, step.makes, reads, over))
    for step in ordered:
        for source in step.reads:
            source.readers += 1
    for step in ordered:
        if step.makes is not None and step.makes.offset < 0:
            memory[step.device or 0].place(step.makes, step.over)
        for source in step.reads:
            source.readers -= 1
            if not (source.readers or source.fixed or source.stays):
                memory[source.device or 0].free(source)
    return tuple(pool.buffer() for pool in memory)


def duplicates(tensor: PassTensor, device: int, count: int) -> list[PassTensor]:
    """Copies on a device, which stay where there are several."""
    return [PassTensor(tensor.name, tensor.nbytes, device, weight=tensor.weight, stays=count > 1) for _ in range(count)]


def settle(steps: Sequence[PassStep], host: int) -> None:
    """Give each step that no weight binds to a device that of its neighbours, of GPUs before the host."""
    for skipped in (host, None):
        for order in (steps, steps[::-1]):
            current = None
            for step in order:
                if step.device is None:
                    step.device = current
                else:
                    current = None if step.device == skipped else step.device
    for step in steps:
        if step.makes is not None:
            step.makes.device = step.device


def runs(steps: Sequence[PassStep]) -> Iterator[tuple[list[PassTensor], list[PassStep]]]:
    """Steps that follow one another on a device, after what is copied there before them; weights that are copied for
    one run make room for those of the next."""
    copied, run = list[PassTensor](), list[PassStep]()
    known = set[tuple[int, int | None]]()
    for step in steps:
        foreign = [source for source in step.reads if source.holder.device != step.device]
        if run and (run[0].device != step.device or (copied and any(source.weight for source in foreign))):
            yield copied, run
            copied, run = [], []
        for source in foreign:
            if (id(source), step.device) not in known:
                known.add((id(source), step.device))
                copied.append(source)
        run.append(step)
    yield copied, run
