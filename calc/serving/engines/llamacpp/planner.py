"""Where a forward pass is computed and what its buffers come to: ggml's scheduler and its best-fit allocator.

The scheduler gives each operation a device, cuts the graph where devices change, and copies what crosses; the allocator
then walks the graph and gives each tensor the smallest gap that is large enough, until its last reader is done. The
buffer is as large as the furthest byte that was ever used. Source: ggml-backend.cpp (ggml_backend_sched_split_graph),
ggml-alloc.c (ggml_gallocr_alloc_graph_impl), ggml-cuda.cu (ggml_backend_cuda_graph_optimize); ggml 0.25.3.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType

from calc.serving.engines.llamacpp.fusion import kept_by_fusions
from calc.serving.engines.llamacpp.graph import IN_PLACE, VIEWS, Graph, GraphNode

SOURCES = 10
"""Sources that a tensor can have (GGML_MAX_SRC)."""
OFFLOADED_BATCH = 32
"""Rows from which a GPU takes over an operation whose weights lie on the host."""


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """What the planner asks of a device; the host is the last of them."""

    alignment: int
    supports: Callable[[GraphNode], bool]
    size: Callable[[GraphNode], int]  # bytes that a tensor takes
    fuses: bool = False  # keeps tensors alive for operations that it fuses
    takes_over: bool = False  # computes large operations whose weights lie on the host


@dataclass
class Split:
    """A run of operations on one device, with what is copied there first."""

    backend: int
    start: int
    end: int = 0
    inputs: list[GraphNode] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Buffer:
    """One device's buffer: its size, and by name what was alive when it grew last."""

    size: int
    peak: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BufferPlan:
    buffers: tuple[Buffer, ...]
    decisions: bytes
    """How each comparison came out on which a place in a buffer hung."""


def plan(graph: Graph, devices: Sequence[PlannedDevice], copies: int = 1) -> BufferPlan:
    """The buffers of a graph; `copies` of every input of a device, where devices work on several batches at once."""
    assign(graph, devices)
    steps, leaves = cut(graph, devices, copies)
    allocator = Allocator(devices)
    buffers = allocator.run(steps, leaves)
    return BufferPlan(tuple(buffers), bytes(allocator.decisions))


def by_name(nodes: Sequence[GraphNode]) -> Mapping[str, int]:
    """Bytes of tensors, those of one name together."""
    sizes: Counter[str] = Counter()
    for node in nodes:
        sizes[node.name or node.op] += int(node.nbytes)
    return MappingProxyType(sizes)


# Devices


def home_of(node: GraphNode, devices: Sequence[PlannedDevice], op: GraphNode) -> int:
    """The device whose buffer holds a tensor, where it computes the operation; -1: none."""
    home = node.holder.home
    return home if home is not None and devices[home].supports(op) else -1


def batch(node: GraphNode) -> int:
    """Rows that decide whether a GPU takes an operation over."""
    if node.op == "get_rows":
        return 0
    if node.op == "mul_mat":
        return node.ne[1]
    return node.ne[2] if node.op in ("mul_mat_id", "rope") else node.rows


def first_choice(node: GraphNode, devices: Sequence[PlannedDevice]) -> int:
    """Where a tensor lies already, or its weights do; -1: undecided."""
    host = len(devices) - 1
    if node.holder.home is not None:
        return home_of(node, devices, node)
    if node.is_input:
        return host
    if node.op in ("rope", "flash_attn_ext"):  # their tables and sinks are too small to decide
        return -1
    for source in node.srcs:
        if source.is_weight:
            found = home_of(source, devices, node)
            if found == host and batch(node) >= OFFLOADED_BATCH:
                able = (i for i, one in enumerate(devices[:-1]) if one.takes_over and one.supports(node))
                return next(able, found)
            return found
    return -1


def assign(graph: Graph, devices: Sequence[PlannedDevice]) -> None:
    """Give each tensor a device: by where weights lie, then spreading from neighbour to neighbour, GPUs first."""
    host = len(devices) - 1
    for node in (*graph.leaves, *graph.nodes):
        if node.backend == -1:
            node.backend = first_choice(node, devices)
    computed = [node for node in graph.nodes if node.op not in VIEWS]
    for skipped in (host, -2):
        for order in (computed, computed[::-1]):
            spread(order, devices, skipped)
    for node in computed:
        if node.backend == -1:
            node.backend = best_of(node, devices)
    for node in graph.nodes:
        if node.backend == -1 and node.root is not None:
            node.backend = node.root.backend
        for source in node.srcs:
            if source.backend == -1:
                source.backend = node.backend if source.root is None else source.root.backend


