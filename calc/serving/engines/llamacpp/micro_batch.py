"""A micro-batch as llama.cpp's graph has it, and the buffer that its tensors take on each device.

Sizes are those of fp32, which llama.cpp computes in (llama-graph.cpp of llama.cpp 0c1e57098). A tensor is alive from
the step that makes it to the last one that reads it, and lies in the smallest gap that holds it (ggml-alloc.c); what a
device reads of another is copied there before a run of its steps (ggml-backend.cpp).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from calc.errors import ConfigError, Message
from calc.formats.gguf_file import FileTensor, ModelFile
from calc.model.architecture import Architecture
from calc.serving.engines.families import families
from calc.serving.engines.llamacpp.context import (
    CELL,
    OUTPUT,
    PASS,
    SEQUENCE,
    TAKEN_OVER,
    TOKEN,
    CacheTensor,
    ContextSizes,
    window_of,
)
from calc.serving.engines.llamacpp.placement import COPIED, HOST, Placement

CUDA_ALIGNMENT, HOST_ALIGNMENT = 128, 32
"""Bytes to which tensors are aligned."""


class Rows(NamedTuple):
    """The bytes of a tensor in any context."""

    name: str
    each: int  # bytes of a row
    per: int
    window: int | None = None  # of the layer whose cells its rows are
    states: int = 0  # bytes for each sequence, behind the rows
    scratch: int = 0  # bytes for each cell, behind the rows too
    lacking: int = 0  # bytes that are not of the last row, where the rows are a part of wider ones

    def nbytes(self, context: ContextSizes) -> int:
        nbytes = self.each * context.count(self.per, self.window) + self.states * context.sequences
        return nbytes - self.lacking + self.scratch * context.count(CELL, self.window)


@dataclass(eq=False, slots=True)
class PassTensor:
    """Rows on a device, and what they are made of. `fixed` ones lie in a buffer of their own, weights and the cache;
    what is written there is a tensor without bytes."""

    rows: Rows
    reads: Sequence["PassTensor"] = ()
    over: bool = False  # it may be written over a source of its size
    device: int | None = None  # None: where its neighbours are
    fixed: bool = False
    weight: bool = False
    whole: "PassTensor | None" = None  # of which it is a view
    in_graph: bool = False

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.rows.each // 4


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of one device: its size, and by name what is alive when it is largest."""

    size: int
    peak: Mapping[str, int]


def deep(model: Architecture) -> int:
    """Layers to whose states features of images are added."""
    return 0 if model.vision is None else model.vision.deepstack


