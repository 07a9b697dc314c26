"""Figures that may be numbers, arrays of them, or numbers that remember their formulas."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int_]]


def read_only(array: Array) -> Array:
    """The array, which nobody can write to any more."""
    array.setflags(write=False)
    return array


def number(figure: Any) -> float:
    return float(np.ravel(figure)[0])


def occurs(figure: Any) -> bool:
    """Whether a figure, or one of an array, is not zero."""
    return bool(figure.any() if isinstance(figure, np.ndarray) else figure)


def lesser(a: Any, b: Any) -> Any:
    """The smaller of two numbers, or of each pair in two arrays."""
    if isinstance(a, np.ndarray):
        return np.minimum(a, b)
    return a * (a <= b) + b * (b < a)


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, or of each pair in two arrays."""
    if isinstance(a, np.ndarray):
        return np.maximum(a, b)
    return a * (a >= b) + b * (b > a)


def either(condition: Any, a: Any, b: Any) -> Any:
    """The first where a condition holds, else the second; of conditions in an array each for its own."""
    if isinstance(condition, bool):
        return a if condition else b
    if isinstance(condition, np.ndarray):
        return np.where(condition, a, b)
    return a * condition + b * (1 - condition)


def first_alike(kinds: Iterable[Hashable]) -> list[int]:
    """Number of the first equal kind, for each of some."""
    first: dict[Hashable, int] = {}
    return [first.setdefault(kind, number) for number, kind in enumerate(kinds)]
