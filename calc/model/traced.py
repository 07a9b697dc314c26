"""Whole numbers that remember the formula that they came from.

A computation that runs on them is the same code, takes the same branches, and yields the number and its derivation at
once: `TracedSymbols().apply(model)` is the model with such sizes.
"""

from collections.abc import Callable
from operator import add, floordiv, mul, neg, sub, truediv
from typing import Any, Self

from calc.model.derivation import Step, Symbols

Operation = Callable[..., Any]


class Traced(int):
    """A whole number with how it was computed. Sums, products and quotients carry that on, and SymPy sees it only when
    the formula is asked for; comparisons are those of numbers."""

    operation: Operation | None
    arguments: tuple[Any, ...]  # of the operation; or the formula alone

    def __new__(cls, value: int, operation: Operation | None, *arguments: Any) -> Self:
        number = super().__new__(cls, value)
        number.operation, number.arguments = operation, arguments
        return number

    def __add__(self, other: int) -> "Traced":
        return Traced(int(self) + int(other), add, self, other)

    def __sub__(self, other: int) -> "Traced":
        return Traced(int(self) - int(other), sub, self, other)

    def __rsub__(self, other: int) -> "Traced":
        return Traced(int(other) - int(self), sub, other, self)

    def __mul__(self, other: int) -> "Traced":
        return Traced(int(self) * int(other), mul, self, other)

    def __floordiv__(self, other: int) -> "Traced":
        exact = int(self) % int(other) == 0
        return Traced(int(self) // int(other), truediv if exact else floordiv, self, other)

    def __neg__(self) -> "Traced":
        return Traced(-int(self), neg, self)

    __radd__ = __add__
    __rmul__ = __mul__


def formula_of(number: int, known: dict[int, Any] | None = None) -> Any:
    """The formula of a number, a SymPy expression: itself where it has none. `known` are those of numbers by their
    identity, each of which is computed once."""
    known = {} if known is None else known
    waiting: list[Any] = [number]
    while waiting:
        top = waiting[-1]
        if id(top) in known or not isinstance(top, Traced):
            waiting.pop()
        elif top.operation is None:
            (known[id(top)],) = top.arguments
        elif missing := [one for one in top.arguments if isinstance(one, Traced) and id(one) not in known]:
            waiting += missing
        else:
            known[id(top)] = top.operation(*(known[id(x)] if isinstance(x, Traced) else int(x) for x in top.arguments))
    return known[id(number)] if isinstance(number, Traced) else int(number)


class TracedSymbols(Symbols):
    """Symbols for sizes, each with its value: what `apply` returns computes numbers and formulas at once."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Any] = {}

    def of(self, field: str, value: int) -> Traced:
        return Traced(value, None, super().of(field, value))

    def step(self, what: str, number: int, unit: str = "bytes") -> Step:
        """The derivation of a number that was computed on what `of` and `apply` returned."""
        formula, values = self.written(formula_of(number, self.known))
        return Step(what=what, formula=formula, values=values, result=int(number), unit=unit)
