"""What is in memory at a moment of a step, by name: the parts whose sum is the number."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import mul

from calc.errors import Message
from calc.training.autograd import NOTHING, Bytes, Name
from calc.training.ends import LOGIT_GRADIENTS
from calc.training.moments import UPDATE, Held, StepMoment, TrainingComponent, plus
from calc.training.training_operations import WEIGHT_GRADIENTS

LOGITS = frozenset(
    {
        "logits",
        "logits in 32 bits",
        "logits after tanh",
        "log-softmax of the logits",
        "logits of a chunk",
        "logits of a tile",
        "gradients of the states that the head reads",
        "loss",
        LOGIT_GRADIENTS,
    }
)
WEIGHTS = frozenset(
    {
        "weights in 16 bits",
        "weights in 32 bits",
        "weights of the router in 32 bits",
        "dequantized matrix",
        "adapters of experts in 16 bits",
        "experts with their adapters",
    }
)


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors of one name that are alive at a moment."""

    name: Message
    component: TrainingComponent
    bytes: int
    temporary: bool  # made at this moment and gone soon after it; all else was there or waits


@dataclass(frozen=True)
class Line:
    """The same as bytes by units."""

    name: Name
    component: TrainingComponent
    bytes: Bytes
    temporary: bool


def lines_of(moment: StepMoment) -> list[Line]:
    """What is alive at a moment, one line a name."""
    lines: dict[tuple[Name, TrainingComponent, bool], Bytes] = {}
    for held in moment.held:
        for name, component, nbytes, temporary in contents(held):
            key = name, component, temporary
            lines[key] = plus(lines.get(key, NOTHING), nbytes)
    return [
        Line(name, component, nbytes, temporary)
        for (name, component, temporary), nbytes in lines.items()
        if any(nbytes)
    ]


def contents(held: Held) -> Iterator[tuple[Name, TrainingComponent, Bytes, bool]]:
    """The tensors of what is held."""
    if held.profile is None:
        yield held.name, held.component, held.bytes, held.name == UPDATE
        return
    profile = held.profile
    if not any(held.bytes):
        return
    for number in profile.alive(held.event):
        name, unit, size = profile.tape.sizes[number]
        nbytes = tuple(held.times * size if unit == other else 0 for other in range(len(NOTHING)))
        yield name, component_of(name, keeps_gradients=profile.tape.keeps_gradients), nbytes, number not in profile.kept


def component_of(name: Name, *, keeps_gradients: bool) -> TrainingComponent:
    """What a tensor of a pass is counted as; a gradient that is added to what is held elsewhere is soon gone."""
    if name == WEIGHT_GRADIENTS:
        return "gradients" if keeps_gradients else "temporaries"
    if name in LOGITS:
        return "logits"
    return "weights" if name in WEIGHTS else "activations"


def message(name: Name) -> Message:
    return Message(name) if isinstance(name, str) else Message(name[0], tensor=Message(name[1]))


def parts_of(lines: list[Line], units: Bytes) -> tuple[Part, ...]:
    """The parts of a moment for a batch and a length, the largest first."""
    parts = [Part(message(line.name), line.component, dot(line.bytes, units), line.temporary) for line in lines]
    return tuple(sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes))


def dot(nbytes: Bytes, units: Bytes) -> int:
    """Bytes for a batch and a length."""
    return sum(map(mul, nbytes, units))
