"""Moments of a step: what is in memory, in bytes by units, so that they stand for any batch and length."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Literal, NamedTuple

from calc.training.autograd import NOTHING, Bytes, CountedBy
from calc.training.profile import Profile, TakesBytes, Top, undominated

Phase = Literal["after_init", "forward", "loss", "backward", "optimizer", "after_step"]
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

    def moments(self) -> list[StepMoment]:
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
    beside: Bytes  # by each, where part of it is not computed again
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
        if not any(self.beside):
            return [whole]
        return [whole, Tensors(times(count, self.beside), "outputs kept of every other matrix")]


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


PERIOD = 8
"""Layers of a kind after which a hybrid's order of layers begins again, at most."""


def outermost(surroundings: Iterable[Surroundings]) -> list[Surroundings]:
    """Of what is alive round the same part of the model at several depths, that which may be the most for some batch
    and length: nothing that another holds as well, nor two others on average, as many layers before and behind."""
    depths = undominated(surroundings)

    def extreme(place: int) -> bool:
        near = min(PERIOD, place, len(depths) - 1 - place)
        return not any(between(depths[place - k], depths[place], depths[place + k]) for k in range(1, near + 1))

    return [here for place, here in enumerate(depths) if extreme(place)]


def between(a: TakesBytes, middle: TakesBytes, b: TakesBytes) -> bool:
    """Whether a share x of a and 1 - x of b hold as much as the middle, of every unit: where a holds more x has a least
    value, where b does a greatest."""
    units = list(zip(a.bytes, middle.bytes, b.bytes, strict=True))
    least = [(m - z, x - z) for x, m, z in units if x > z]
    greatest = [(z - m, z - x) for x, m, z in units if x < z]
    inside = all(m <= max(x, z) for x, m, z in units)
    return inside and all(p * s <= r * q for p, q in least for r, s in greatest)
