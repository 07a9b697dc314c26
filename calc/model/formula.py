"""Formulas as trees, built where they are derived, in three notations: a line of text
(`36 layers · (2·n_q·d_head·h + f / 2)`), LaTeX for a page, MathML for a file that opens by itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import Literal

Leaf = Literal["number", "name", "layers"]
Compound = Literal[
    "sum", "minus", "product", "repeated", "sides", "quotient", "power", "group", "floor", "ceiling", "largest"
]
FormulaKind = Leaf | Compound
TEXT, LATEX, MATHML = range(3)
SIGNS: dict[FormulaKind, tuple[str, str, str]] = {
    "product": ("·", r" \cdot ", "<mo>·</mo>"),
    "repeated": (" · ", r" \cdot ", "<mo>·</mo>"),
    "sides": (" × ", r" \times ", "<mo>×</mo>"),
    "quotient": (" / ", "}{", "</mrow><mrow>"),
    "largest": (", ", ", ", "<mo>,</mo>"),
}
"""Signs between the parts of a formula: in text, in LaTeX, in MathML."""
FRAMES: dict[FormulaKind, tuple[str, str, str]] = {
    "minus": ("−{}", "-{}", "<mrow><mo>−</mo>{}</mrow>"),
    "product": ("{}", "{}", "<mrow>{}</mrow>"),
    "repeated": ("{}", "{}", "<mrow>{}</mrow>"),
    "sides": ("{}", "{}", "<mrow>{}</mrow>"),
    "quotient": ("{}", r"\frac{{{}}}", "<mfrac><mrow>{}</mrow></mfrac>"),
    "group": ("({})", r"\left({}\right)", "<mrow><mo>(</mo>{}<mo>)</mo></mrow>"),
    "floor": ("⌊{}⌋", r"\left\lfloor {} \right\rfloor", "<mrow><mo>⌊</mo>{}<mo>⌋</mo></mrow>"),
    "ceiling": ("⌈{}⌉", r"\left\lceil {} \right\rceil", "<mrow><mo>⌈</mo>{}<mo>⌉</mo></mrow>"),
    "largest": ("max({})", r"\max({})", "<mrow><mi>max</mi><mo>(</mo>{}<mo>)</mo></mrow>"),
}
"""Frames round a formula, in the same notations; {} is its parts with the signs between them."""
PLUS = (" + ", " + ", "<mo>+</mo>")
LESS = (" − ", " - ", "<mo>−</mo>")
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Formula:
    """A part of a formula. A number, a name and a count of layers are their `text`; `str` writes it on one line."""

    kind: FormulaKind
    parts: tuple["Formula", ...] = ()
    text: str = ""

    def __str__(self) -> str:
        return written(self, TEXT)

    def latex(self) -> str:
        """LaTeX, as KaTeX reads it."""
        return written(self, LATEX)

    def mathml(self) -> str:
        """MathML, which browsers draw by themselves; without the <math> round it."""
        return written(self, MATHML)


Operand = Formula | int | Fraction | str
"""A formula, or a number or the name of a symbol that becomes one."""


def number(value: int | str) -> Formula:
    """A number as it is read: 4096, 0.75, 7.62e14."""
    text = str(value)
    return minus(number(text[1:])) if text.startswith("-") else Formula("number", text=text)


def operand(part: Operand) -> Formula:
    if isinstance(part, Formula):
        return part
    if isinstance(part, Fraction) and part.denominator > 1:
        return quotient(part.numerator, part.denominator)
    return Formula("name", text=part) if isinstance(part, str) else number(int(part))


def total(*terms: Operand) -> Formula:
    return Formula("sum", tuple(map(operand, terms))) if len(terms) > 1 else operand(terms[0])


def minus(part: Operand) -> Formula:
    return Formula("minus", (bracketed(part),))


def product(*factors: Operand) -> Formula:
    """The product of the factors; 1 where there is none. What divides a factor divides the whole."""
    return _over("product", map(bracketed, factors)) if len(factors) > 1 else operand(*factors or (1,))


def repeated(count: Operand, inner: Operand, *factors: Operand) -> Formula:
    """A count times what stands in brackets, and further factors."""
    return _over("repeated", (operand(count), Formula("group", (operand(inner),)), *map(bracketed, factors)))


def _over(kind: FormulaKind, factors: Iterable[Formula]) -> Formula:
    halves = [factor.parts if factor.kind == "quotient" else (factor,) for factor in factors]
    above = Formula(kind, tuple(numerator for numerator, *_ in halves))
    below = [divisor for _, *divisors in halves for divisor in divisors]
    return quotient(above, product(*below)) if below else above


def layer_count(n: int) -> Formula:
    """A number of layers, the count of `repeated`."""
    return Formula("layers", text=str(n))


def quotient(above: Operand, below: Operand) -> Formula:
    return Formula("quotient", (bracketed(above), bracketed(below, "product", "quotient")))


def power(base: Operand, exponent: Operand) -> Formula:
    return Formula("power", (bracketed(base), operand(exponent)))


def sides(*lengths: Operand) -> Formula:
    """A shape; 1 for a scalar."""
    parts = [part for side in map(operand, lengths) for part in (side.parts if side.kind == "sides" else (side,))]
    return Formula("sides", tuple(parts)) if len(parts) > 1 else operand(*parts or (1,))


def floor(part: Operand) -> Formula:
    return Formula("floor", (operand(part),))


def ceiling(part: Operand) -> Formula:
    return Formula("ceiling", (operand(part),))


def largest(*parts: Operand) -> Formula:
    return Formula("largest", tuple(map(operand, parts)))


def bracketed(part: Operand, *kinds: FormulaKind) -> Formula:
    """The formula, in brackets where it is a sum or of one of these kinds."""
    made = operand(part)
    return Formula("group", (made,)) if made.kind in ("sum", "minus", *kinds) else made


def bare(formula: Formula) -> Formula:
    """The formula without brackets that a fraction bar or a raised exponent makes needless."""
    return formula.parts[0] if formula.kind == "group" else formula


def names(formula: Formula) -> set[str]:
    return {formula.text} if formula.kind == "name" else set().union(*map(names, formula.parts))


def written(formula: Formula, notation: int) -> str:
    parts = [bare(part) for part in formula.parts] if formula.kind == "quotient" and notation else formula.parts
    inner = [written(part, notation) for part in parts]
    match formula.kind:
        case "number" | "layers":
            return _number(formula, notation)
        case "name":
            return _name(formula.text, notation)
        case "sum":
            signed = inner[0] + "".join(_signed(part, notation) for part in parts[1:])
            return f"<mrow>{signed}</mrow>" if notation == MATHML else signed
        case "power":
            base, exponent = inner
            if notation == TEXT:
                raised = exponent if parts[1].kind == "name" else f"({exponent})"
                return base + (exponent.translate(SUPERSCRIPTS) if exponent.isdecimal() else f"^{raised}")
            return f"{base}^{{{exponent}}}" if notation == LATEX else f"<msup>{base}{exponent}</msup>"
        case kind:
            return FRAMES[kind][notation].format(SIGNS.get(kind, ("",) * 3)[notation].join(inner))


def _signed(part: Formula, notation: int) -> str:
    """A term of a sum after its first."""
    if part.kind == "minus":
        return LESS[notation] + written(part.parts[0], notation)
    return PLUS[notation] + written(part, notation)


def _number(formula: Formula, notation: int) -> str:
    if notation == TEXT:
        unit = "" if formula.kind == "number" else " layer" if formula.text == "1" else " layers"
        return formula.text + unit
    mantissa, _, exponent = formula.text.partition("e")
    digits = grouped(mantissa)
    if notation == LATEX:
        return digits.replace(",", "{,}") + (rf" \cdot 10^{{{exponent}}}" if exponent else "")
    if exponent:
        return f"<mrow><mn>{digits}</mn><mo>·</mo><msup><mn>10</mn><mn>{exponent}</mn></msup></mrow>"
    return f"<mn>{digits}</mn>"


def _name(name: str, notation: int) -> str:
    """A symbol with its subscript; a longer word as it is."""
    stem, _, below = name.partition("_")
    if notation == TEXT:
        return name
    if notation == LATEX:
        if len(stem) > 1:
            return rf"\text{{{name.replace('_', chr(92) + '_')}}}"
        return f"{stem}_{{{_subscript(below)}}}" if below else stem
    if len(stem) > 1 or not below:
        return f"<mi>{escape(name)}</mi>"
    return f"<msub><mi>{escape(stem)}</mi><mi>{escape(below.replace('_', ','))}</mi></msub>"


def _subscript(below: str) -> str:
    """Words upright, single letters and numbers as they are: n_{\\mathrm{kv}}, f_{e,2}."""
    return ",".join(rf"\mathrm{{{word}}}" if len(word) > 1 and word.isalpha() else word for word in below.split("_"))


def grouped(number: str) -> str:
    """Digits in threes: 16,777,216."""
    whole, point, rest = number.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole.isdigit() else number


def latex_lines(formula: Formula, width: int = 36) -> list[str]:
    """The formula in LaTeX, a long sum on several lines, also one in brackets after a factor."""
    before, after, whole = "", "", formula
    if formula.kind in ("product", "repeated") and formula.parts[-1].kind == "group":
        before = "".join(rf"{factor.latex()} \cdot " for factor in formula.parts[:-1]) + "("
        after, whole = ")", formula.parts[-1].parts[0]
    if whole.kind != "sum" or length(whole) <= width:
        return [formula.latex()]
    lines, used = [before], sum(length(factor) + 3 for factor in formula.parts[:-1]) if before else 0
    for i, part in enumerate(whole.parts):
        if i and used + length(part) > width:
            lines.append("")
            used = 0
        lines[-1] += _signed(part, LATEX) if i else part.latex()
        used += length(part) + 3
    lines[-1] += after
    return lines


def length(formula: Formula) -> int:
    if formula.kind == "name":
        return len(formula.text.replace("_", ""))
    if formula.kind == "quotient":
        return max(map(length, formula.parts))
    return len(grouped(formula.text)) + sum(map(length, formula.parts)) + 3 * max(0, len(formula.parts) - 1)
