"""Whole numbers that remember the formula that they came from.

A computation that runs on them is the same code, takes the same branches, and yields the number and its derivation at
once: `TracedSymbols().apply(model)` is the model with such sizes.
"""

from collections.abc import Callable
from operator import add, floordiv, mul, neg, sub, truediv
from typing import Any, Self

from calc.errors import Message
from calc.model.derivation import Step, Symbols

Arithmetic = Callable[..., Any]


class Traced(int):
    """A whole number with how it was computed. Sums, products and quotients carry that on, and SymPy sees it only when
    the formula is asked for; comparisons are those of numbers."""

    operation: Arithmetic
    arguments: tuple[int, ...]
    formula: Any  # a SymPy expression; None before it was asked for

    def __new__(cls, value: int, operation: Arithmetic, *arguments: int) -> Self:
        number = super().__new__(cls, value)
        number.operation, number.arguments, number.formula = operation, arguments, None
        return number

    @classmethod
    def symbol(cls, value: int, formula: Any) -> Self:
        """A number that nothing was computed for."""
        number = cls(value, int)
        number.formula = formula
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


def formula_of(number: int) -> Any:
    """The formula of a number, a SymPy expression: itself where it has none."""
    waiting: list[int] = [number]
    while waiting:
        top = waiting[-1]
        if not isinstance(top, Traced) or top.formula is not None:
            waiting.pop()
        elif missing := [
            argument for argument in top.arguments if isinstance(argument, Traced) and argument.formula is None
        ]:
            waiting += missing
        else:
            top.formula = top.operation(*map(formula_or_number, top.arguments))
    return formula_or_number(number)


def formula_or_number(number: int) -> Any:
    """The formula of a number whose own was asked for."""
    return number.formula if isinstance(number, Traced) else int(number)


class TracedSymbols(Symbols):
    """Symbols for sizes, each with its value: what `apply` returns computes numbers and formulas at once."""

    def of(self, field: str, value: int) -> Traced:
        return Traced.symbol(value, super().of(field, value))

    def step(self, what: str | Message, number: int, unit: str = "bytes") -> Step:
        """The derivation of a number that was computed on what `of` and `apply` returned."""
        formula, values = self.written(formula_of(number))
        return Step(what=what, formula=formula, values=values, result=int(number), unit=unit)
