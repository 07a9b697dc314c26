"""Whole numbers that remember the formula that they came from.

A computation that runs on them is the same code, takes the same branches, and yields the number and its derivation at
once: `TracedSymbols().apply(model)` is the model with such sizes.
"""

from typing import Any, Self

from calc.model.derivation import Step, Symbols


class Traced(int):
    """A whole number with its formula, a SymPy expression. Sums, products and quotients carry it on; comparisons are
    those of numbers."""

    formula: Any

    def __new__(cls, value: int, formula: Any) -> Self:
        number = super().__new__(cls, value)
        number.formula = formula
        return number

    def __add__(self, other: int) -> "Traced":
        return Traced(int(self) + int(other), self.formula + formula_of(other))

    def __sub__(self, other: int) -> "Traced":
        return Traced(int(self) - int(other), self.formula - formula_of(other))

    def __rsub__(self, other: int) -> "Traced":
        return Traced(int(other) - int(self), formula_of(other) - self.formula)

    def __mul__(self, other: int) -> "Traced":
        return Traced(int(self) * int(other), self.formula * formula_of(other))

    def __floordiv__(self, other: int) -> "Traced":
        exact = int(self) % int(other) == 0
        formula = self.formula / formula_of(other) if exact else self.formula // formula_of(other)
        return Traced(int(self) // int(other), formula)

    def __neg__(self) -> "Traced":
        return Traced(-int(self), -self.formula)

    __radd__ = __add__
    __rmul__ = __mul__


def formula_of(number: int) -> Any:
    """The formula of a number: itself where it has none."""
    return number.formula if isinstance(number, Traced) else int(number)


class TracedSymbols(Symbols):
    """Symbols for sizes, each with its value: what `apply` returns computes numbers and formulas at once."""

    def of(self, field: str, value: int) -> Traced:
        return Traced(value, super().of(field, value))

    def step(self, what: str, number: int, unit: str = "bytes") -> Step:
        """The derivation of a number that was computed on what `of` and `apply` returned."""
        formula, values = self.written(formula_of(number))
        return Step(what=what, formula=formula, values=values, result=int(number), unit=unit)
