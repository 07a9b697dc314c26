"""Widgets as views of the scenario: each belongs to its reader, who alone moves it.

A message of the browser says the values of all widgets that it has drawn, as they are by then: of moves that wait for
an answer the newest counts, and what was said before may be said again. To set a widget that is on a screen would undo
what its reader does meanwhile, so that none ever is. A widget gets its value when it is new:

| the widget                              | the scenario                                | is drawn              |
| --------------------------------------- | ------------------------------------------- | --------------------- |
| is not there: a first run, another page, a drawer that opens | has any value          | new, with that value  |
| shows what the scenario has             | was moved by it, or not at all              | again, as it is       |
| shows something else                    | changed by a preset, reset, lever, link or Back | new               |
| has other limits, or another language   | has any value                               | new                   |

and what the browser says of it:

| it says                                           | what comes of it                                              |
| ------------------------------------------------- | ------------------------------------------------------------- |
| another value, of the widget that was drawn last  | its reader has moved it: the scenario changes                 |
| another value, of the one before, whose place one that shows the same has taken | the same                        |
| the value that it said before                     | nothing                                                       |
| anything, of a widget whose place one that shows something else has taken | nothing                               |

A new widget has a key that none had before: `num_hidden_layers`, `num_hidden_layers~1`, `num_hidden_layers~2`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.parts import words


@dataclass
class Widget:
    """The newest widget of a name."""

    number: int
    shown: Any
    """What it shows: the value that it was given, or its reader's last."""
    limits: tuple[Any, ...]
    take: Callable[[Any], None]
    times_set: int = 0
    """How often it was set since its browser said anything of it."""
    replaced: "Widget | None" = None
    """The one whose place it took and which shows the same, and may have been moved meanwhile."""

    def key(self, name: str) -> str:
        return f"{name}~{self.number}" if self.number else name


def show(
    name: str,
    value: Any,
    take: Callable[..., None],
    *args: Any,
    limits: tuple[Any, ...] = (),
    given: str | None = "value",
    options: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Arguments that make a widget show a value, and call `take` with the new one when its reader moves it. `given` is
    what Streamlit calls the value of such a widget; of a list with `options` it is an index; None for one that can be
    emptied, which to Streamlit is one that is given nothing."""
    state, before = st.session_state, drawn().get(name)
    limits = (state.visits, words.language(), *limits)
    if before is not None and before.shown == value and before.limits == limits and before.key(name) in state:
        widget = before
        widget.take = lambda chosen: take(chosen, *args)
    else:
        number = state.get("resumed", {}).get(name, 0) if before is None else before.number + 1
        widget = drawn()[name] = Widget(number, value, limits, lambda chosen: take(chosen, *args))
        if before is not None:
            older, before.replaced = before.replaced, None
            widget.replaced = next((one for one in (before, older) if one is not None and one.shown == value), None)
    if given is None:
        _set(widget, widget.key(name), is_new=widget is not before)
    shown = {} if given is None else {given: value} if options is None else {"index": list(options).index(value)}
    return {"key": widget.key(name), "on_change": _hear, "args": (name, widget.number)} | shown


def _set(widget: Widget, key: str, *, is_new: bool) -> None:
    """Set a widget until its browser says that it has drawn it, which got nothing of a run that was cut short."""
    if (widget.shown is None) if is_new else not widget.times_set:
        return
    if key in said():
        widget.times_set = 0
        return
    st.session_state[key] = widget.shown
    widget.times_set += 1


def _hear(name: str, number: int) -> None:
    widget = drawn().get(name)
    for one in () if widget is None else (widget, widget.replaced):
        if one is not None and one.number == number:
            _move(one, name)


def _move(widget: Widget, name: str) -> bool:
    """What a widget shows may be its reader's; whether it is. One that was set again may have been moved before that
    came: a new one takes its place."""
    value = st.session_state[widget.key(name)]
    moved: bool = value != widget.shown
    if moved:
        widget.shown = value
        widget.limits = widget.limits if widget.times_set <= 1 else ()
        drawn()[name].take(value)
    return moved


def drawn() -> dict[str, Widget]:
    """The newest widget of each name."""
    widgets: dict[str, Widget] = st.session_state.setdefault("widgets", {})
    return widgets


def said() -> set[str]:
    """The keys of all widgets that the browser says in this run."""
    context = get_script_run_ctx()
    states = [] if context is None else context.session_state.get_widget_states()
    return {state.id.split("-", 2)[-1] for state in states}


def left_over() -> dict[str, int]:
    """The widgets that a browser has drawn before this process knew it, for its server was started again: the number
    of each name."""
    parts = (key.partition("~") for key in said())
    return {name: int(number or 0) for name, _, number in parts if not number or number.isdecimal()}


def catch_up() -> bool:
    """Hear what readers did before this process knew them; whether there was anything."""
    state = st.session_state
    moved = [_move(widget, name) for name, widget in drawn().items() if widget.key(name) in state]
    return any(moved)
