"""Storages that PyTorch's autograd holds while a layer runs forward and backward.

Layers are written in `calc.training.decoder` as their modules compute, on tensors that know nothing but their size. The
tape notes each use of a storage: when it is made, when an operation reads it, when a node that saved it goes back. A
storage is in memory from its first use to its last. What PyTorch's Python code holds for longer than it reads it is
said so: a function that is `@scoped` holds its arguments and each `tape.local(x)` until it returns or says
`tape.free(x)`, a block its `with tape.alive(x)`. What else refers to a tensor here means nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from operator import ge
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from calc.budget import spend

Bytes = tuple[int, ...]
"""Bytes of each unit."""
Name = str | tuple[str, str]
"""Name of a storage: words, or words with {tensor} and the name that stands there."""


class CountedBy(IntEnum):
    """Unit that a size is counted by, so that one run holds for any batch and length."""

    ONCE = 0  # weights and their gradients
    POSITION = 1  # tokens of one sequence: rotary tables
    TOKEN = 2  # tokens of a micro-batch on one rank
    STREAM = 3  # those of them that a rank holds of what is as wide as the model (sequence parallelism)
    SCORE = 4  # pairs of a token and one that it may look at
    CHUNK = 5  # chunks of tokens that a recurrent layer takes at once
    FOLLOWED = 6  # those of them that another chunk of the sequence follows
    SEQUENCE = 7  # sequences of a micro-batch
    LOGITS = 8  # tokens whose logits a loss makes whole
    SCORED = 9  # tokens whose log-probabilities it reads
    SCORED_ROW = 10  # those of one sequence
    TILED = 11  # those of one tile


NOTHING: Bytes = (0,) * len(CountedBy)


@dataclass(eq=False, slots=True)
class Tracked:
    """A tensor that the tape tracks: so many columns for each of a unit, of `width` bytes, in the storage of
    this number. A weight has none here: it is counted with the weights."""

    storage: int | None
    columns: int
    width: int
    unit: CountedBy
    node: "Node | None" = None
    slot: int = 0
    by_heads: bool = field(default=False, kw_only=True)  # laid out head by head, not token by token

    @property
    def size(self) -> tuple[int, int, CountedBy]:
        return self.columns, self.width, self.unit

    def view(
        self,
        columns: int | None = None,
        unit: CountedBy | None = None,
        *,
        node: "Node | None" = None,
        by_heads: bool = False,
    ) -> "Tracked":
        """Another tensor in the same memory, by default as large."""
        columns, unit = self.columns if columns is None else columns, self.unit if unit is None else unit
        return Tracked(self.storage, columns, self.width, unit, node, by_heads=by_heads)


Gradients = Sequence[Tracked | None]
"""Gradients of an operation's inputs; None: no gradient passes there."""
Backward = Callable[[Tracked], Gradients]
"""Gradients of an operation's inputs, from that of its output."""


@dataclass(eq=False, slots=True)
class Node:
    """One operation as autograd remembers it: where its inputs came from, how to go back, and what it saved."""

    inputs: Sequence[tuple["Node", int] | None] = ()
    backward: Backward | None = None
    saved: Sequence[int | None] = ()
    gradients: list[Tracked | None] = field(default_factory=lambda: [None])  # of its outputs
    checkpointed: "Checkpointed | None" = None  # where to find what it saved, under which number
    saved_at: int = 0


@dataclass(eq=False, slots=True)
class Checkpointed:
    """A part that saves nothing but its inputs on the way forward. The first of its nodes that needs something runs it
    again, as far as the last that saves anything (`torch/utils/checkpoint.py`, `_StopRecomputationError`)."""

    run: Callable[[], None]  # nothing but what is saved outlives it
    inputs: Sequence[Tracked]
    count: int = 0  # nodes that save something
    unread: list[int] = field(default_factory=list)  # without a gradient: in memory until all others have gone
    saved: list[Sequence[int | None]] | None = None  # by each of them, once it has run again


class AllSavedError(Exception):
    """A part that runs again has all that its nodes need."""


@dataclass(eq=False, slots=True)
class Accumulator(Node):
    """End of a weight's gradient, once those of all its uses are there."""

    uses_left: int = 1


