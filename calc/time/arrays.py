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


def any_nonzero(figure: Any) -> bool:
    """Whether a number, or any of an array, is not zero."""
    return bool(figure.any() if isinstance(figure, np.ndarray) else figure)


def minimum(x: Any, y: Any) -> Any:
    """The smaller of two numbers, or of each pair in two arrays."""
    if isinstance(x, np.ndarray):
        return np.minimum(x, y)
    return x * (x <= y) + y * (y < x)


def maximum(x: Any, y: Any) -> Any:
    """The larger of two numbers, or of each pair in two arrays."""
    if isinstance(x, np.ndarray):
        return np.maximum(x, y)
    return x * (x >= y) + y * (y > x)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where a condition holds, else `y`; element by element where the condition is an array, as np.where."""
    if isinstance(condition, bool):
        return x if condition else y
    if isinstance(condition, np.ndarray):
        return np.where(condition, x, y)
    return x * condition + y * (1 - condition)


def first_equal(kinds: Iterable[Hashable]) -> list[int]:
    """Index of the first equal one, for each of some kinds [kinds]."""
    first: dict[Hashable, int] = {}
    return [first.setdefault(kind, number) for number, kind in enumerate(kinds)]