class MicroBatch:
    """The steps so far, in the order of llama.cpp's graph: it has what a tensor is made of before it, and no tensor
    before something needs it."""

    def __init__(self, file: ModelFile, placement: Placement, context: ContextSizes, *, cuda: bool) -> None:
        self.file, self.placement, self.context = file, placement, context
        self.model = file.architecture
        self.blocks = {layer: block for block in self.model.all_blocks for layer in block.runs_in}
        self.deep = deep(self.model)
        mixers = [mixer for block in self.model.blocks for mixer in block.mixers]
        self.has_windows = any(window_of(mixer, self.model) is not None for mixer in mixers)
        self.on_cuda = cuda and placement.devices > 0
        own = CUDA_ALIGNMENT if self.on_cuda else HOST_ALIGNMENT
        self.alignments = *[own] * placement.devices, HOST_ALIGNMENT
        self.layer, self.per = 0, TOKEN
        self.steps: list[PassTensor] = []
        self.inputs: dict[tuple[str, int | None], PassTensor] = {}
        self.weights: dict[tuple[str, int], PassTensor] = {}
        self.repeats: dict[PassTensor, int] = {}
        """Times that the steps behind a state occur, up to the next state that is named here."""

    @property
    def cache_device(self) -> int:
        return self.placement.layers[self.layer] if self.context.offload_cache else HOST

    def follows(self, rule: str) -> bool:
        """Whether the model's family is one of those in `families.toml` for which a rule holds."""
        return self.model.model_type in families("llamacpp", rule)

    def has(self, name: str) -> bool:
        return name in self.file.layers[self.layer]

    def stored(self, name: str) -> FileTensor:
        """A weight of this layer, or one outside the layers. Raises ConfigError where the file has neither."""
        stored = self.file.layers[self.layer].get(name) or self.file.outside.get(name)
        if stored is None:
            sentence = Message("llama.cpp reads {name}, which a file of this model does not have.", name=name)
            raise ConfigError(sentence, "engine")
        return stored

    def device_of(self, name: str) -> int:
        """Device of a weight; a tied head is the output's."""
        if name not in self.file.outside:
            return self.placement.of_weight(name, self.layer)
        if name in COPIED:
            return self.placement.layers[self.layer]
        return HOST if name == "token_embd_norm.weight" else self.placement.output

    def weight(self, name: str) -> PassTensor:
        """A weight where it lies, of which a device is given one copy."""
        device = self.device_of(name)
        key = name, device if name in self.file.outside else self.layer
        if key not in self.weights:
            rows = Rows(name, self.stored(name).nbytes, PASS)
            self.weights[key] = PassTensor(rows, device=device, fixed=True, weight=True, in_graph=True)
        return self.weights[key]

    def input(self, name: str, each: int, per: int = TOKEN, window: int | None = None) -> PassTensor:
        """A tensor that the host writes before the pass, once for all layers: for those with a window once more."""
        made = PassTensor(Rows(name, each, per, window), device=HOST, in_graph=True)
        return self.inputs.setdefault((name, window), made)

    @property
    def positions(self) -> PassTensor:
        return self.input("positions", 16 if self.follows("multiple_positions") else 4)

    @cached_property
    def further_places(self) -> PassTensor:
        """Places of states of the slots that are not in the pass: there are none, and it is a tensor of no bytes."""
        return self.view(self.input("places of states", 4, SEQUENCE), 0)

    def cached(self, name: str, tensor: CacheTensor) -> PassTensor:
        """A tensor of this layer's cache."""
        rows = Rows(name, tensor.each, tensor.per, tensor.window)
        return PassTensor(rows, device=self.cache_device, fixed=True, in_graph=True)

    def add(
        self,
        name: str,
        width: int,
        *reads: PassTensor,
        by: str | None = None,
        over: bool = False,
        on: int | None = None,
        states: int = 0,
    ) -> PassTensor:
        """So many elements of each row, which may be written `over` a source, and bytes of `states` behind them."""
        return self.made(Rows(name, 4 * width, self.per, None, states), reads, by, over, on)

    def same(
        self, name: str, *reads: PassTensor, by: str | None = None, over: bool = True, on: int | None = None
    ) -> PassTensor:
        """As many elements as the first source has."""
        _, each, per, window, states, *_ = reads[0].rows
        return self.made(Rows(name, each, per, window, states), reads, by, over, on)

    def made(self, rows: Rows, reads: tuple[PassTensor, ...], by: str | None, over: bool, on: int | None) -> PassTensor:
        """A tensor that is made `by` a weight where that lies; a large operation is the first GPU's even if that is on
        the host."""
        if by is not None:
            on = self.device_of(by)
            if on == HOST and self.on_cuda and self.context.count(self.per) >= TAKEN_OVER:  # else read where it lies
                on, reads = 0, (self.weight(by), *reads)
        return PassTensor(rows, reads, over, on)

    def expand(self, *tensors: PassTensor) -> None:
        """Put tensors into the graph, behind what they are made of (ggml_build_forward_expand)."""
        for tensor in tensors:
            if not tensor.in_graph:
                tensor.in_graph = True
                self.expand(*tensor.reads)
                if tensor.whole is None:
                    self.steps.append(tensor)

    def write(self, on: int | None, *reads: PassTensor) -> None:
        """Into what is there already."""
        self.expand(PassTensor(Rows("", 0, PASS), reads, device=on, fixed=True))

    def view(self, x: PassTensor, width: int | None = None) -> PassTensor:
        """A part of a tensor, or all of it in another shape, which nothing is written over."""
        whole = x.whole or x
        rows = x.rows if width is None else Rows(x.rows.name, 4 * width, self.per)
        return PassTensor(rows, (whole,), whole=whole)

    def part(self, x: PassTensor, width: int) -> PassTensor:
        """Some elements of each row between the others; a copy of it is as long as from its first to its last."""
        return PassTensor(x.rows._replace(lacking=x.rows.each - 4 * width), (x,), whole=x)

    def project(self, x: PassTensor, weight: str, name: str) -> PassTensor:
        """Through a matrix of this layer, with its bias."""
        weight_name = f"{weight}.weight"
        return self.biased(self.add(name, self.stored(weight_name).ne[-1], x, by=weight_name), weight)

    def biased(self, x: PassTensor, weight: str) -> PassTensor:
        return self.same(x.rows.name, x, by=f"{weight}.bias") if self.has(f"{weight}.bias") else x

    def norm(self, x: PassTensor, weight: str) -> PassTensor:
        made = self.same("norm", x)
        weighted = self.has(f"{weight}.weight")
        return self.biased(self.same("norm", made, by=f"{weight}.weight"), weight) if weighted else made

    def wanted(self, *tensors: PassTensor) -> list[PassTensor]:
        """The rows of the tokens whose logits are wanted, with which the pass goes on."""
        self.per = OUTPUT
        places = self.input("places of wanted rows", 4, self.per)
        return [self.add("wanted rows", x.width, x, places) for x in tensors]

    def schedule(self, copies: int) -> "Schedule":
        """The steps in the order of the devices' runs, each run behind what is copied to its device before it; weights
        that are copied for a run make room for those of the next. Where devices work on successive batches, there are
        several `copies` of what each is given, from the start on."""
        settle(self.steps)
        copied, order, pipelined = dict[tuple[PassTensor, int], list[PassTensor]](), list[PassTensor](), copies > 1
        run = behind = 0  # where the run starts, and its steps behind the copies
        times = 1
        for step in self.steps:
            device = step.device or 0
            if device == HOST and step.rows.scratch:
                step.rows = step.rows._replace(scratch=0)
            foreign = [x for x in step.reads if (x.whole or x).device != device]
            if order and (order[-1].device != device or (behind > run and any(x.weight for x in foreign))):
                run = behind = len(order)
            for x in foreign:
                if (x, device) not in copied:
                    rows, sources = x.rows._replace(scratch=0) if x.rows.scratch else x.rows, (x.whole or x,)
                    there = [PassTensor(rows, sources, device=device, fixed=pipelined) for _ in range(copies * times)]
                    copied[x, device] = there
                    order.insert(behind, there[0])
                    behind += 1
            if foreign:
                step.reads = [copied[x, device][0] if x in foreign else x for x in step.reads]
            order.append(step)
            times = self.repeats.get(step, times)
        given = [*self.inputs.values()]
        if pipelined:
            for tensor in given:
                tensor.fixed = True
            given = [PassTensor(x.rows, device=HOST) for x in given for _ in range(copies)]
            given += chain.from_iterable(copied.values())
        return Schedule.of(given, order, self.repeats, self.alignments)