class Tape:
    """The uses of storages in their order, and the nodes of the graph in the order of the forward pass."""

    def __init__(self) -> None:
        self.sizes: list[tuple[Name, CountedBy, int]] = []  # name, unit and bytes of each storage
        self.uses: list[int] = []  # numbers of storages, as they are made and then read
        self.nodes: list[Node] = []
        self.weights: list[Accumulator] = []  # those that have a gradient
        self.leaves: list[Node] = []  # of what the part reads, whose gradients it hands on
        self.casts: dict[Tracked, Tracked] = {}  # of weights, which autocast keeps until its region ends
        self.outputs: list[Tracked] = []  # what a training loop holds until the backward pass is over
        self.uses_before_loss: int | None = None
        self.uses_in_autocast: int | None = (
            None  # uses before autocast ended, where a trainer's loss stands outside of it
        )
        self.uses_before_reference: int | None = None
        self.scopes: list[list[Tracked]] = []  # what each function that runs holds until it returns
        self.recording = True
        self.checkpointed: Checkpointed | None = None  # the part that runs now
        self.keeps_gradients = True  # False: they are added to those of earlier micro-batches

    def new(
        self,
        name: Name,
        columns: int,
        width: int,
        unit: CountedBy = CountedBy.TOKEN,
        *read: Tracked | None,
        by_heads: bool = False,
    ) -> Tracked:
        """A tensor in memory of its own, and what is read to make it."""
        number = len(self.sizes)
        self.sizes.append((name, unit, columns * width))
        self.uses.append(number)
        for tensor in read:
            if tensor is not None and tensor.storage is not None:
                self.uses.append(tensor.storage)
        return Tracked(number, columns, width, unit, by_heads=by_heads)

    def new_like(self, name: Name, tensor: Tracked, *read: Tracked | None) -> Tracked:
        """A tensor in memory of its own, as large as another and laid out like it."""
        return self.new(name, tensor.columns, tensor.width, tensor.unit, *read, by_heads=tensor.by_heads)

    def use(self, *tensors: Tracked | None) -> None:
        """Note that tensors are still in memory."""
        for tensor in tensors:
            if tensor is not None and tensor.storage is not None:
                self.uses.append(tensor.storage)

    def read(self, saved: Iterable[int | None]) -> None:
        """Note that what a node saved is still in memory."""
        self.uses += [number for number in saved if number is not None]

    @contextmanager
    def alive(self, *tensors: Tracked | None) -> Iterator[None]:
        """Tensors that are in memory until the block ends, whatever reads them last."""
        try:
            yield
        finally:
            self.use(*tensors)

    def local(self, tensor: Tracked) -> Tracked:
        """A tensor that is in memory until the function in which it is made returns."""
        self.scopes[-1].append(tensor)
        return tensor

    def free(self, *tensors: Tracked) -> None:
        """Let go of what a function holds before it returns."""
        self.use(*tensors)
        for tensor in tensors:
            if tensor in self.scopes[-1]:
                self.scopes[-1].remove(tensor)

    def count_elsewhere(self, tensor: Tracked) -> None:
        """Take the size off a storage that another part of the model counts."""
        assert tensor.storage is not None
        name, unit, _ = self.sizes[tensor.storage]
        self.sizes[tensor.storage] = name, unit, 0

    def record(
        self, out: Tracked, inputs: Iterable[Tracked], backward: Backward, saved: Sequence[int | None] = ()
    ) -> Tracked:
        """The output of an operation that has read its inputs, with its node where a gradient will pass."""
        spend()
        inputs = [*inputs]
        self.use(out, *inputs)
        if self.recording:
            sources = [None if tensor.node is None else (tensor.node, tensor.slot) for tensor in inputs]
            if any(sources):
                out.node = Node(sources, backward, saved)
                self.nodes.append(out.node)
                if saved and self.checkpointed is not None:
                    self.saved_by(self.checkpointed, out.node, out)
        return out

    @property
    def saves(self) -> bool:
        """Whether nodes keep what they save: not while a checkpointed part runs for the first time."""
        return self.recording and (self.checkpointed is None or self.checkpointed.saved is not None)

    def saved_by(self, part: Checkpointed, node: Node, out: Tracked) -> None:
        """A node of a checkpointed part leaves what it saves to the second run, which ends with the last of them:
        before its operation, unless that makes what is saved."""
        if part.saved is None:
            node.saved, node.checkpointed, node.saved_at = (), part, part.count
            part.count += 1
            return
        part.saved.append(node.saved)
        if len(part.saved) == part.count:
            if out.storage is not None and all(saved is None or saved < out.storage for saved in node.saved):
                self.count_elsewhere(out)
            raise AllSavedError

    def unpack(self, node: Node, part: Checkpointed) -> None:
        """Give a node what it saved, for which its part runs again where none of its nodes has asked before."""
        self.use(*part.inputs)
        if part.saved is None:
            part.saved = []
            part.run()
        for place in part.unread:
            self.read(part.saved[place])
        node.saved, part.saved[node.saved_at], node.checkpointed = part.saved[node.saved_at], (), None

    def leaf(self, tensor: Tracked) -> Node:
        """Make a tensor one whose gradient is asked for."""
        tensor.node = Node()
        self.leaves.append(tensor.node)
        return tensor.node

    def backward(self, source: tuple[Node, int], gradient: Tracked) -> None:
        """Go back from an output through all nodes, the last of the forward pass first, as PyTorch's engine does."""
        self.deliver(source, gradient)
        while self.nodes:
            self.step_back(self.nodes.pop())

    def step_back(self, node: Node) -> None:
        """Go back through one node: its gradient is in memory until its backward returns, unless that frees it before;
        what it saved, until then too."""
        results: Gradients = ()
        gradients = [gradient for gradient in node.gradients if gradient is not None]
        if node.backward is not None and gradients:
            if node.checkpointed is not None:
                self.unpack(node, node.checkpointed)
            self.scopes.append(gradients)
            results, node.backward = node.backward(gradients[0]), None
            self.use(*self.scopes.pop())
        elif node.checkpointed is not None:
            node.checkpointed.unread.append(node.saved_at)
        if node.saved:
            self.read(node.saved)
        for target, result in zip(node.inputs, results, strict=False):
            if target is not None and result is not None:
                self.deliver(target, result)

    def deliver(self, target: tuple[Node, int], gradient: Tracked) -> None:
        """Hand a gradient to the node that made its tensor; where there is one already, their sum."""
        node, slot = target
        waiting = node.gradients[slot]
        if waiting is not None:
            name = "gradients of weights" if waiting.unit == CountedBy.ONCE else "gradients of activations"
            gradient = self.new_like(name, waiting, waiting, gradient)
        self.use(gradient)
        node.gradients[slot] = gradient
        if isinstance(node, Accumulator):
            self.accumulated(node, first=waiting is None)

    def accumulated(self, node: Accumulator, *, first: bool) -> None:
        """Keep the gradient of a weight; or let go of it once it is added to those of earlier micro-batches."""
        if first:
            self.weights.append(node)
        node.uses_left -= 1
        if not (node.uses_left or self.keeps_gradients):
            self.weights.remove(node)
            node.gradients = [None]

    def events(self, outside: Container[int | None] = ()) -> tuple[list[int], list[int]]:
        """Numbers of storages in the order in which they come and go, but for those that are counted outside; what goes
        is counted from -1 down. Next to them twice the uses of the tape before each."""
        uses = self.uses
        last = dict(zip(uses, range(len(uses)), strict=True))  # in the order in which they come
        first = dict(zip(reversed(uses), range(len(uses) - 1, -1, -1), strict=True))  # the last that goes before others
        come = [2 * first[number] for number in last if number not in outside]
        go = [2 * last[number] + 1 for number in reversed(first) if number not in outside]
        places = sorted(come + go)
        return [-1 - uses[place // 2] if place % 2 else uses[place // 2] for place in places], places


Arguments = ParamSpec("Arguments")
AnyTape = TypeVar("AnyTape", bound=Tape)
Result = TypeVar("Result")


def scoped(
    function: Callable[Concatenate[AnyTape, Arguments], Result],
) -> Callable[Concatenate[AnyTape, Arguments], Result]:
    """A function on a tape that holds its arguments, and what is local to it, until it returns."""

    @wraps(function)
    def holding(tape: AnyTape, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        tape.scopes.append([argument for argument in args if type(argument) is Tracked])
        try:
            return function(tape, *args, **kwargs)
        finally:
            tape.use(*tape.scopes.pop())

    return holding


# What one part of a model holds on its way forward and back: a layer, the embedding, or the head with the loss. Sizes
# are counted by their units, so that one profile holds for any batch and any length.


class Snapshot(NamedTuple):
    """Bytes alive by units, and the event of the tape after which they are."""

    bytes: Bytes
    event: int


@dataclass(frozen=True, eq=False)
class Profile:
    """Memory of a part of a model without what stands outside of it."""

    sizes: list[tuple[Name, CountedBy, int]]  # name, unit and bytes of each storage
    events: list[int]  # storages that come, and those that go
    forward: tuple[Snapshot, ...]  # moments when it may peak
    loss: tuple[Snapshot, ...]
    after_autocast: tuple[Snapshot, ...]  # of the loss, once autocast has ended
    reference: Snapshot | None  # while a reference runs
    after_forward: Snapshot  # until autocast ends
    saved: Snapshot  # for its backward pass
    backward: tuple[Snapshot, ...]
    gradients: Bytes  # of its weights, once it is done
    outputs: Bytes  # what is held until the whole backward pass is over
    keeps_gradients: bool  # False: they are added to what is held elsewhere
    width: int  # bytes of an element of what it gives
    keeps_input: bool  # whether what it reads waits for its backward pass
    waiting: frozenset[int]  # the storages that do
    contents: dict[int, Any] = field(default_factory=dict)  # after an event, once it was asked for
    components: dict[int, Any] = field(default_factory=dict)  # likewise


def alive_after(events: list[int], event: int) -> list[int]:
    """The storages that are alive after so many events."""
    numbers: dict[int, None] = {}
    for number in events[:event]:
        if number >= 0:
            numbers[number] = None
        else:
            del numbers[-1 - number]
    return list(numbers)


def profile(
    tape: Tape, outside: list[Tracked], inputs: list[Tracked], run: Callable[[list[Tracked]], Tracked]
) -> Profile:
    """Run a part forward and back. `inputs` is what it reads, which is in memory until it has run forward; what
    autocast has cast, until its region ends."""
    marks = [len(tape.uses)]
    y = run(inputs)
    marks += [len(tape.uses) if tape.uses_before_loss is None else tape.uses_before_loss, len(tape.uses)]
    tape.use(y, *(inputs if tape.uses_in_autocast is None else ()))
    marks.append(len(tape.uses))
    tape.use(*tape.casts, *tape.casts.values())
    marks.append(len(tape.uses))
    if y.node is not None:
        tape.backward((y.node, y.slot), tape.new("gradients of activations", y.columns, y.width, y.unit))
    marks.append(len(tape.uses))
    outputs = [*NOTHING]
    for tensor in tape.outputs:
        outputs[tensor.unit] += tensor.columns * tensor.width
    gradients = [weight.gradients[0] for weight in tape.weights]
    of_weights = sum(gradient.columns * gradient.width for gradient in gradients if gradient is not None)
    tape.use(*tape.outputs, *gradients, *(leaf.gradients[0] for leaf in tape.leaves))
    events, places = tape.events({tensor.storage for tensor in outside})

    def before(uses: int) -> int:
        return bisect_left(places, 2 * uses)

    entered, marked, left, after_forward, saved, done = map(before, marks)
    meter = Meter(tape, events)
    meter.at(entered)
    forward = meter.peaks(marked)
    loss: tuple[Snapshot, ...] = ()
    after_autocast: tuple[Snapshot, ...] = ()
    reference: Snapshot | None = None
    if tape.uses_before_loss is not None:
        loss = meter.peaks(left if tape.uses_in_autocast is None else before(tape.uses_in_autocast))
    if tape.uses_before_reference is not None:
        after_autocast = meter.peaks(before(tape.uses_before_reference))
        reference = meter.at(meter.event)
    if tape.uses_in_autocast is not None:
        after_autocast += meter.peaks(left)
    waiting = frozenset(alive_after(events, saved))
    return Profile(
        sizes=tape.sizes,
        events=events,
        forward=forward,
        loss=loss,
        after_autocast=after_autocast,
        reference=reference,
        after_forward=meter.at(after_forward),
        saved=meter.at(saved),
        backward=() if y.node is None else meter.peaks(done),
        gradients=(of_weights, *NOTHING[1:]),
        outputs=tuple(outputs),
        keeps_gradients=tape.keeps_gradients,
        width=y.width,
        keeps_input=bool(inputs) and inputs[0].storage in waiting,
        waiting=waiting,
    )


class Meter:
    """Reads the events of a tape one after the other: what is alive by units."""

    def __init__(self, tape: Tape, events: list[int]) -> None:
        self.sizes = [(unit, int(nbytes)) for _, unit, nbytes in tape.sizes]  # plain, also where they are traced
        self.events = events
        self.alive, self.event = list(NOTHING), 0

    def at(self, event: int) -> Snapshot:
        """Bytes in memory after so many events, by units."""
        self.peaks(event)
        return Snapshot(tuple(self.alive), event)

    def peaks(self, event: int) -> tuple[Snapshot, ...]:
        """The moments up to an event, itself one of them, that are the peak for some batch and length: each time that
        something goes after something came."""
        alive, sizes, rising, snapshots = self.alive, self.sizes, True, list[Snapshot]()
        for place, number in enumerate(self.events[self.event : event], self.event):
            if number >= 0:
                unit, nbytes = sizes[number]
                alive[unit] += nbytes
                rising = True
            else:
                if rising:
                    snapshots.append(Snapshot(tuple(alive), place))
                    rising = False
                unit, nbytes = sizes[-1 - number]
                alive[unit] -= nbytes
        self.event = event
        return undominated([*snapshots, Snapshot(tuple(alive), event)])


def undominated(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """Moments that are the peak for some batch and length."""
    best: list[Snapshot] = []
    for top in sorted(snapshots, key=lambda top: top.bytes[::-1], reverse=True):
        nbytes = top.bytes
        for other in best:
            if all(map(ge, other.bytes, nbytes)):
                break
        else:
            best.append(top)
    return tuple(best)