def spread(order: Sequence[GraphNode], devices: Sequence[PlannedDevice], skipped: int) -> None:
    """Undecided operations go where the one before them is."""
    current = -1
    for node in order:
        if node.backend != -1:
            current = -1 if node.backend == skipped else node.backend
        elif current != -1 and devices[current].supports(node):
            node.backend = current


def best_of(node: GraphNode, devices: Sequence[PlannedDevice]) -> int:
    """The device that reads most of the sources where they lie."""
    able = [i for i, device in enumerate(devices) if device.supports(node)]
    return max(able, key=lambda i: (sum(readable(source, i) for source in node.srcs), -i))


def readable(node: GraphNode, backend: int) -> bool:
    """Whether a device reads a tensor where it lies."""
    home = node.holder.home
    if home is None:
        home = node.backend if node.backend != -1 or node.root is None else node.root.backend
    return home == backend


# Splits


@dataclass(slots=True)
class PlanStep:
    """A tensor to be allocated, whose sources may be freed after it."""

    node: GraphNode
    backend: int
    srcs: tuple[GraphNode, ...]
    counts_view: bool = True


def cut(graph: Graph, devices: Sequence[PlannedDevice], copies: int) -> tuple[list[PlanStep], list[GraphNode]]:
    """The graph cut into splits, with copies of what crosses: what the allocator walks, and what it places first."""
    splits, sources, copied = split(graph, copies)
    until: dict[int, list[GraphNode]] = {}
    for one in splits:
        if devices[one.backend].fuses:
            run = graph.nodes[one.start : one.end]
            for kept, last in kept_by_fusions(run, sources, graph.uses):
                held = until.setdefault(id(last), [])
                held += [node for node in kept if not any(node is other for other in held)]
    steps: list[PlanStep] = []
    for one in splits:
        for node in one.inputs:
            steps.append(PlanStep(node, node.backend, (node,), counts_view=False))
            copy = copied[id(node), one.backend][0]
            steps.append(PlanStep(copy, one.backend, ()))
        for node in graph.nodes[one.start : one.end]:
            steps.append(PlanStep(node, node.backend, sources.get(id(node), node.srcs)))
            held = until.get(id(node), [])
            for at in range(0, len(held), SOURCES):
                steps.append(PlanStep(held[at], one.backend, tuple(held[at : at + SOURCES]), counts_view=False))
    leaves = list(graph.leaves)
    if copies > 1:
        graph_inputs = [leaf for leaf in graph.leaves if leaf.is_input]
        first = [copy for leaf in graph_inputs for copy in [leaf, *duplicates(leaf, leaf.backend, copies - 1)]]
        for leaf in graph_inputs:
            leaf.is_output = True
        first += [copy for one in splits for node in one.inputs for copy in copied[id(node), one.backend]]
        leaves = [*first, *(leaf for leaf in leaves if not leaf.is_input)]
    return steps, leaves


def duplicates(node: GraphNode, backend: int, count: int) -> list[GraphNode]:
    """Copies of a tensor on a device, which stay until the end where there are several."""
    made = []
    for _ in range(count):
        one = GraphNode("none", node.type, node.ne, name=node.name, nb=node.nb)
        one.backend = backend
        made.append(one)
    return made


def split(
    graph: Graph, copies: int
) -> tuple[list[Split], dict[int, tuple[GraphNode, ...]], dict[tuple[int, int], list[GraphNode]]]:
    """Runs of operations on one device; a node's sources where some are copies; and the copies."""
    sources: dict[int, tuple[GraphNode, ...]] = {}
    copied: dict[tuple[int, int], list[GraphNode]] = {}
    splits: list[Split] = []
    for index, node in enumerate(graph.nodes):
        if node.op in VIEWS:
            continue
        if not splits:
            splits.append(Split(node.backend, 0))
        here = splits[-1]
        # weights that were copied for one operation make room for those of the next
        strange = (one for one in node.srcs if one.backend != node.backend and not readable(one, node.backend))
        more = bool(here.inputs) and any(one.is_weight for one in strange)
        if node.backend != here.backend or more:
            here.end = index
            here = Split(node.backend, index)
            splits.append(here)
        own = list(node.srcs)
        for i, source in enumerate(own):
            if source.backend != node.backend and not readable(source, node.backend):
                key = id(source), node.backend
                if key not in copied:
                    copied[key] = duplicates(source, node.backend, copies)
                    for one in copied[key]:
                        one.is_input = one.is_output = copies > 1
                    here.inputs.append(source)
                own[i] = copied[key][0]
        if own != list(node.srcs):
            sources[id(node)] = tuple(own)
    splits[-1].end = len(graph.nodes)
    return splits, sources, copied


# Allocation


