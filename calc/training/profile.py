"""What one part of a model holds on its way forward and back: a layer, the embedding, or the head with the loss. Sizes
are counted by their units, so that one profile holds for any batch and any length."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import ge, sub

from calc.training.autograd import NOTHING, Bytes, CountedBy, Tape, TrackedTensor


@dataclass(frozen=True)
class Top:
    """A moment: what is alive by units, and the event of the tape after which it is."""

    bytes: Bytes
    event: int


@dataclass(frozen=True, eq=False)
class Profile:
    """What a part of a model holds beyond what stands outside of it."""

    tape: Tape
    outside: frozenset[int]  # storages that are counted elsewhere
    forward: tuple[Top, ...]  # moments when it may peak
    loss: tuple[Top, ...]
    held: Top  # after its forward pass, until autocast ends
    saved: Top  # for its backward pass
    backward: tuple[Top, ...]
    gradients: Bytes  # of its weights, once it is done
    outputs: Bytes  # what is held until the whole backward pass is over
    input: int | None  # the storage of what it reads
    width: int  # bytes of an element of what it gives

    def alive(self, event: int) -> list[int]:
        """The storages that are alive after so many events."""
        numbers: dict[int, None] = {}
        for number in self.tape.events[:event]:
            if number >= 0:
                numbers[number] = None
            else:
                del numbers[-1 - number]
        return [number for number in numbers if number not in self.outside]

    @property
    def keeps_input(self) -> bool:
        """Whether what it reads is saved."""
        return self.input in self.kept

    @cached_property
    def kept(self) -> frozenset[int]:
        """The storages that wait for the backward pass."""
        return frozenset(self.alive(self.saved.event))


def profile(
    tape: Tape,
    outside: list[TrackedTensor],
    inputs: list[TrackedTensor],
    run: Callable[[list[TrackedTensor]], TrackedTensor],
) -> Profile:
    """Run a part forward and back. `inputs` is what it reads, which nothing else refers to; it may let go of it."""
    numbers = frozenset(tensor.storage.number for tensor in outside if tensor.storage is not None)
    base = tuple(
        sum(size for number in numbers for _, unit, size in [tape.sizes[number]] if unit == u) for u in CountedBy
    )

    def now() -> Top:
        return Top(tuple(map(sub, tape.alive, base)), len(tape.events))

    def since(first: int = 0, last: int | None = None) -> tuple[Top, ...]:
        tops = [Top(tuple(map(sub, nbytes, base)), event) for event, nbytes in tape.tops[first:last]]
        return tuple(undominated(tops))

    number = inputs[0].storage.number if inputs and inputs[0].storage is not None else None
    tape.tops.clear()
    y = run(inputs)
    tape.top()
    mark = len(tape.tops) if tape.mark is None else tape.mark
    forward, loss = since(last=mark), since(mark)
    source, size = (y.node, y.slot), (y.columns, y.width, y.unit)
    inputs.clear()
    del y
    held = now()
    tape.casts.clear()
    saved = now()
    tape.tops.clear()
    if source[0] is not None:
        tape.backward((source[0], source[1]), tape.new("gradients of activations", *size))
        tape.top()
    outputs = [
        sum(tensor.columns * tensor.width for tensor in tape.outputs if tensor.unit == unit) for unit in CountedBy
    ]
    tape.outputs.clear()
    gradients = [weight.gradients[0] for weight in tape.weights]
    kept = sum(gradient.columns * gradient.width for gradient in gradients if gradient is not None)
    return Profile(
        tape, numbers, forward, loss, held, saved, since(), (kept, *NOTHING[1:]), tuple(outputs), number, size[1]
    )


def undominated(tops: list[Top]) -> list[Top]:
    """Those moments that are the peak for some batch and length."""
    best: list[Top] = []
    for top in sorted(tops, key=lambda top: top.bytes[::-1], reverse=True):
        if not any(all(map(ge, other.bytes, top.bytes)) for other in best):
            best.append(top)
    return best
