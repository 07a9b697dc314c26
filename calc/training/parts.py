"""What is in memory at a moment of a step, by name: the parts whose sum is the number."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from calc.errors import Message
from calc.training.autograd import NOTHING, Bytes, Name
from calc.training.ends import LOGIT_GRADIENTS
from calc.training.moments import UPDATE, StepMoment, Tensors, TrainingComponent, plus, times
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


class Line(NamedTuple):
    """The same as bytes by units."""

    name: Name
    component: TrainingComponent
    bytes: Bytes
    temporary: bool


Label = tuple[Name, TrainingComponent, bool]
"""Of a line: its name, its component, and whether it is temporary."""


def lines_of(moment: StepMoment) -> list[Line]:
    """What is alive at a moment, one line a name."""
    lines: dict[Label, Bytes] = {}
    for tensors in merged(moment.tensors):
        for label, nbytes in labelled(tensors):
            lines[label] = plus(lines.get(label, NOTHING), nbytes)
    return [Line(name, component, nbytes, temporary) for (name, component, temporary), nbytes in lines.items()]


def merged(tensors: Iterable[Tensors]) -> Iterable[Tensors]:
    """Those of equal layers as one, wherever these stand."""
    alike: dict[tuple[object, ...], Tensors] = {}
    for more in tensors:
        if any(more.bytes):
            key = more.name, more.component, more.profile, more.event
            earlier = alike.get(key)
            alike[key] = more if earlier is None else earlier.plus(more)
    return alike.values()


def labelled(tensors: Tensors) -> Iterator[tuple[Label, Bytes]]:
    """The same by name; each tensor of what a part of the model holds."""
    profile = tensors.profile
    if profile is None:
        yield (tensors.name, tensors.component, tensors.name == UPDATE), tensors.bytes
        return
    for (name, waits), nbytes in profile.names(tensors.event).items():
        component = component_of(name, keeps_gradients=profile.tape.keeps_gradients)
        yield (name, component, not waits), times(tensors.times, nbytes)


def component_of(name: Name, *, keeps_gradients: bool) -> TrainingComponent:
    """What a tensor of a pass is counted as; a gradient that is added to what is held elsewhere is soon gone."""
    if name == WEIGHT_GRADIENTS:
        return "gradients" if keeps_gradients else "temporaries"
    if name in LOGITS:
        return "logits"
    return "weights" if name in WEIGHTS else "activations"


@lru_cache(maxsize=1024)
def message(name: Name) -> Message:
    return Message(name) if isinstance(name, str) else Message(name[0], tensor=Message(name[1]))


def parts_of(lines: list[Line], units: Bytes) -> tuple[Part, ...]:
    """The parts of a moment for a batch and a length, the largest first."""
    parts = [Part(message(line.name), line.component, dot(line.bytes, units), line.temporary) for line in lines]
    return tuple(sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes))


def dot(nbytes: Bytes, units: Bytes) -> int:
    """Bytes for a batch and a length."""
    return sum(map(mul, nbytes, units))
