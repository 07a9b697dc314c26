"""Figures that remember the formula that they came from, as `calc.model.traced` has for whole numbers.

A computation of times that runs on them is the same code, takes the same branches, and yields the figure and its
derivation at once.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from operator import add, floordiv, mul, sub, truediv
from typing import Any, NamedTuple, Self, get_type_hints

from calc.errors import Frozen, Message
from calc.model.derivation import Symbols, write
from calc.model.formula import Formula, number, operand, power

POWER = re.compile("10{3,}")
Meaning = str | Message
"""A field of a config, or words."""


class Symbol(NamedTuple):
    """Name of a figure in a formula, and its meaning."""

    name: str
    meaning: Meaning
    unit: str = ""

    def of(self, part: str | int | None) -> "Symbol":
        """Symbol of a part of the figure: a product, a type, or a window of so many tokens; itself where None."""
        if part is None:
            return self
        whole = Message(str(self.meaning))
        meaning = Message("{meaning}: `{part}`", meaning=whole, part=part)
        if isinstance(part, int):
            meaning = Message("{meaning}, {n} tokens back", meaning=whole, n=f"{part:,}")
        return Symbol(f"{self.name}_{part}", meaning, self.unit)


def symbols_of(kind: type) -> dict[str, Symbol]:
    """The symbols of a class's fields, where they have any."""
    fields = get_type_hints(kind, include_extras=True).items()
    marks = ((name, mark) for name, field in fields for mark in getattr(field, "__metadata__", ()))
    return {name: mark for name, mark in marks if isinstance(mark, Symbol)}


def operator(operation: Callable[[Any, Any], Any], *, turned: bool = False) -> Callable[[Any, Any], "Figure"]:
    """An operation on figures and numbers and on their formulas; turned: the other number stands first."""

    def by(figure: Any, other: Any) -> "Figure":
        first, second = (other, figure) if turned else (figure, other)
        return Figure(operation(float(first), float(second)), operation(formula_of(first), formula_of(second)))

    return by


class Figure(float):
    """A number with its formula, a SymPy expression. Comparisons are those of numbers."""

    formula: Any

    def __new__(cls, value: float, formula: Any) -> Self:
        figure = super().__new__(cls, value)
        figure.formula = formula
        return figure

    __add__, __radd__ = operator(add), operator(add, turned=True)
    __sub__, __rsub__ = operator(sub), operator(sub, turned=True)
    __mul__, __rmul__ = operator(mul), operator(mul, turned=True)
    __truediv__, __rtruediv__ = operator(truediv), operator(truediv, turned=True)

    def __pow__(self, other: Any, modulo: None = None) -> "Figure":
        return operator(pow)(self, other)

    def __floordiv__(self, other: Any) -> "Figure":
        return operator(truediv if float(self) % float(other) == 0 else floordiv)(self, other)

    def __neg__(self) -> "Figure":
        return Figure(-float(self), -self.formula)


def formula_of(number: Any) -> Any:
    """The formula of a number: itself, without what a float adds to it, where it has none."""
    from sympy import Rational, sympify

    return sympify(number.formula) if isinstance(number, Figure) else Rational(str(float(number)))


class TimeStep(Frozen):
    """One line of the derivation of a time."""

    what: str
    formula: Formula
    values: Formula
    result: float
    unit: str


class Figures(Symbols):
    """Symbols for figures, each with its value."""

    def figure(self, name: str, value: float, meaning: Meaning) -> Figure:
        """One that is given, or that another line derives."""
        plain = float(value) if isinstance(value, Figure) else value
        return Figure(plain, self.named(name, plain, meaning))

    def step(self, what: str, number: Any, unit: str) -> TimeStep:
        """The derivation of a number that was computed on figures."""
        formula, values = self.written(formula_of(number))
        return TimeStep(what=what, formula=formula, values=values, result=float(number), unit=unit)

    def written(self, expression: Any) -> tuple[Formula, Formula]:
        """Formula and values, powers of ten as such where numbers are whole."""
        self.used |= {symbol.name for symbol in expression.free_symbols}
        formula = write(expression, operand, self.rank)
        values = write(expression, lambda name: number(shown(self.legend[name][1])), self.rank)
        return with_powers(formula), with_powers(values)


def with_powers(formula: Formula) -> Formula:
    """The formula with 1000000 as 10⁶."""
    if formula.kind == "number" and POWER.fullmatch(formula.text):
        return power(10, len(formula.text) - 1)
    return replace(formula, parts=tuple(map(with_powers, formula.parts)))


def shown(value: float) -> str:
    """A value within a formula: four digits of what is no whole number."""
    if value == int(value) and abs(value) < 10**7:
        return f"{int(value)}"
    digits, _, exponent = f"{value:.4e}".partition("e")
    digits = digits.rstrip("0").rstrip(".")
    return f"{value:.4g}" if abs(int(exponent)) < 4 else f"{digits}e{int(exponent)}"
