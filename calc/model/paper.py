"""A calculation as a person writes it down: sections of sentences, tables and equations. A page, a Markdown file and an
HTML file are made of the same."""

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from calc.errors import Frozen, Message
from calc.model.derivation import Legend, Step
from calc.model.formula import Formula, names, operand, total

Anchor = Literal[
    "symbols",
    "embedding",
    "layers",
    "output",
    "parameters",
    "active",
    "rules",
    "hand",
    "weights",
    "kv_cache_per_token",
    "kv_cache",
    "activations",
    "overhead",
    "memory",
    "verdict",
    "time",
    "training",
    "training_time",
    "norms",
    "attention",
    "ssm_linear",
    "mlp",
    "router",
    "experts_routed",
    "experts_shared",
]
"""Targets of links: the sections in the order of the page, then modules within the layers."""
ANCHORS: tuple[Anchor, ...] = get_args(Anchor)
SECTIONS = ANCHORS[: ANCHORS.index("norms")]


class Exact(Frozen):
    """A number in a cell, to the last digit."""

    number: int


class Code(Frozen):
    """A name in a cell, as configs and checkpoints write it."""

    text: str


Cell = str | Message | Formula | Exact | Code | None
"""A text is the name of a part of a model or of memory; None is an empty cell."""


class PaperTable(Frozen):
    head: tuple[Message, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Equation(Frozen):
    """A formula, the same with the values filled in, and what it comes to. Its `what` may be empty under a heading."""

    step: Step


class Heading(Frozen):
    """Title of a part of a section."""

    title: Message | str
    anchor: Anchor | None = None
    """Target of links to it."""


Item = Message | PaperTable | Equation | Heading


class Section(Frozen):
    anchor: Anchor
    title: Message
    items: tuple[Item, ...]


def lines(steps: Iterable[Step], result: Message, what: Message | None = None) -> PaperTable:
    """One row a step: its part, the result, and where it has them formula and values."""
    steps = tuple(steps)
    head = (what or Message("Part"), result)
    if not any(step.formula for step in steps):
        return PaperTable(head=head, rows=tuple((step.what, Exact(number=step.result)) for step in steps))
    return PaperTable(
        head=(*head, Message("Formula"), Message("With values")),
        rows=tuple((step.what, Exact(number=step.result), step.formula, step.values) for step in steps),
    )


def legend(meanings: Iterable[tuple[str, tuple[str, int | float]]]) -> PaperTable:
    return PaperTable(
        head=(Message("Symbol"), Message("Meaning"), Message("Value")),
        rows=tuple(
            (
                operand(symbol),
                Code(text=meaning) if "_" in meaning and " " not in meaning else Message(meaning),
                Exact(number=int(value)),
            )
            for symbol, (meaning, value) in meanings
        ),
    )


def occurring(steps: Iterable[Step], meanings: Legend) -> Legend:
    """Meanings of the symbols in the formulas of some steps."""
    used = {name for step in steps if step.formula for name in names(step.formula)}
    return {name: row for name, row in meanings.items() if name in used}


def legend_of(steps: Iterable[Step], meanings: Legend) -> Iterator[PaperTable]:
    if rows := occurring(steps, meanings):
        yield legend(rows.items())


def added(what: str | Message, results: Iterable[int], unit: str = "parameters") -> Equation:
    """A sum of results of equations before."""
    numbers = [result for result in results if result]
    values = total(*numbers) if len(numbers) > 1 else None
    return Equation(step=Step(what=what, values=values, result=sum(numbers), unit=unit))
