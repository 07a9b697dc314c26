"""What PyTorch's autograd holds while a layer runs forward and backward.

Layers are written in `calc.training.decoder` as their modules compute, on tensors that know nothing but their size. A
storage lives as long as something refers to it, a variable of the function that made it or a node that saved it, by
Python's own reference counts, as in PyTorch. The tape notes when each storage comes and goes.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import cast

Bytes = tuple[int, ...]
"""Bytes of each unit."""
Name = str | tuple[str, str]
"""What a storage is called: in words, or in words with {tensor} and the name that stands there."""


class CountedBy(IntEnum):
    """What a size is counted by, so that one run holds for any batch and length."""

    ONCE = 0  # weights and their gradients
    POSITION = 1  # tokens of one sequence: rotary tables
    TOKEN = 2  # tokens of a micro-batch on one rank
    STREAM = 3  # those of them that a rank holds of what is as wide as the model (sequence parallelism)
    SCORE = 4  # pairs of a token and one that it may look at
    CHUNK = 5  # chunks of tokens that a recurrent layer takes at once
    FOLLOWED = 6  # those of them that another chunk of the sequence follows
    SEQUENCE = 7  # sequences of a micro-batch


NOTHING: Bytes = (0,) * len(CountedBy)


class Storage:
    """Memory of one or more tensors; gone with the last reference, which the tape's events note."""

    __slots__ = ("events", "number")

    def __init__(self, events: list[int], number: int) -> None:
        self.events, self.number = events, number

    def __del__(self) -> None:
        self.events.append(-1 - self.number)


class TrackedTensor:
    """So many columns for each of a unit, of `width` bytes. A weight has no storage of its own here: it is counted
    with the weights."""

    __slots__ = ("by_heads", "columns", "node", "slot", "storage", "unit", "width")

    def __init__(
        self,
        storage: Storage | None,
        columns: int,
        width: int,
        unit: CountedBy,
        node: "Node | None" = None,
        slot: int = 0,
        *,
        by_heads: bool = False,
    ) -> None:
        self.storage, self.columns, self.width, self.unit = storage, columns, width, unit
        self.node, self.slot = node, slot
        self.by_heads = by_heads  # laid out head by head, not token by token


Backward = Callable[[TrackedTensor], Sequence[TrackedTensor | None]]
"""From the gradient of an operation's output to those of its inputs."""


class Node:
    """One operation as autograd remembers it: where its inputs came from, how to go back, and what it saved."""

    __slots__ = ("backward", "gradients", "inputs", "part", "place", "saved")

    def __init__(
        self,
        inputs: Sequence[tuple["Node", int] | None] = (),
        backward: Backward | None = None,
        saved: Sequence[Storage | None] = (),
        outputs: int = 1,
    ) -> None:
        self.inputs, self.backward, self.saved = inputs, backward, saved
        self.gradients: list[TrackedTensor | None] = [None] * outputs
        self.part: Checkpointed | None = None  # where to find what it saved, under which number
        self.place = 0


class Checkpointed:
    """A part that saves nothing on the way forward. The first of its nodes that needs something runs it again, as far
    as the last that saves anything (`torch/utils/checkpoint.py`, `_StopRecomputationError`)."""

    __slots__ = ("count", "run", "saved")

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        self.count = 0  # nodes that save something
        self.saved: list[Sequence[Storage | None]] | None = None  # by each of them, once it has run again


class AllSavedError(Exception):
    """A part that runs again has all that its nodes need."""


class Accumulator(Node):
    """Where the gradient of a weight ends, once those of all its uses are there."""

    __slots__ = ("left",)

    def __init__(self, uses: int = 1) -> None:
        super().__init__()
        self.left = uses


