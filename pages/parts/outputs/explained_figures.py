"""A number that opens its own derivation, and how a derivation is written."""

from collections.abc import Callable, Iterable, Mapping

import streamlit as st

from calc.errors import Message
from calc.model.derivation import Legend, Step
from calc.model.formula import Formula
from pages.parts import words
from pages.parts.outputs import scripts
from pages.parts.screen import small_table
from pages.parts.words import say

COMPUTED = Message("computed")
ORIGINS = {
    "overhead": Message("measured: a range of public logs"),
    "memory": Message("computed, the overhead in it measured"),
}
"""Origin of a figure, by its name in links, if not from the model's config alone."""
FIGURES = scripts.element("weighbridge_figures", "figures.js")


def figures(
    key: str,
    numbers: Iterable[tuple[str, str, str, Callable[[], None]]],
    columns: int = 6,
    colors: Mapping[str, str] | None = None,
) -> None:
    """Numbers next to each other: the name of each in links, its label, its value, and what draws its derivation, which
    opens below and says where the number comes from; with colours, by name, they are the key of a bar. One element:
    each costs a browser a millisecond or two at every move of a slider."""
    shown, colors = list(numbers), colors or {}
    opened = {name: bool(st.session_state.get(f"derive_{name}")) for name, *_ in shown}

    def turn() -> None:
        for name, is_open in opened.items():
            st.session_state[f"derive_{name}"] = name == st.session_state[key].asked and not is_open

    FIGURES(
        key=key,
        data={
            "columns": columns,
            "derivation": say("Derivation"),
            "figures": [
                {"id": name, "label": label, "value": value, "open": opened[name], "color": colors.get(name)}
                for name, label, value, _ in shown
            ],
        },
        on_asked_change=turn,
    )
    for name, label, _, draw in shown:
        if opened[name]:
            with st.container(border=True):
                st.markdown(f"**{label}** · {say(ORIGINS.get(name, COMPUTED))}")
                draw()


def derivation(name: str, of: str, draw: Callable[[], None], label: str | None = None) -> None:
    """A button that opens the derivation of a figure, which is computed when it is opened."""
    with st.popover(
        label or say("Derivation"),
        type="tertiary",
        icon=":material/function:",
        help=say("Derivation of {figure}", figure=of),
        key=f"derive_{name}",
        on_change="rerun",
    ) as container:
        if container.open:
            draw()


def table(steps: Iterable[Step], result: str) -> None:
    """The result before its formula, so that a telephone shows it."""
    steps, head = list(steps), [say("Part"), result]
    rows = [[words.part(step.what), f"{step.result:,}"] for step in steps]
    if any(step.formula for step in steps):
        head += [say("Formula"), say("With values")]
        rows = [[*row, code(step.formula), code(step.values)] for row, step in zip(rows, steps, strict=True)]
    small_table(head, rows)


def code(formula: Formula | None) -> str:
    return "" if formula is None else f"`{formula}`"


def legend(meanings: Legend) -> None:
    """Legend of the symbols."""
    if meanings:
        rows = (
            say("`{symbol}` {meaning} = {value:,}", symbol=symbol, meaning=words.meaning(meaning), value=value)
            for symbol, (meaning, value) in meanings.items()
        )
        st.caption(words.listed(rows))
