"""Formulas as they are written (`36 layers · (2·n_q·d_head·h + f / 2)`), typeset: in LaTeX for a page, in MathML for a
file that opens by itself. What is typeset is read off the written line, so that the two can't differ."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Literal

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?: layers?\b)?"
    r"|(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)|(?P<name>(?:(?![0-9⁰¹²³⁴⁵⁶⁷⁸⁹])\w)(?:(?![⁰¹²³⁴⁵⁶⁷⁸⁹])\w)*)|(?P<sign>\S))"
)
FormulaKind = Literal[
    "number", "name", "sum", "minus", "product", "sides", "quotient", "power", "group", "floor", "ceiling", "largest"
]
BRACKETS: dict[str, tuple[str, FormulaKind]] = {"(": (")", "group"), "⌊": ("⌋", "floor"), "⌈": ("⌉", "ceiling")}
"""An opening bracket -> the one that closes it, and what it makes of what is inside."""


@dataclass(frozen=True, slots=True)
class FormulaNode:
    """A part of a formula; a number or a name is its `text`."""

    kind: FormulaKind
    parts: tuple["FormulaNode", ...] = ()
    text: str = ""


def parsed(written: str) -> FormulaNode:
    """The formula of a written line. Raises ValueError where it is none."""
    return Reader(written).whole()


class Reader:
    """Reads a written line from left to right: sides of a shape, sums, products and quotients, powers."""

    def __init__(self, written: str) -> None:
        self.written = written
        self.tokens: list[tuple[str, str]] = []
        for match in TOKEN.finditer(written.strip()):
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind]))
        self.tokens.reverse()

    def whole(self) -> FormulaNode:
        node = self.sides()
        if self.tokens:
            raise ValueError(f"{self.written!r} is no formula.")
        return node

    def take(self, *signs: str) -> str:
        """The next sign where it is one of these."""
        if self.tokens and self.tokens[-1][0] == "sign" and self.tokens[-1][1] in signs:
            return self.tokens.pop()[1]
        return ""

    def sides(self) -> FormulaNode:
        sides = [self.sum()]
        while self.take("×"):
            sides.append(self.sum())
        return sides[0] if len(sides) == 1 else FormulaNode("sides", tuple(sides))

    def sum(self) -> FormulaNode:
        first = FormulaNode("minus", (self.term(),)) if self.take("−", "-") else self.term()
        terms = [first]
        while sign := self.take("+", "−", "-"):
            term = self.term()
            terms.append(term if sign == "+" else FormulaNode("minus", (term,)))
        return terms[0] if len(terms) == 1 else FormulaNode("sum", tuple(terms))

    def term(self) -> FormulaNode:
        node = self.power()
        while sign := self.take("·", "/"):
            factor = self.power()
            if sign == "/":
                node = FormulaNode("quotient", (node, factor))
            else:
                node = FormulaNode("product", (*(node.parts if node.kind == "product" else (node,)), factor))
        return node

    def power(self) -> FormulaNode:
        base = self.atom()
        if self.tokens and self.tokens[-1][0] == "power":
            return FormulaNode(
                "power", (base, FormulaNode("number", text=self.tokens.pop()[1].translate(SUPERSCRIPTS)))
            )
        return FormulaNode("power", (base, self.atom())) if self.take("^") else base

    def atom(self) -> FormulaNode:
        if not self.tokens:
            raise ValueError(f"{self.written!r} is no formula.")
        kind, text = self.tokens.pop()
        if kind == "number":
            return FormulaNode("number", text=text)
        if kind == "name" and text == "max" and self.take("("):
            return FormulaNode("largest", tuple(self.arguments()))
        if kind == "name":
            return FormulaNode("name", text=text)
        if text not in BRACKETS:
            raise ValueError(f"{self.written!r} is no formula.")
        closing, bracketed = BRACKETS[text]
        inner = self.sum()
        self.close(closing)
        return FormulaNode(bracketed, (inner,))

    def arguments(self) -> Iterator[FormulaNode]:
        yield self.sum()
        while self.take(","):
            yield self.sum()
        self.close(")")

    def close(self, sign: str) -> None:
        if not self.take(sign):
            raise ValueError(f"{self.written!r} is no formula.")


def names(node: FormulaNode) -> set[str]:
    """The symbols that occur in it."""
    return {node.text} if node.kind == "name" else set().union(*map(names, node.parts))


def scientific(number: str) -> tuple[str, str]:
    """Mantissa, and power of ten where there is one: 7.62e14."""
    mantissa, _, exponent = number.partition("e")
    return grouped(mantissa), exponent


def grouped(number: str) -> str:
    """Digits in threes: 16,777,216."""
    whole, point, rest = number.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole.isdigit() else number


def bare(node: FormulaNode) -> FormulaNode:
    """Without brackets that a fraction bar makes needless."""
    return node.parts[0] if node.kind == "group" else node


def latex(node: FormulaNode) -> str:
    """In LaTeX, as KaTeX reads it."""
    inner = [latex(part) for part in node.parts]
    match node.kind:
        case "number":
            mantissa, exponent = scientific(node.text)
            return mantissa.replace(",", "{,}") + (rf" \cdot 10^{{{exponent}}}" if exponent else "")
        case "name":
            stem, _, below = node.text.partition("_")
            if len(stem) > 1:
                return rf"\text{{{node.text.replace('_', chr(92) + '_')}}}"
            return f"{stem}_{{{subscript(below)}}}" if below else stem
        case "sum":
            return "".join(signed(part, latex(part)) for part in node.parts).removeprefix(" + ")
        case "minus":
            return f"-{inner[0]}"
        case "product":
            return r" \cdot ".join(inner)
        case "sides":
            return r" \times ".join(inner)
        case "quotient":
            above, under = (latex(bare(part)) for part in node.parts)
            return rf"\frac{{{above}}}{{{under}}}"
        case "power":
            return f"{inner[0]}^{{{latex(bare(node.parts[1]))}}}"
        case "floor":
            return rf"\left\lfloor {inner[0]} \right\rfloor"
        case "ceiling":
            return rf"\left\lceil {inner[0]} \right\rceil"
        case "largest":
            return rf"\max({', '.join(inner)})"
        case _:
            return rf"\left({inner[0]}\right)"


def signed(part: FormulaNode, written: str) -> str:
    return f" - {written[1:]}" if part.kind == "minus" else f" + {written}"


def subscript(below: str) -> str:
    """Words upright, single letters and numbers as they are: n_{\\mathrm{kv}}, f_{e,2}."""
    return ",".join(rf"\mathrm{{{word}}}" if len(word) > 1 and word.isalpha() else word for word in below.split("_"))


def latex_lines(node: FormulaNode, width: int = 36) -> list[str]:
    """In LaTeX, a long sum on several lines, also one in brackets after a factor."""
    before, after, terms = "", "", node
    if node.kind == "product" and node.parts[-1].kind == "group":
        before = "".join(rf"{latex(factor)} \cdot " for factor in node.parts[:-1]) + "("
        after, terms = ")", node.parts[-1].parts[0]
    if terms.kind != "sum" or length(terms) <= width:
        return [latex(node)]
    lines, used = [before], sum(length(factor) + 3 for factor in node.parts[:-1]) if before else 0
    for i, part in enumerate(terms.parts):
        written = signed(part, latex(part)) if i else latex(part)
        if i and used + length(part) > width:
            lines.append("")
            used = 0
        lines[-1] += written
        used += length(part) + 3
    lines[-1] += after
    return lines


def length(node: FormulaNode) -> int:
    """About how many characters wide it is."""
    if node.kind == "name":
        return len(node.text.replace("_", ""))
    if node.kind == "quotient":
        return max(map(length, node.parts))
    return len(grouped(node.text)) + sum(map(length, node.parts)) + 3 * max(0, len(node.parts) - 1)


def mathml(node: FormulaNode) -> str:
    """In MathML, which browsers draw by themselves; without the <math> round it."""
    inner = [mathml(part) for part in node.parts]
    match node.kind:
        case "number":
            mantissa, exponent = scientific(node.text)
            power = f"<mo>·</mo><msup><mn>10</mn><mn>{exponent}</mn></msup>" if exponent else ""
            return f"<mrow><mn>{mantissa}</mn>{power}</mrow>" if power else f"<mn>{mantissa}</mn>"
        case "name":
            stem, _, below = node.text.partition("_")
            if len(stem) > 1 or not below:
                return f"<mi>{escape(node.text)}</mi>"
            return f"<msub><mi>{escape(stem)}</mi><mi>{escape(below.replace('_', ','))}</mi></msub>"
        case "sum":
            terms = [
                f"<mo>−</mo>{mathml(part.parts[0])}" if part.kind == "minus" else f"<mo>+</mo>{mathml(part)}"
                for part in node.parts
            ]
            return f"<mrow>{''.join(terms).removeprefix('<mo>+</mo>')}</mrow>"
        case "minus":
            return f"<mrow><mo>−</mo>{inner[0]}</mrow>"
        case "product":
            return f"<mrow>{'<mo>·</mo>'.join(inner)}</mrow>"
        case "sides":
            return f"<mrow>{'<mo>×</mo>'.join(inner)}</mrow>"
        case "quotient":
            numerator, denominator = (mathml(bare(part)) for part in node.parts)
            return f"<mfrac><mrow>{numerator}</mrow><mrow>{denominator}</mrow></mfrac>"
        case "power":
            return f"<msup>{inner[0]}{mathml(bare(node.parts[1]))}</msup>"
        case "floor":
            return f"<mrow><mo>⌊</mo>{inner[0]}<mo>⌋</mo></mrow>"
        case "ceiling":
            return f"<mrow><mo>⌈</mo>{inner[0]}<mo>⌉</mo></mrow>"
        case "largest":
            return f"<mrow><mi>max</mi><mo>(</mo>{'<mo>,</mo>'.join(inner)}<mo>)</mo></mrow>"
        case _:
            return f"<mrow><mo>(</mo>{inner[0]}<mo>)</mo></mrow>"