class Tape:
    """Storages in the order in which they come and go, and the nodes of the graph in the order of the forward pass."""

    def __init__(self) -> None:
        self.sizes: list[tuple[Name, CountedBy, int]] = []  # name, unit and bytes of each storage
        self.events: list[int] = []  # number of a storage that comes; of one that goes, counted from -1 down
        self.nodes: list[Node] = []
        self.weights: list[Accumulator] = []  # those that have a gradient
        self.casts: dict[TrackedTensor, TrackedTensor] = {}  # of weights, which autocast keeps until its region ends
        self.outputs: list[TrackedTensor] = []  # what a training loop holds until the backward pass is over
        self.mark: int | None = None  # events before the loss
        self.recording = True
        self.part: Checkpointed | None = None  # that runs now
        self.keeps_gradients = True  # False: they are added to those of earlier micro-batches

    def new(
        self, name: Name, columns: int, width: int, unit: CountedBy = CountedBy.TOKEN, *, by_heads: bool = False
    ) -> TrackedTensor:
        """A tensor in memory of its own."""
        number = len(self.sizes)
        self.sizes.append((name, unit, columns * width))
        self.events.append(number)
        return TrackedTensor(Storage(self.events, number), columns, width, unit, by_heads=by_heads)

    def like(self, name: Name, tensor: TrackedTensor) -> TrackedTensor:
        return self.new(name, tensor.columns, tensor.width, tensor.unit, by_heads=tensor.by_heads)

    def count_elsewhere(self, tensor: TrackedTensor) -> None:
        """Take the size off a storage that another part of the model counts."""
        assert tensor.storage is not None
        name, unit, _ = self.sizes[tensor.storage.number]
        self.sizes[tensor.storage.number] = name, unit, 0

    def record(
        self,
        out: TrackedTensor,
        inputs: Iterable[TrackedTensor],
        backward: Backward,
        saved: Sequence[Storage | None] = (),
    ) -> TrackedTensor:
        """The output of an operation, with its node where a gradient will pass."""
        if self.recording:
            sources = [None if tensor.node is None else (tensor.node, tensor.slot) for tensor in inputs]
            if any(sources):
                out.node = Node(sources, backward, saved)
                self.nodes.append(out.node)
                if saved and self.part is not None:
                    self.saved_by(self.part, out.node, out)
        return out

    @property
    def saves(self) -> bool:
        """Whether nodes keep what they save: not while a checkpointed part runs for the first time."""
        return self.recording and (self.part is None or self.part.saved is not None)

    def saved_by(self, part: Checkpointed, node: Node, out: TrackedTensor) -> None:
        """A node of a checkpointed part leaves what it saves to the second run, which ends with the last of them:
        before its operation, unless that makes what is saved."""
        if part.saved is None:
            node.saved, node.part, node.place = (), part, part.count
            part.count += 1
            return
        part.saved.append(node.saved)
        if len(part.saved) == part.count:
            if out.storage is not None and all(one is None or one.number < out.storage.number for one in node.saved):
                self.count_elsewhere(out)
            raise AllSavedError

    def unpack(self, node: Node, part: Checkpointed) -> None:
        """Give a node of a checkpointed part what it saved."""
        if part.saved is None:
            part.saved = []
            self.run_again(part)
        node.saved, part.saved[node.place], node.part = part.saved[node.place], (), None

    def run_again(self, part: Checkpointed) -> None:
        """Nothing but what is saved outlives it."""
        raise NotImplementedError

    def leaf(self, tensor: TrackedTensor) -> Node:
        """Make a tensor one whose gradient is asked for."""
        tensor.node = Node()
        return tensor.node

    def backward(self, source: tuple[Node, int], gradient: TrackedTensor) -> None:
        """Go back from an output through all nodes, the last of the forward pass first, as PyTorch's engine does."""
        self.deliver(source, gradient)
        del source, gradient
        while self.nodes:
            self.step(self.nodes.pop())

    def step(self, node: Node) -> None:
        """Go back through one node; then what it saved is let go of. A gradient belongs to the operation that it is
        handed to, which may let go of it at once."""
        backward, gradients = node.backward, node.gradients
        node.backward, node.gradients = None, []
        if backward is not None and any(gradients):
            if node.part is not None:
                self.unpack(node, node.part)
            alone = len(gradients) == 1
            results = list(backward(cast(TrackedTensor, gradients.pop() if alone else next(filter(None, gradients)))))
            del gradients, backward
            node.saved = ()
            results.reverse()
            for target in node.inputs:
                result = results.pop()
                if target is not None and result is not None:
                    self.deliver(target, result)

    def deliver(self, target: tuple[Node, int], gradient: TrackedTensor) -> None:
        """Hand a gradient to the node that made its tensor; where there is one already, their sum."""
        node, slot = target
        waiting = node.gradients[slot]
        if waiting is not None:
            waiting_name = "gradients of weights" if waiting.unit == CountedBy.ONCE else "gradients of activations"
            node.gradients[slot] = self.like(waiting_name, waiting)
        else:
            node.gradients[slot] = gradient
        if isinstance(node, Accumulator):
            del gradient
            self.accumulated(node, first=waiting is None)

    def accumulated(self, node: Accumulator, *, first: bool) -> None:
        """Keep the gradient of a weight; or let go of it once it is added to those of earlier micro-batches."""
        if first:
            self.weights.append(node)
        node.left -= 1
        if not (node.left or self.keeps_gradients):
            self.weights.remove(node)
            node.gradients = [None]
