"""Moments of a step: what is held, in bytes by units, so that they stand for any batch and length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import ge
from typing import Literal

from calc.training.autograd import NOTHING, Bytes, CountedBy
from calc.training.profile import Profile, Top

Phase = Literal["after_init", "forward", "loss", "backward", "optimizer", "after_step"]
TrainingComponent = Literal[
    "weights", "master_weights", "gradients", "optimizer", "activations", "logits", "temporaries"
]


UPDATE = "what the optimizer needs for its update"


@dataclass(frozen=True, eq=False)
class Held:
    """Something that is in memory: bytes by units under a name, or so many times what a part of the model holds after
    an event of its tape."""

    bytes: Bytes
    name: str = ""
    component: TrainingComponent = "activations"
    profile: Profile | None = None
    event: int = 0
    times: int = 1


@dataclass(frozen=True, eq=False)
class StepMoment:
    """When a rank may peak."""

    phase: Phase
    bytes: Bytes
    held: tuple[Held, ...]


@dataclass(frozen=True, eq=False)
class Alive:
    """Things that are held at once, and their bytes."""

    bytes: Bytes = NOTHING
    held: tuple[Held, ...] = ()

    def plus(self, more: Sequence[Held]) -> "Alive":
        return Alive(plus(self.bytes, *(one.bytes for one in more)), (*self.held, *more))

    def around(self, moment: StepMoment) -> StepMoment:
        """A moment at which all of this is there too."""
        return StepMoment(moment.phase, plus(self.bytes, moment.bytes), (*self.held, *moment.held))

    def moment(self, phase: Phase) -> StepMoment:
        return StepMoment(phase, self.bytes, self.held)

    def tops(self, phase: Phase, profile: Profile, tops: Iterable[Top]) -> Iterator[StepMoment]:
        """Each moment of a part of the model, with all of this round it."""
        for top in tops:
            yield self.plus([Held(top.bytes, profile=profile, event=top.event)]).moment(phase)


@dataclass(frozen=True, eq=False)
class Run:
    """Equal layers in a row, or an end of the model."""

    profile: Profile
    layers: int
    first: int  # index of the first; OUTSIDE or EMBEDDING, below 0, for what is no layer
    saved: Bytes  # by each, for its backward pass
    held: Bytes  # by each, until autocast ends
    beside: Bytes  # by each, where part of it is not computed again
    gradients: int  # bytes that each leaves behind
    gathered: int  # bytes of its weights as FSDP gathers them
    unreduced: int  # bytes of its gradients as autograd makes them
    reduced: int  # bytes of its gradients as FSDP reduces them
    shards: int  # bytes of this rank's part of them as it arrives, and of its cast to what is kept

    def waiting(self, layers: int) -> list[Held]:
        """What so many of them keep for their backward pass."""
        return self._held(self.saved, self.profile.saved.event, layers)

    def holding(self, layers: int) -> list[Held]:
        """What so many of them hold on the way forward."""
        return self._held(self.held, self.profile.held.event, layers)

    def _held(self, nbytes: Bytes, event: int, count: int) -> list[Held]:
        beside = Held(times(count, self.beside), "outputs kept of every other matrix")
        whole = Held(times(count, nbytes), profile=self.profile, event=event, times=count)
        return [whole, beside] if any(self.beside) else [whole]


def plus(*sums: Bytes) -> Bytes:
    return tuple(map(sum, zip(*sums, strict=True)))


def by(unit: CountedBy, nbytes: int) -> Bytes:
    """Bytes of each of a unit."""
    return tuple(nbytes if unit == other else 0 for other in CountedBy)


def times(count: int, nbytes: Bytes) -> Bytes:
    return tuple(count * size for size in nbytes)


def once(nbytes: int) -> Bytes:
    """Bytes that no batch changes."""
    return (nbytes, *NOTHING[1:])


def undominated(moments: Iterable[StepMoment]) -> list[StepMoment]:
    """Those that are the peak for some batch and length."""
    best: list[StepMoment] = []
    for moment in sorted(moments, key=lambda moment: moment.bytes[::-1], reverse=True):
        if not any(all(map(ge, other.bytes, moment.bytes)) for other in best):
            best.append(moment)
    return best
