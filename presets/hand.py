"""A study on paper: each line by hand, the exact figure, and where the hand went wrong."""

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.formula import number
from calc.model.paper import Exact, Item, PaperTable, Section
from presets.studies import Study

RECONSTRUCTED = Message(
    "The lines are reconstructed: they follow the formulas with which the study, or the articles that it used, "
    "counted. Its own notes are not part of this project."
)


def hand_section(study: Study, architecture: Architecture) -> Section:
    rows = []
    for line in study.lines:
        exact = line.exact(architecture)
        rows.append(
            (
                line.what,
                line.written,
                Exact(number=line.hand),
                Exact(number=exact),
                number(line.times),
                Exact(number=(line.hand - exact) * line.times),
                line.why or Message("The same."),
            )
        )
    hand, exact = study.hand_total, study.exact_total(architecture)
    items: tuple[Item, ...] = (
        study.about,
        RECONSTRUCTED,
        PaperTable(
            head=(
                Message("Line"),
                Message("Formula"),
                Message("By hand"),
                Message("Exact"),
                Message("Times"),
                Message("Difference in all"),
                Message("Why"),
            ),
            rows=tuple(rows),
        ),
        Message(
            "By hand **{hand:,}**, exactly **{exact:,}**: {difference:+,}, or {error:+.3%}.",
            hand=hand,
            exact=exact,
            difference=hand - exact,
            error=hand / exact - 1,
        ),
    )
    return Section(anchor="hand", title=Message("The calculation by hand"), items=items)
