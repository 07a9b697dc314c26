"""Moments of a step: what is in memory, in bytes by units, so that they stand for any batch and length;
and by name: the parts whose sum is the number."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import add, mul
from typing import Literal, NamedTuple

from calc.errors import Message
from calc.training.ends import LOGIT_GRADIENTS
from calc.training.operations import WEIGHT_GRADIENTS
from calc.training.profile import Profile, Top
from calc.training.tape import NOTHING, Bytes, CountedBy, Name

Phase = Literal["after_init", "reference", "forward", "loss", "backward", "optimizer", "after_step"]
TrainingComponent = Literal[
    "weights", "master_weights", "gradients", "optimizer", "activations", "logits", "temporaries"
]


UPDATE = "what the optimizer needs for its update"


class Tensors(NamedTuple):
    """Tensors that are in memory: bytes by units under a name, or so many times what a part of the model holds after
    an event of its tape."""

    bytes: Bytes
    name: str = ""
    component: TrainingComponent = "activations"
    profile: Profile | None = None
    event: int = 0
    times: int = 1

    def plus(self, more: "Tensors") -> "Tensors":
        """With as many again of the same."""
        return self._replace(bytes=plus(self.bytes, more.bytes), times=self.times + more.times)


@dataclass(frozen=True, eq=False)
class StepMoment:
    """When a rank may peak."""

    phase: Phase
    bytes: Bytes
    tensors: tuple[Tensors, ...]

    @cached_property
    def lines(self) -> list["Line"]:
        """What is alive, one line a name."""
        lines: dict[Label, Bytes] = {}
        for tensors in merged(self.tensors):
            for label, nbytes in labelled(tensors):
                lines[label] = plus(lines.get(label, NOTHING), nbytes)
        return [Line(name, component, nbytes, temporary) for (name, component, temporary), nbytes in lines.items()]


class Alive(NamedTuple):
    """Tensors that are alive at once, and their bytes."""

    bytes: Bytes = NOTHING
    tensors: tuple[Tensors, ...] = ()

    def plus(self, more: Sequence[Tensors]) -> "Alive":
        return Alive(plus(self.bytes, *(tensors.bytes for tensors in more)), (*self.tensors, *more))

    def around(self, moment: StepMoment) -> StepMoment:
        """A moment at which all of this is there too."""
        return StepMoment(moment.phase, plus(self.bytes, moment.bytes), (*self.tensors, *moment.tensors))


IDLE = Top(NOTHING, 0)
"""No part of the model is at work."""


class Surroundings(NamedTuple):
    """What is alive in a phase round a part of the model, and the moments of that part; None: none is at work."""

    phase: Phase
    alive: Alive
    profile: Profile | None = None
    tops: tuple[Top, ...] = (IDLE,)

    @property
    def bytes(self) -> Bytes:
        return self.alive.bytes

    def step_moments(self) -> list[StepMoment]:
        return [
            StepMoment(self.phase, *self.alive.plus([Tensors(top.bytes, profile=self.profile, event=top.event)]))
            for top in self.tops
        ]


@dataclass(frozen=True, eq=False)
class Run:
    """Equal layers in a row, or an end of the model."""

    profile: Profile
    layers: int
    first: int  # index of the first; OUTSIDE or EMBEDDING, below 0, for what is no layer
    saved: Bytes  # by each, for its backward pass
    forward: Bytes  # by each, from its forward pass until autocast ends
    alternate_outputs: Bytes  # by each, where part of it is not computed again
    gradients: int  # bytes that each leaves behind
    gathered: int  # bytes of its weights as FSDP gathers them
    unreduced: int  # bytes of its gradients as autograd makes them
    reduced: int  # bytes of its gradients as FSDP reduces them
    shards: int  # bytes of this rank's part of them as it arrives, and of its cast to what stays

    def waiting(self, layers: int) -> list[Tensors]:
        """What so many of them keep for their backward pass."""
        return self._tensors(self.saved, self.profile.saved.event, layers)

    def holding(self, layers: int) -> list[Tensors]:
        """What so many of them hold on the way forward."""
        return self._tensors(self.forward, self.profile.after_forward.event, layers)

    def _tensors(self, nbytes: Bytes, event: int, count: int) -> list[Tensors]:
        whole = Tensors(times(count, nbytes), profile=self.profile, event=event, times=count)
        if not any(self.alternate_outputs):
            return [whole]
        return [whole, Tensors(times(count, self.alternate_outputs), "outputs kept of every other matrix")]


def plus(first: Bytes, *others: Bytes) -> Bytes:
    for other in others:
        first = tuple(map(add, first, other))
    return first


def by(unit: CountedBy, nbytes: int) -> Bytes:
    """Bytes of each of a unit."""
    return tuple(nbytes if unit == other else 0 for other in CountedBy)


def times(count: int, nbytes: Bytes) -> Bytes:
    return tuple([count * size for size in nbytes])


def once(nbytes: int) -> Bytes:
    """Bytes that no batch changes."""
    return (nbytes, *NOTHING[1:])


LOGITS = frozenset(
    {
        "logits",
        "logits in 32 bits",
        "logits after tanh",
        "log-softmax of the logits",
        "logits of a chunk",
        "logits of a tile",
        "logits over the temperature",
        "logits of the reference",
        "logits of the teacher",
        "log-softmax of the teacher's logits",
        "log-probabilities of the mixture",
        "distributions of both models",
        "probabilities of the vocabulary",
        "differences of log-probabilities",
        "divergences",
        "gradients of a tile of logits",
        "copy of the logits",
        "exponentials of the logits",
        "entropies",
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
        component = component_of(name, keeps_gradients=profile.keeps_gradients)
        yield (name, component, not waits), times(tensors.times, nbytes)


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
