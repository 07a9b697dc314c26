"""A micro-batch as llama.cpp's graph has it, and the buffer that its tensors take on each device.

Sizes are those of fp32, which llama.cpp computes in (llama-graph.cpp of llama.cpp 0c1e57098). A tensor is alive from
the step that makes it to the last one that reads it, and lies in the smallest gap that holds it (ggml-alloc.c); what a
device reads of another is copied there before a run of its steps (ggml-backend.cpp).
"""

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain, islice
from math import inf
from types import MappingProxyType

from calc.errors import ConfigError, Message
from calc.formats.gguf_file import ModelFile
from calc.serving.engines.llamacpp.context import ContextSizes
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.loading import up_to

CUDA_ALIGNMENT, HOST_ALIGNMENT = 128, 32
"""Bytes to which tensors are aligned."""
TAKEN_OVER = 32
"""Rows from which a GPU computes what has its weights on the host (ggml-cuda.cu: offload_op)."""
SizeOf = Callable[[ContextSizes], int]
"""Bytes in a context."""


class Per(IntEnum):
    """Rows of which a tensor has as many as the pass, or as the context."""

    PASS = 0  # one
    TOKEN = 1
    OUTPUT = 2
    SEQUENCE = 3


def structure(context: ContextSizes) -> ContextSizes:
    """A context that stands for all whose passes have the same steps, whatever their sizes."""
    tokens, outputs = (TAKEN_OVER * (rows >= TAKEN_OVER) for rows in (context.tokens, context.outputs))
    return replace(context, cells=0, streams=1, sequences=1, ubatch=0, tokens=tokens, outputs=outputs)