Span = tuple[float, float]
"""Start and stop of a tensor, or of a gap."""
PassStep = tuple[int, int | None, tuple[int, ...], tuple[int, ...]]
"""The device of a step, and tensors by their numbers: the one it makes (None: it writes into what lies in a buffer of
its own), those that this may be written over, and those that are read for the last time."""


class Schedule(NamedTuple):
    """The steps of a pass, whatever the sizes of its context."""

    alignments: tuple[int, ...]  # bytes, of each device, the host last
    kinds: tuple[Rows, ...]
    tensors: tuple[int, ...]  # the kind of each that is placed, by number
    parts: tuple[tuple[int, tuple[PassStep, ...]], ...]  # times that they occur, one after the other

    @classmethod
    def of(
        cls,
        given: Iterable[PassTensor],
        order: Sequence[PassTensor],
        repeats: Mapping[PassTensor, int],
        alignments: tuple[int, ...],
    ) -> "Schedule":
        """Steps in `order`, some of which `repeats`. `given` tensors are there before them, `fixed` ones to the end."""
        numbers: dict[PassTensor, int] = {}
        last_read = {x.whole or x: step for step in order for x in step.reads}
        steps: list[PassStep] = [(x.device or 0, numbers.setdefault(x, len(numbers)), (), ()) for x in given]
        parts = [(1, steps)]
        for step in order:
            wholes = [x.whole or x for x in step.reads]
            last = [x for x in dict.fromkeys(wholes) if last_read[x] is step and not x.fixed]
            over = [x for x in last if x.device == step.device and x in step.reads] if step.over and last else []
            sources = [numbers[x] for x in over if wholes.count(x) == 1]
            if last or not step.fixed:
                made = None if step.fixed else numbers.setdefault(step, len(numbers))
                steps.append((step.device or 0, made, tuple(sources), tuple([numbers[x] for x in last])))
            if step in repeats:
                parts.append((repeats[step], steps := []))
        kinds = dict[Rows, int]()
        tensors = tuple([kinds.setdefault(x.rows, len(kinds)) for x in numbers])
        return cls(alignments, tuple(kinds), tensors, tuple([(times, tuple(part)) for times, part in parts]))

    def buffers(self, context: ContextSizes) -> tuple[Buffer, ...]:
        """The buffer of every device, the host's last. Where steps begin with memory as it was some rounds before, as
        many rounds change nothing."""
        nbytes = [rows.nbytes(context) for rows in self.kinds]
        sizes = [nbytes[kind] for kind in self.tensors]
        memory = [DeviceMemory(alignment) for alignment in self.alignments]
        memory_of = [memory[HOST]] * len(sizes)
        for times, steps in self.parts:
            begun = list[list[tuple[dict[int, Span], list[Span]]]]()
            count = sum(made is not None for _, made, *_ in steps) if times > 1 else 0
            while times:
                if times > 1:
                    state = [(pool.alive.copy(), pool.gaps.copy()) for pool in memory]
                    if state in begun:
                        times = (times - 1) % (len(begun) - begun.index(state)) + 1
                    begun.append(state)
                for device, made, sources, last in steps:
                    overwritten = None
                    if made is not None:
                        memory_of[made] = pool = memory[device]
                        for source in sources:
                            if overwritten is None and sizes[source] == sizes[made]:
                                overwritten, pool.alive[made] = source, pool.alive.pop(source)
                        if overwritten is None:
                            pool.place(made, sizes[made])
                    for source in last:
                        if source != overwritten:
                            memory_of[source].release(source)
                times -= 1
                for pool, (before, _) in zip(memory, begun[-1], strict=True) if times else ():
                    pool.alive = {x if x in before else x - count: span for x, span in pool.alive.items()}
        return tuple(pool.buffer([self.kinds[kind].name for kind in self.tensors], sizes) for pool in memory)


