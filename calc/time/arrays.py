"""Arrays by what is in them, and things by what many of them have alike."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int_]]
Likeness = TypeVar("Likeness", bound=Hashable)


def read_only(array: Array) -> Array:
    """The array, which nobody can write to any more."""
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class Alike(Generic[Likeness]):
    """Things, such as GPUs, by something that many of them have alike."""

    kinds: tuple[Likeness, ...]
    first: list[int]  # the first thing of each kind
    which: list[int]  # the kind of each thing

    @classmethod
    def of(cls, kinds: Iterable[Likeness]) -> "Alike[Likeness]":
        numbers, first, which = dict[Likeness, int](), list[int](), list[int]()
        for place, kind in enumerate(kinds):
            if kind not in numbers:
                numbers[kind] = len(first)
                first.append(place)
            which.append(numbers[kind])
        return cls(tuple(numbers), first, which)
