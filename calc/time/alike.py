"""Things by what many of them have alike."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Likeness = TypeVar("Likeness", bound=Hashable)


@dataclass(frozen=True)
class Alike(Generic[Likeness]):
    """Things, such as GPUs, by something that many of them have alike."""

    kinds: tuple[Likeness, ...]
    first: list[int]  # the first thing of each kind
    which: list[int]  # the kind of each thing

    @classmethod
    def of(cls, kinds: Iterable[Likeness]) -> "Alike[Likeness]":
        of_each = tuple(kinds)
        unlike = tuple(dict.fromkeys(of_each))
        numbers = {kind: number for number, kind in enumerate(unlike)}
        return cls(unlike, [of_each.index(kind) for kind in unlike], [numbers[kind] for kind in of_each])
