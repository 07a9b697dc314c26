"""A micro-batch as llama.cpp's graph has it, and the buffer that its tensors take on each device.

Sizes are those of fp32, which llama.cpp computes in (llama-graph.cpp of llama.cpp 0c1e57098). A tensor is alive from
the step that makes it to the last one that reads it, and lies in the smallest gap that holds it (ggml-alloc.c); what a
device reads of another is copied there before a run of its steps (ggml-backend.cpp).
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
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
BY_OFFSET = attrgetter("offset")


@dataclass(eq=False, slots=True)
class PassTensor:
    """Bytes on a device, and what they are made of. `fixed` ones lie in a buffer of their own, weights and the cache;
    what is written there is a tensor without bytes."""

    name: str
    nbytes: int
    reads: Sequence["PassTensor"] = ()
    over: bool = False  # it may be written over a source of its size
    device: int | None = None  # None: where its neighbours are
    fixed: bool = False
    weight: bool = False
    stays: bool = False  # until the end of the pass
    scratch: int = 0  # bytes behind it that the kernel writes
    whole: "PassTensor | None" = None  # of which it is a view
    in_graph: bool = False
    readers: int = 0
    offset: int = -1
    end: int = -1  # of the room that it takes, in whole units of the device

    @property
    def holder(self) -> "PassTensor":
        return self.whole or self

    @property
    def size(self) -> int:
        return self.nbytes + self.scratch

    def copied(self, device: int, copies: int, alignment: int) -> "PassTensor":
        """Copies of it on a device, which stay there where there are several."""
        size = self.nbytes if copies == 1 else copies * up_to(self.nbytes, alignment)
        return PassTensor(self.name, size, (self.holder,), False, device, weight=self.weight, stays=copies > 1)


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
        self.layer, self.rows = 0, context.tokens
        self.steps: list[PassTensor] = []
        self.inputs: dict[tuple[str, bool], PassTensor] = {}

    @property
    def cache_device(self) -> int:
        return self.placement.layers[self.layer] if self.context.offload_cache else HOST

    def has(self, name: str) -> bool:
        return name in self.file.layers[self.layer]

    def width(self, name: str) -> int:
        """Rows of a matrix of this layer. Raises ConfigError where the file has none of that name."""
        if not self.has(name):
            sentence = Message("llama.cpp reads {name}, which a file of this model does not have.", name=name)
            raise ConfigError(sentence, "engine")
        return self.file.layers[self.layer][name].ne[-1]

    def weight(self, name: str) -> PassTensor:
        """A weight of this layer, or one outside the layers. Raises ConfigError where the file has neither."""
        stored = self.file.outside.get(name)
        if stored is None:
            self.width(name)
            stored, place = self.file.layers[self.layer][name], self.placement.of_weight(name, self.layer)
        else:
            place = HOST if name == "token_embd_norm.weight" else self.placement.output
        return PassTensor(name, stored.nbytes, device=place, fixed=True, weight=True, in_graph=True)

    def input(self, name: str, nbytes: int, *, windowed: bool = False) -> PassTensor:
        """A tensor that the host writes before the pass, once for all layers: for those with a window once more."""
        made = PassTensor(name, nbytes, device=HOST, in_graph=True)
        return self.inputs.setdefault((name, windowed), made)

    def cached(self, name: str, nbytes: int) -> PassTensor:
        """A tensor of this layer's cache."""
        return PassTensor(name, nbytes, device=self.cache_device, fixed=True, in_graph=True)

    def add(
        self,
        name: str,
        elements: int,
        *reads: PassTensor,
        by: str | None = None,
        over: bool = False,
        on: int | None = None,
    ) -> PassTensor:
        """So many elements, which may be written `over` a source. What is made `by` a weight is made
        where that lies; a large operation is the first GPU's even if that is on the host."""
        if by is not None:
            weight = self.weight(by)
            taken_over = self.on_cuda and weight.device == HOST and self.rows >= TAKEN_OVER
            on, reads = 0 if taken_over else weight.device, (*reads, weight) if over else (weight, *reads)
        return PassTensor(name, 4 * elements, reads, over, on)

    def same(self, name: str, *reads: PassTensor, by: str | None = None, over: bool = True) -> PassTensor:
        """As many elements as the first source has."""
        return self.add(name, reads[0].nbytes // 4, *reads, by=by, over=over)

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
        self.expand(PassTensor("", 0, reads, device=on, fixed=True))

    def view(self, x: PassTensor, elements: int | None = None) -> PassTensor:
        """A part of a tensor, or all of it in another shape, which nothing is written over."""
        return PassTensor(x.name, x.nbytes if elements is None else 4 * elements, (x.holder,), whole=x.holder)

    def project(self, x: PassTensor, weight: str, name: str) -> PassTensor:
        """Through a matrix of this layer, with its bias."""
        made = self.add(name, self.rows * self.width(f"{weight}.weight"), x, by=f"{weight}.weight")
        return self.biased(made, weight)

    def biased(self, x: PassTensor, weight: str) -> PassTensor:
        return self.same(x.name, x, by=f"{weight}.bias") if self.has(f"{weight}.bias") else x

    def norm(self, x: PassTensor, weight: str) -> PassTensor:
        made = self.same("norm", x)
        weighted = self.has(f"{weight}.weight")
        return self.biased(self.same("norm", made, by=f"{weight}.weight"), weight) if weighted else made

    def wanted(self, *tensors: PassTensor) -> list[PassTensor]:
        """The rows of the tokens whose logits are wanted, with which the pass goes on."""
        before, self.rows = self.rows, self.context.outputs
        places = self.input("places of wanted rows", 4 * self.rows)
        return [self.add("wanted rows", x.nbytes // 4 // before * self.rows, x, places) for x in tensors]

    def buffers(self, copies: int) -> tuple[Buffer, ...]:
        """The buffer of every device, the host's last. Where devices work on successive batches, there are several
        `copies` of what each is given."""
        settle(self.steps)
        own = CUDA_ALIGNMENT if self.on_cuda else HOST_ALIGNMENT
        memory = [*(DeviceMemory(own) for _ in range(self.placement.devices)), DeviceMemory(HOST_ALIGNMENT)]
        for tensor in self.inputs.values():
            tensor.fixed = copies > 1
            memory[HOST].place(tensor.copied(HOST, copies, HOST_ALIGNMENT) if copies > 1 else tensor)
        there: dict[tuple[PassTensor, int], PassTensor] = {}
        ordered: list[PassTensor] = []
        for copied, run in runs(self.steps):
            device = run[0].device or 0
            for source in copied:
                there[source, device] = copy = source.copied(device, copies, memory[device].alignment)
                ordered.append(copy)
                if copies > 1:
                    memory[device].place(copy)
            for step in run:
                if there:
                    step.reads = [there.get((source, device), source) for source in step.reads]
                ordered.append(step)
        for step in ordered:
            for source in step.reads:
                (source.whole or source).readers += 1
        for step in ordered:
            if step.offset < 0 and not step.fixed:
                memory[step.device or 0].place(step)
            for source in step.reads:
                holder = source.whole or source
                memory[holder.device or 0].release(holder)
        return tuple(pool.buffer() for pool in memory)


@dataclass
class DeviceMemory:
    """The buffer of one device while tensors are placed in it."""

    alignment: int
    size: int = 0
    alive: list[PassTensor] = field(default_factory=list)  # by offset
    peak: list[PassTensor] = field(default_factory=list)

    def place(self, tensor: PassTensor) -> None:
        """Into the smallest gap, or over a source of its size that nothing else reads."""
        for source in tensor.reads if tensor.over else ():
            if (
                source.size == tensor.nbytes
                and source.device == tensor.device
                and source.readers == 1
                and not (source.fixed or source.stays)
            ):
                tensor.offset, source.fixed = source.offset, True
                tensor.end = tensor.offset + up_to(tensor.size, self.alignment)
                self.alive[self.alive.index(source)] = tensor
                return
        size, end, smallest = up_to(tensor.size, self.alignment), 0, None
        for other in self.alive:
            gap = other.offset - end
            if gap >= size and (smallest is None or gap <= smallest):
                smallest, tensor.offset = gap, end
            end = other.end
        if smallest is None:
            tensor.offset = end
        tensor.end = tensor.offset + size
        insort(self.alive, tensor, key=BY_OFFSET)
        if tensor.end > self.size:
            self.size, self.peak = tensor.end, list(self.alive)

    def release(self, tensor: PassTensor) -> None:
        """One that was read; behind the last reader its room is free."""
        tensor.readers -= 1
        if not (tensor.readers or tensor.fixed or tensor.stays):
            self.alive.remove(tensor)

    def buffer(self) -> Buffer:
        sizes: Counter[str] = Counter()
        for tensor in self.peak:
            sizes[tensor.name] += tensor.nbytes
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
