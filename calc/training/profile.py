"""What one part of a model holds on its way forward and back: a layer, the embedding, or the head with the loss. Sizes
are counted by their units, so that one profile holds for any batch and any length."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import sub

from calc.training.autograd import NOTHING, Bytes, Name, Tape, Tensor, Unit


@dataclass(frozen=True)
class Top:
    """A moment: what is alive by units, and the event of the tape after which it is."""

    bytes: Bytes
    event: int


@dataclass(frozen=True)
class Profile:
    """What a part of a model holds beyond what stands outside of it."""

    tape: Tape
    outside: frozenset[int]  # storages that are counted elsewhere
    forward: tuple[Top, ...]  # moments when it is fullest
    loss: tuple[Top, ...]
    held: Top  # after its forward pass, until autocast ends
    saved: Top  # for its backward pass
    backward: tuple[Top, ...]
    gradients: Bytes  # of its weights, once it is done
    outputs: Bytes  # what is held until the whole backward pass is over

    def alive(self, top: Top) -> Iterator[tuple[Name, Unit, int]]:
        """Name, unit and bytes of the storages that are alive at a moment."""
        numbers: dict[int, None] = {}
        for number in self.tape.events[: top.event]:
            if number >= 0:
                numbers[number] = None
            else:
                del numbers[-1 - number]
        return (self.tape.sizes[number] for number in numbers if number not in self.outside)


def profile(tape: Tape, outside: list[Tensor], inputs: list[Tensor], run: Callable[[list[Tensor]], Tensor]) -> Profile:
    """Run a part forward and back. `inputs` is what it reads, which nothing else refers to; it may let go of it."""
    numbers = frozenset(tensor.storage.number for tensor in outside if tensor.storage is not None)
    base = tuple(sum(size for number in numbers for _, unit, size in [tape.sizes[number]] if unit == u) for u in Unit)

    def now() -> Top:
        return Top(tuple(map(sub, tape.alive, base)), len(tape.events))

    def since(first: int = 0, last: int | None = None) -> tuple[Top, ...]:
        tops = [Top(tuple(map(sub, nbytes, base)), event) for event, nbytes in tape.tops[first:last]]
        return tuple(undominated(tops))

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
    outputs = [sum(tensor.columns * tensor.width for tensor in tape.outputs if tensor.unit == unit) for unit in Unit]
    tape.outputs.clear()
    gradients = [weight.gradients[0] for weight in tape.weights]
    kept = sum(gradient.columns * gradient.width for gradient in gradients if gradient is not None)
    return Profile(tape, numbers, forward, loss, held, saved, since(), (kept, *NOTHING[1:]), tuple(outputs))


def undominated(tops: list[Top]) -> list[Top]:
    """Those moments that are fullest for some batch and length."""
    best: list[Top] = []
    for top in sorted(tops, key=lambda top: top.bytes[::-1], reverse=True):
        if not any(all(a >= b for a, b in zip(other.bytes, top.bytes, strict=True)) for other in best):
            best.append(top)
    return best