@dataclass(slots=True)
class DeviceMemory:
    """The buffer of one device while tensors are placed in it, by their numbers (ggml-alloc.c: ggml_dyn_tallocr)."""

    alignment: int
    size: int = 0
    alive: dict[int, Span] = field(default_factory=dict)
    gaps: list[Span] = field(default_factory=lambda: [(0, inf)])
    peak: dict[int, Span] = field(default_factory=dict)
    """Tensors that are alive when it is largest."""

    def place(self, tensor: int, nbytes: int) -> None:
        """Into the smallest gap, of equal ones the last."""
        gaps, size, smallest, place = self.gaps, -(-nbytes // self.alignment) * self.alignment, inf, -1
        for i, (start, stop) in enumerate(gaps):
            if size <= stop - start <= smallest:
                smallest, place = stop - start, i
        start, stop = gaps[place]
        if size < smallest:
            gaps[place] = start + size, stop
        else:
            del gaps[place]
        self.alive[tensor] = start, start + size
        if start + size > self.size:
            self.size, self.peak = int(start + size), self.alive.copy()

    def release(self, tensor: int) -> None:
        """The room of one that nothing reads any more is a gap, joined to the first gap that it borders on and to the
        one listed next to that: a gap of no bytes, which a tensor of none leaves, may keep two others apart."""
        start, stop = self.alive.pop(tensor)
        gaps = self.gaps
        for i, (first, end) in enumerate(gaps):
            if end == start:
                gaps[i] = first, gaps.pop(i + 1)[1] if gaps[i + 1][0] == stop else stop
                return
            if first == stop:
                gaps[i] = start, end
                if i and gaps[i - 1][1] == start:
                    gaps[i - 1 : i + 1] = [(gaps[i - 1][0], end)]
                return
        gaps.insert(bisect_left(gaps, (start,)), (start, stop))

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
