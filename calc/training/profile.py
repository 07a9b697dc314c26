"""What one part of a model holds on its way forward and back: a layer, the embedding, or the head with the loss. Sizes
are counted by their units, so that one profile holds for any batch and any length."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import ge
from typing import NamedTuple, Protocol, TypeVar

from calc.training.tape import NOTHING, Bytes, CountedBy, Name, Tape, TrackedTensor


class Top(NamedTuple):
    """A moment: what is alive by units, and the event of the tape after which it is."""

    bytes: Bytes
    event: int


@dataclass(frozen=True, eq=False)
class Profile:
    """What a part of a model holds beyond what stands outside of it."""

    sizes: list[tuple[Name, CountedBy, int]]  # name, unit and bytes of each storage
    events: list[int]  # storages that come, and those that go
    forward: tuple[Top, ...]  # moments when it may peak
    loss: tuple[Top, ...]
    after_forward: Top  # until autocast ends
    saved: Top  # for its backward pass
    backward: tuple[Top, ...]
    gradients: Bytes  # of its weights, once it is done
    outputs: Bytes  # what is held until the whole backward pass is over
    keeps_gradients: bool  # False: they are added to what is held elsewhere
    width: int  # bytes of an element of what it gives
    keeps_input: bool  # whether what it reads waits for its backward pass
    waiting: frozenset[int]  # the storages that do

    def names(self, event: int) -> dict[tuple[Name, bool], Bytes]:
        """Bytes of what is alive after so many events, by name and by whether it waits for the backward pass."""
        names: dict[tuple[Name, bool], list[int]] = {}
        for number in alive(self.events, event):
            name, unit, size = self.sizes[number]
            names.setdefault((name, number in self.waiting), [*NOTHING])[unit] += size
        return {name: tuple(nbytes) for name, nbytes in names.items() if any(nbytes)}


def alive(events: list[int], event: int) -> list[int]:
    """The storages that are alive after so many events."""
    numbers: dict[int, None] = {}
    for number in events[:event]:
        if number >= 0:
            numbers[number] = None
        else:
            del numbers[-1 - number]
    return list(numbers)


def profile(
    tape: Tape,
    outside: list[TrackedTensor],
    inputs: list[TrackedTensor],
    run: Callable[[list[TrackedTensor]], TrackedTensor],
) -> Profile:
    """Run a part forward and back. `inputs` is what it reads, which is in memory until it has run forward; what
    autocast has cast, until its region ends."""
    marks = [len(tape.uses)]
    y = run(inputs)
    marks += [len(tape.uses) if tape.mark is None else tape.mark, len(tape.uses)]
    tape.use(y, *inputs)
    marks.append(len(tape.uses))
    tape.use(*tape.casts, *tape.casts.values())
    marks.append(len(tape.uses))
    if y.node is not None:
        tape.backward((y.node, y.slot), tape.new("gradients of activations", y.columns, y.width, y.unit))
    marks.append(len(tape.uses))
    outputs = [
        sum(tensor.columns * tensor.width for tensor in tape.outputs if tensor.unit == unit) for unit in CountedBy
    ]
    gradients = [weight.gradients[0] for weight in tape.weights]
    of_weights = sum(gradient.columns * gradient.width for gradient in gradients if gradient is not None)
    tape.use(*tape.outputs, *gradients, *(leaf.gradients[0] for leaf in tape.leaves))
    timeline = tape.timeline({tensor.storage for tensor in outside})
    entered, marked, left, after_forward, saved, done = map(timeline.before, marks)
    events = timeline.events
    meter = Meter(tape, events)
    meter.at(entered)
    forward = meter.peaks(marked)
    waiting = frozenset(alive(events, saved))
    return Profile(
        sizes=tape.sizes,
        events=events,
        forward=forward,
        loss=() if tape.mark is None else meter.peaks(left),
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

    def at(self, event: int) -> Top:
        """What is alive after so many events."""
        self.peaks(event)
        return Top(tuple(self.alive), event)

    def peaks(self, event: int) -> tuple[Top, ...]:
        """The moments up to an event, itself one of them, that are the peak for some batch and length: each time that
        something goes after something came."""
        alive, sizes, rising, tops = self.alive, self.sizes, True, list[Top]()
        for place, number in enumerate(self.events[self.event : event], self.event):
            if number >= 0:
                unit, nbytes = sizes[number]
                alive[unit] += nbytes
                rising = True
            else:
                if rising:
                    tops.append(Top(tuple(alive), place))
                    rising = False
                unit, nbytes = sizes[-1 - number]
                alive[unit] -= nbytes
        self.event = event
        return tuple(undominated([*tops, Top(tuple(alive), event)]))


class TakesBytes(Protocol):
    """What takes bytes by units."""

    @property
    def bytes(self) -> Bytes: ...


AnyMoment = TypeVar("AnyMoment", bound=TakesBytes)


def undominated(points: Iterable[AnyMoment]) -> list[AnyMoment]:
    """Those that are the peak for some batch and length."""
    best: list[AnyMoment] = []
    for moment in sorted(points, key=lambda moment: moment.bytes[::-1], reverse=True):
        nbytes = moment.bytes
        for other in best:
            if all(map(ge, other.bytes, nbytes)):
                break
        else:
            best.append(moment)
    return best