class Allocator:
    """Best fit over the gaps of each device's buffer."""

    def __init__(self, devices: Sequence[PlannedDevice]) -> None:
        self.devices = devices
        self.gaps: list[list[list[int]]] = [[[0, 2**62]] for _ in devices]  # [offset, size], by offset
        self.sizes = [0] * len(devices)
        self.alive: list[dict[int, GraphNode]] = [{} for _ in devices]
        self.peaks: list[list[GraphNode]] = [[] for _ in devices]
        self.decisions = bytearray()

    def run(self, steps: Sequence[PlanStep], leaves: Sequence[GraphNode]) -> list[Buffer]:
        for leaf in leaves:
            self.allocate(leaf, leaf.backend)
        for step in steps:
            node = step.node
            if node.root is not None and step.counts_view:
                node.root.views += 1
            if node.is_input and step.counts_view:
                self.allocate(node, step.backend)
            for source in step.srcs:
                source.readers += 1
                if source.is_input:
                    self.allocate(source, step.backend)
        for step in steps:
            for source in step.srcs:
                if source.allocated < 0 and source.home is None and source.root is None:
                    self.allocate(source, step.backend)
            if step.counts_view:
                self.allocate(step.node, step.backend, step.srcs)
            for source in step.srcs:
                self.read(source)
        return [Buffer(size, by_name(peak)) for size, peak in zip(self.sizes, self.peaks, strict=True)]

    def size(self, node: GraphNode, backend: int) -> int:
        if node.allocated < 0:
            device = self.devices[backend]
            node.allocated = -(-int(device.size(node)) // device.alignment) * device.alignment
        return node.allocated

    def allocate(self, node: GraphNode, backend: int, srcs: Sequence[GraphNode] = ()) -> None:
        """Place a tensor: over a source that nobody else reads any more, or in the smallest gap that holds it."""
        if node.root is not None or node.home is not None or node.allocated >= 0:
            return
        if node.op in IN_PLACE:
            for parent in srcs:
                if reusable(parent, node):
                    self.reuse(parent, node)
                    return
        size = self.size(node, backend)
        gaps = self.gaps[backend]
        best = -1
        for i in range(len(gaps) - 1):
            room = gaps[i][1]
            self.compare(room, size)
            if room >= size:
                if best != -1:
                    self.compare(room, gaps[best][1])
                if best == -1 or room <= gaps[best][1]:
                    best = i
        gap = gaps[best]
        offset = gap[0]
        gap[0] += size
        gap[1] -= size
        if not gap[1]:
            del gaps[best]
        node.placed_on, node.offset = backend, offset
        self.alive[backend][id(node)] = node
        self.compare(offset + size, self.sizes[backend])
        if offset + size > self.sizes[backend]:
            self.sizes[backend] = offset + size
            self.peaks[backend] = list(self.alive[backend].values())

    def compare(self, one: int, other: int) -> None:
        self.decisions.append(1 + (one > other) - (one < other))

    def reuse(self, parent: GraphNode, node: GraphNode) -> None:
        backend, offset = parent.placed_on, parent.offset
        parent.placed_on = -1
        del self.alive[backend][id(parent)]
        node.placed_on, node.offset = backend, offset
        self.alive[backend][id(node)] = node
        held, needed = parent.allocated, self.size(node, backend)
        self.compare(held, needed)
        if held > needed:
            self.release(backend, offset + needed, held - needed)

    def read(self, source: GraphNode) -> None:
        """One reader less; what has none left is freed."""
        source.readers -= 1
        if source.readers or source.views:
            return
        root = source.root
        if root is None:
            self.free(source)
        else:
            root.views -= 1
            if not root.views and not root.readers:
                self.free(root)

    def free(self, node: GraphNode) -> None:
        if node.placed_on >= 0 and not node.is_output:
            backend, node.placed_on = node.placed_on, -1
            del self.alive[backend][id(node)]
            self.release(backend, node.offset, node.allocated)

    def release(self, backend: int, offset: int, size: int) -> None:
        """Give a stretch back, joined with the gaps beside it."""
        gaps = self.gaps[backend]
        at = bisect_right(gaps, offset, key=itemgetter(0))
        if not size and at and gaps[at - 1][0] == offset:
            return
        if at and gaps[at - 1][0] + gaps[at - 1][1] == offset:
            gaps[at - 1][1] += size
            at -= 1
        else:
            gaps.insert(at, [offset, size])
        if at + 1 < len(gaps) and gaps[at][0] + gaps[at][1] == gaps[at + 1][0]:
            gaps[at][1] += gaps[at + 1][1]
            del gaps[at + 1]


def reusable(parent: GraphNode, node: GraphNode) -> bool:
    """Whether a tensor may be written over one that it reads."""
    return (
        parent.placed_on >= 0
        and parent.readers == 1
        and not parent.views
        and not parent.is_output
        and parent.type == node.type
        and parent.ne == node.ne
        and parent.nb == node.nb
    )
