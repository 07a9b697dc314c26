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

One that can be emptied is given its value apart, with the message that draws it and no other. Of a run that was cut
short, or another came behind at once, that message may be lost: such a widget is drawn new.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import streamlit as st

from pages.parts import words

LANDS = 1.0
"""Seconds after which a message has left the server."""
REMEMBERED = 20
"""Widgets of a name whose place another has taken."""


@dataclass
class Widget:
    """The newest widget of a name."""

    number: int
    shown: Any
    """Value on screen: the one that it was given, or its reader's last."""
    limits: tuple[Any, ...]
    take: Callable[[Any], None]
    sent: tuple[int, float] | None = None
    """The run that gave it its value apart, and when; None where the browser has it."""
    replaced: tuple["Widget", ...] = ()
    """Earlier widgets in its place with the same value, which may have been moved meanwhile."""

    def key(self, name: str) -> str:
        return f"{name}~{self.number}" if self.number else name

    def has_landed(self) -> bool:
        """Whether the browser has its value, as far as one can know."""
        if self.sent is not None and self.sent[0] != st.session_state.get("cut") and monotonic() - self.sent[1] > LANDS:
            self.sent = None
        return self.sent is None


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
    is_same = before is not None and before.shown == value and before.limits == limits
    if before is not None and is_same and before.has_landed() and before.key(name) in state:
        widget = before
        widget.take = lambda chosen: take(chosen, *args)
    else:
        number = before.number + 1 if before else state.get("drawn_before", {}).get(name, 0)
        widget = drawn()[name] = Widget(number, value, limits, lambda to: take(to, *args))
        if before is not None:
            former, before.replaced = (before, *before.replaced)[:REMEMBERED], ()
            widget.replaced = tuple(other for other in former if other.shown == value)
        if given is None and value is not None:
            state[widget.key(name)] = value
            widget.sent = state.run_number, monotonic()
    shown = {} if given is None else {given: value} if options is None else {"index": list(options).index(value)}
    return {"key": widget.key(name), "on_change": _hear, "args": (name, widget.number)} | shown


def _hear(name: str, number: int) -> None:
    st.session_state.moved = True
    widget = drawn().get(name)
    for candidate in () if widget is None else (widget, *widget.replaced):
        if candidate.number == number:
            _move(candidate, name)


def _move(widget: Widget, name: str) -> bool:
    """Whether its reader has moved a widget; then the scenario takes the value."""
    value = st.session_state[widget.key(name)]
    moved: bool = value != widget.shown
    if moved:
        widget.shown, widget.sent = value, None
        drawn()[name].take(value)
    return moved


def drawn() -> dict[str, Widget]:
    """The newest widget of each name."""
    widgets: dict[str, Widget] = st.session_state.setdefault("widgets", {})
    return widgets


def catch_up() -> bool:
    """Hear what readers did before this process knew them; whether there was anything."""
    state = st.session_state
    moved = [_move(widget, name) for name, widget in drawn().items() if widget.key(name) in state]
    return any(moved)