@dataclass(eq=False, slots=True)
class PassTensor:
    """Rows on a device, and what they are made of. `fixed` ones lie in a buffer of their own, weights and the cache;
    what is written there is a tensor without bytes."""

    name: str
    each: int  # bytes of a row
    per: Per
    reads: Sequence["PassTensor"] = ()
    over: bool = False  # it may be written over a source of its size
    device: int | None = None  # None: where its neighbours are
    fixed: bool = False
    weight: bool = False
    stays: bool = False  # until the end of the pass
    of_context: SizeOf | None = None  # bytes, where they are no such rows
    scratch: SizeOf | None = None  # bytes behind it that the kernel writes
    whole: "PassTensor | None" = None  # of which it is a view
    in_graph: bool = False
    number: int = -1  # among those that are placed

    @property
    def holder(self) -> "PassTensor":
        return self.whole or self

    def copied(self, device: int, copies: int) -> "PassTensor":
        """Copies of it on a device, which stay there where there are several."""
        copy = PassTensor(self.name, self.each, self.per, (self.holder,), False, device, weight=self.weight)
        copy.stays, copy.of_context = copies > 1, self.of_context
        return copy


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of one device: its size, and by name what is alive when it is largest."""

    size: int
    peak: Mapping[str, int]


class MicroBatch:
    """The steps so far, in the order of llama.cpp's graph: it has what a tensor is made of before it, and no tensor
    before something needs it."""

    def __init__(self, file: ModelFile, placement: Placement, context: ContextSizes, *, cuda: bool) -> None:
        self.file, self.placement, self.context = file, placement, context
        self.model = file.architecture
        rules = self.model.gguf
        self.kind = (rules.with_experts if self.model.experts else None) or rules.architecture or "llama"
        self.blocks = {layer: block for block in self.model.all_blocks for layer in block.runs_in}
        self.deep = 0 if self.model.vision is None else self.model.vision.deepstack  # layers with features to add
        self.on_cuda = cuda and placement.devices > 0
        self.layer, self.per = 0, Per.TOKEN
        self.steps: list[PassTensor] = []
        self.inputs: dict[tuple[str, bool], PassTensor] = {}

    @property
    def cache_device(self) -> int:
        return self.placement.layers[self.layer] if self.context.offload_cache else HOST

    @property
    def rows(self) -> int:
        return self.context.tokens if self.per is Per.TOKEN else self.context.outputs

    def has(self, name: str) -> bool:
        return name in self.file.layers[self.layer]

    def width(self, name: str) -> int:
        """Rows of a matrix of this layer. Raises ConfigError where the file has none of that name."""
        if not self.has(name):
            sentence = Message("llama.cpp reads {name}, which a file of this model does not have.", name=name)
            raise ConfigError(sentence, "engine")
        return self.file.layers[self.layer][name].ne[-1]

    def device_of(self, name: str) -> int:
        """Device of a weight of this layer, or of one outside. Raises ConfigError where the file has neither."""
        if name in self.file.outside:
            return HOST if name == "token_embd_norm.weight" else self.placement.output
        self.width(name)
        return self.placement.of_weight(name, self.layer)

    def weight(self, name: str) -> PassTensor:
        """A weight of this layer, or one outside the layers."""
        device, stored = self.device_of(name), self.file.outside.get(name) or self.file.layers[self.layer][name]
        return PassTensor(name, stored.nbytes, Per.PASS, device=device, fixed=True, weight=True, in_graph=True)

    def input(
        self,
        name: str,
        each: int = 0,
        per: Per = Per.TOKEN,
        *,
        of_context: SizeOf | None = None,
        windowed: bool = False,
    ) -> PassTensor:
        """A tensor that the host writes before the pass, once for all layers: for those with a window once more."""
        made = PassTensor(name, each, per, device=HOST, in_graph=True, of_context=of_context)
        return self.inputs.setdefault((name, windowed), made)

    def cached(self, name: str, each: int = 0, per: Per = Per.PASS, *, of_context: SizeOf | None = None) -> PassTensor:
        """A tensor of this layer's cache."""
        where = self.cache_device
        return PassTensor(name, each, per, device=where, fixed=True, in_graph=True, of_context=of_context)

    def add(
        self,
        name: str,
        width: int,
        *reads: PassTensor,
        by: str | None = None,
        over: bool = False,
        on: int | None = None,
    ) -> PassTensor:
        """So many elements of each row, which may be written `over` a source. What is made `by` a weight is made
        where that lies; a large operation is the first GPU's even if that is on the host."""
        if by is not None:
            on = self.device_of(by)
            if self.on_cuda and on == HOST and self.rows >= TAKEN_OVER:  # else it is read where it lies
                on, weight = 0, self.weight(by)
                reads = (*reads, weight) if over else (weight, *reads)
        return PassTensor(name, 4 * width, self.per, reads, over, on)

    def by_context(self, name: str, nbytes: SizeOf, *reads: PassTensor, on: int | None = None) -> PassTensor:
        """A step whose bytes are no rows of the pass."""
        return PassTensor(name, 0, Per.PASS, reads, False, on, of_context=nbytes)

    def same(
        self, name: str, *reads: PassTensor, by: str | None = None, over: bool = True, on: int | None = None
    ) -> PassTensor:
        """As many elements as the first source has."""
        made = self.add(name, 0, *reads, by=by, over=over, on=on)
        made.each, made.per, made.of_context = reads[0].each, reads[0].per, reads[0].of_context
        return made

    def expand(self, *tensors: PassTensor) -> None:
        """Put tensors into the graph, behind what they are made of (ggml_build_forward_expand)."""
        for tensor in tensors:
            if not tensor.in_graph:
                tensor.in_graph = True
                for read in tensor.reads:
                    if not read.in_graph:
                        self.expand(read)
                if tensor.whole is None:
                    self.steps.append(tensor)

    def write(self, on: int | None, *reads: PassTensor) -> None:
        """Into what is there already."""
        self.expand(PassTensor("", 0, Per.PASS, reads, device=on, fixed=True))

    def view(self, x: PassTensor, width: int | None = None) -> PassTensor:
        """A part of a tensor, or all of it in another shape, which nothing is written over."""
        if width is not None:
            return PassTensor(x.name, 4 * width, self.per, (x.holder,), whole=x.holder)
        return PassTensor(x.name, x.each, x.per, (x.holder,), whole=x.holder, of_context=x.of_context)

    def project(self, x: PassTensor, weight: str, name: str) -> PassTensor:
        """Through a matrix of this layer, with its bias."""
        made = self.add(name, self.width(f"{weight}.weight"), x, by=f"{weight}.weight")
        return self.biased(made, weight)

    def biased(self, x: PassTensor, weight: str) -> PassTensor:
        return self.same(x.name, x, by=f"{weight}.bias") if self.has(f"{weight}.bias") else x

    def norm(self, x: PassTensor, weight: str) -> PassTensor:
        made = self.same("norm", x)
        weighted = self.has(f"{weight}.weight")
        return self.biased(self.same("norm", made, by=f"{weight}.weight"), weight) if weighted else made

    def wanted(self, *tensors: PassTensor) -> list[PassTensor]:
        """The rows of the tokens whose logits are wanted, with which the pass goes on."""
        self.per = Per.OUTPUT
        places = self.input("places of wanted rows", 4, self.per)
        return [self.add("wanted rows", x.each // 4, x, places) for x in tensors]

    def schedule(self, copies: int) -> "Schedule":
        """The steps in the order of the devices' runs. Where devices work on successive batches, there are several
        `copies` of what each is given, from the start on."""
        settle(self.steps)
        own = CUDA_ALIGNMENT if self.on_cuda else HOST_ALIGNMENT
        made = Schedule((*[own] * self.placement.devices, HOST_ALIGNMENT), copies)
        copies_on = defaultdict[int, dict[PassTensor, PassTensor]](dict)
        for tensor in self.inputs.values():
            tensor.fixed = copies > 1
            made.begin(tensor.copied(HOST, copies) if copies > 1 else tensor)
        for copied, run in runs(self.steps):
            device = run[0].device or 0
            there = copies_on[device]
            for source in copied:
                there[source] = copy = source.copied(device, copies)
                if copies > 1:
                    made.begin(copy)
                made.add(copy, copy.reads)
            for step in run:
                made.add(step, [*map(there.get, step.reads, step.reads)] if there else step.reads)
        made.end()
        return made


@dataclass(slots=True)
class Schedule:
    """The steps of a pass, whatever the sizes of its context. Tensors that are placed are numbered.

    A step is a run of integers in `steps`: its device; the number of the tensor that it places there, or -1; how many
    tensors the result may be written over; how many are read for the last time; and the numbers of these two groups.
    Integers, since a file remembers up to two thousand schedules."""

    alignments: tuple[int, ...]
    """Bytes to which each device aligns, the host last."""
    copies: int
    """Copies of each tensor that stays from the start on."""
    names: list[str] = field(default_factory=list)
    each: "array[int]" = field(default_factory=lambda: array("q"))
    per: "array[int]" = field(default_factory=lambda: array("b"))
    copied: list[tuple[int, int]] = field(default_factory=list)
    """Tensors of several copies, and their devices."""
    of_context: list[tuple[int, SizeOf]] = field(default_factory=list)
    scratch: list[tuple[int, SizeOf]] = field(default_factory=list)
    first: "array[int]" = field(default_factory=lambda: array("i"))
    """Tensors that are there before the steps."""
    steps: "array[int]" = field(default_factory=lambda: array("i"))
    added: list[tuple[int, int, list[int], list[int]]] = field(default_factory=list)
    """Steps until the end, each with all tensors that it reads."""

    def begin(self, tensor: PassTensor) -> None:
        """A tensor that is there before the steps."""
        self.first.extend((tensor.device or 0, self.number(tensor), 0, 0))
        if self.copies > 1:
            self.copied.append((tensor.number, tensor.device or 0))

    def number(self, tensor: PassTensor) -> int:
        """The number of a tensor that is to be placed."""
        tensor.number = len(self.names)
        self.names.append(tensor.name)
        self.each.append(tensor.each)
        self.per.append(tensor.per)
        if tensor.of_context is not None:
            self.of_context.append((tensor.number, tensor.of_context))
        if tensor.scratch is not None:
            self.scratch.append((tensor.number, tensor.scratch))
        return tensor.number

    def add(self, tensor: PassTensor, sources: Sequence[PassTensor]) -> None:
        """A step that makes a tensor of others."""
        over, reads, device = [], [], tensor.device
        for source in sources:
            holder = source.whole or source
            if not (holder.fixed or holder.stays):
                reads.append(holder.number)
                if tensor.over and source is holder and source.device == device:
                    over.append(source.number)
        number = self.number(tensor) if tensor.number < 0 and not tensor.fixed else -1
        self.added.append((device or 0, number, over, reads))

    def end(self) -> None:
        """No step follows: it is known which one reads a tensor last, and may be written over it."""
        last_read = {source: step for step, (*_, reads) in enumerate(self.added) for source in reads}
        for step, (device, number, over, reads) in enumerate(self.added):
            last = {source for source in reads if last_read[source] == step}
            over = [source for source in over if source in last and reads.count(source) == 1]
            self.steps.extend((device, number, len(over), len(last), *over, *last))
        self.added.clear()

    def buffers(self, context: ContextSizes) -> tuple[Buffer, ...]:
        """The buffer of every device, the host's last."""
        rows = 1, context.tokens, context.outputs, context.sequences
        nbytes = [each * rows[per] for each, per in zip(self.each, self.per, strict=True)]
        for number, of_context in self.of_context:
            nbytes[number] = of_context(context)
        for number, device in self.copied:
            nbytes[number] = self.copies * up_to(nbytes[number], self.alignments[device])
        sizes = [*nbytes] if self.scratch else nbytes
        for number, scratch in self.scratch:
            sizes[number] += scratch(context)
        memory = [DeviceMemory(alignment) for alignment in self.alignments]
        memory_of: list[DeviceMemory] = [memory[HOST]] * len(nbytes)
        steps = chain(self.first, self.steps)
        for device, tensor, sources, last in zip(steps, steps, steps, steps, strict=True):
            overwritten = -1
            if tensor >= 0:
                memory_of[tensor] = memory[device]
                for source in islice(steps, sources) if sources else ():
                    if overwritten < 0 and sizes[source] == nbytes[tensor]:
                        overwritten = source
                        memory[device].overwrite(source, tensor)
                if overwritten < 0:
                    memory[device].place(tensor, sizes[tensor])
            for source in islice(steps, last) if last else ():
                if source != overwritten:
                    memory_of[source].release(source)
        return tuple(pool.buffer(self.names, nbytes) for pool in memory)


@dataclass(slots=True)
class DeviceMemory:
    """The buffer of one device while tensors are placed in it, by their numbers."""

    alignment: int
    size: int = 0
    alive: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Start and stop of the room of each tensor, in whole units of the device."""
    starts: list[int] = field(default_factory=lambda: [0])  # of gaps, the last of which has no end
    stops: list[float] = field(default_factory=lambda: [inf])
    peak: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Tensors that are alive when it is largest."""

    def place(self, tensor: int, nbytes: int) -> None:
        """Into the smallest gap."""
        size, smallest, gap = up_to(nbytes, self.alignment), inf, -1
        for i, (start, stop) in enumerate(zip(self.starts, self.stops)):  # noqa: B905 the longest loop, over as many
            if size <= stop - start <= smallest:
                smallest, gap = stop - start, i
        start = self.starts[gap]
        self.starts[gap] = stop = start + size
        if size == smallest:
            del self.starts[gap], self.stops[gap]
        self.alive[tensor] = start, stop
        if stop > self.size:
            self.size, self.peak = stop, self.alive.copy()

    def overwrite(self, source: int, tensor: int) -> None:
        """A tensor over a source of its size that nothing else reads."""
        self.alive[tensor] = self.alive.pop(source)

    def release(self, tensor: int) -> None:
        """The room of one that nothing reads any more is free."""
        start, stop = self.alive.pop(tensor)
        if start == stop:
            return
        gap = bisect_left(self.starts, stop)
        if gap and self.stops[gap - 1] == start:
            gap, start = gap - 1, self.starts[gap - 1]
            del self.starts[gap], self.stops[gap]
        if self.starts[gap] == stop:
            self.starts[gap] = start
        else:
            self.starts.insert(gap, start)
            self.stops.insert(gap, stop)

    def buffer(self, names: Sequence[str], nbytes: Sequence[int]) -> Buffer:
        sizes: Counter[str] = Counter()
        for tensor in sorted(self.peak, key=self.peak.__getitem__):
            sizes[names[tensor]] += nbytes[tensor]
        return Buffer(self.size, MappingProxyType(sizes))


def settle(steps: Sequence[PassTensor]) -> None:
    """Give each step that no weight binds to a device that of its neighbours, of GPUs before the host."""
    for skipped in (HOST, None):
        for order in (steps, steps[::-1]):
            current = None
            for step in order:
                if step.device is None:
                    step.device = current
                else:
                    current = None if step.device == skipped else step.device


def runs(steps: Sequence[PassTensor]) -> Iterator[tuple[list[PassTensor], list[PassTensor]]]:
    """Steps that follow one another on a device, after what is copied there before them; weights that are copied for
    one run make room for those of the next."""
    copied, run = list[PassTensor](), list[PassTensor]()
    known = set[tuple[PassTensor, int | None]]()
    for step in steps:
        foreign = [source for source in step.reads if (source.whole or source).device != step.device]
        if run and (run[0].device != step.device or (copied and any(source.weight for source in foreign))):
            yield copied, run
            copied, run = [], []
        for source in foreign:
            if (source, step.device) not in known:
                known.add((source, step.device))
                copied.append(source)
        run.append(step)
    yield copied, run
