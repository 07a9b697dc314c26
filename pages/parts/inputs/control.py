"""Controls drawn from fields: what a field of calc's models says of itself decides widget, limits and help. Drawers are
drawn only while they are open. And filters above a table or a map, which let everything pass until one is chosen."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st

from calc import GPU, ConfigError, Range
from calc.options import Option
from pages.parts import words
from pages.parts.screen import alert, quiet_button
from pages.parts.state.scenario import Place, Scenario, places
from pages.parts.state.url import bind, change
from pages.parts.state.widgets import show
from pages.parts.words import choice, field, say, value

LARGEST = 2**53 - 1
"""A browser's largest whole number."""
BUTTONS = 4
"""Choices that stand side by side; more go into a list."""
Take = Callable[[Any], None]


def control(place: Place, error: ConfigError | None, usual: Any = None, label: str | None = None) -> None:
    """The widget of one field, and under it what is wrong with its value. `usual` is what holds where it is not set."""
    option, shown = place.option, labelled(place, label)
    if option.is_switch and not option.optional:
        st.toggle(**shown, **bind(place))
    elif option.choices and option.is_number:
        worded(place, shown, usual)
    elif option.is_switch or option.choices:
        choices = (True, False) if option.is_switch else option.choices
        choose(place, choices, shown, empty=default(usual))
    elif option.is_number:
        number(place, shown, default(usual))
    else:
        now = place.of(st.session_state.scenario) or ""
        shown |= show(place.name, now, lambda text: change({place: text.strip() or None}))
        st.text_input(**shown, placeholder=default(usual))
    faults(error, place)


def faults(error: ConfigError | None, place: Place, take: Take | None = None) -> None:
    """The error of a field, below its control; `take` sets more than the field."""
    if error is not None and error.field == place.name:
        explain(error, take or (lambda near: change({place: near})))


def labelled(place: Place, label: str | None = None) -> dict[str, Any]:
    """Label and help of a field's control."""
    return {"label": label or field(place.name), "help": help_of(place.option)}


def choose(
    place: Place,
    choices: Iterable[Any],
    shown: dict[str, Any],
    called: Callable[[Any], str] | None = None,
    empty: str | None = None,
) -> None:
    """A few choices side by side, many in a list, and none chosen, which `empty` says, where that is allowed."""
    choices = list(choices)
    shown["format_func"] = called or (lambda chosen: choice(place.name, chosen))
    if place.option.optional:
        st.selectbox(options=choices, index=None, placeholder=empty, **shown, **bind(place, given=None))
    elif len(choices) <= BUTTONS:
        st.segmented_control(options=choices, required=True, **shown, **bind(place, given="default"))
    else:
        st.selectbox(options=choices, **shown, **bind(place, options=choices))


def number(
    place: Place,
    shown: dict[str, Any],
    empty: str,
    *,
    step: float = 0.01,
    least: float | None = None,
    take: Callable[..., None] | None = None,
) -> None:
    """A number within the field's limits. One that may be left open says `empty` then; `take` hears what is typed, with
    the place, where that sets more than it."""
    option = place.option
    if not option.is_whole:
        shown |= {"step": step, "format": "%g"}
    if option.optional:
        shown |= {"value": None, "placeholder": empty}
    least = option.least if least is None else least
    limits, now = within(least, option.most, place.of(st.session_state.scenario), whole=option.is_whole)
    given = None if option.optional else "value"
    view = bind(place, value=now, given=given) if take is None else show(place.name, now, take, place, given=given)
    st.number_input(**shown, **limits, **view)


def within(
    least: float | None, most: float | None, now: float | None, *, whole: bool = False
) -> tuple[dict[str, Any], Any]:
    """Limits of a number box, no closer than what it shows, and that: all of one kind, and nothing that a browser does
    not count to."""
    kind = int if whole else float
    now = None if now is None else min(kind(now), LARGEST)
    low, high = (limit if now is None else bound(limit, now) for limit, bound in ((least or 0, min), (most or 0, max)))
    return {
        "min_value": None if least is None else kind(low),
        "max_value": None if most is None else kind(min(high, LARGEST)),
    }, now


def worded(place: Place, shown: dict[str, Any], usual: Any) -> None:
    """A number, or a word in its place."""
    now = place.of(st.session_state.scenario)
    text = "" if now is None else str(now)
    st.text_input(**shown, placeholder=default(usual), **show(place.name, text, _take_worded, place))


def _take_worded(text: str, place: Place) -> None:
    """Take a number or a word; other text stays as it is and is refused below the control."""
    text = text.strip()
    try:
        change({place: place.option.parse(text) if text else None})
    except ValueError:
        change({place: text})


def default(usual: Any) -> str:
    """The text of an empty control."""
    return say("default") if usual is None else say("default: {value}", value=value(usual))


def reset(group: str, places: Iterable[Place]) -> None:
    """The way back of a group of fields, where one of them differs."""
    now: Scenario = st.session_state.scenario
    usual = Scenario(serving=Scenario().serving.with_engine(now.serving.engine))
    differing = {place: place.of(usual) for place in places if place.of(now) != place.of(usual)}
    if differing:
        quiet_button(say("Reset"), f"reset_group_{group}", "undo", change, differing)


def help_of(option: Option) -> str | None:
    return None if option.description is None else say(option.description)


def ranged(place: Place, usual: Range, most: float) -> None:
    """A slider with two ends of a part of the overhead; the usual range is no choice."""
    now: Range = place.of(st.session_state.scenario) or usual
    most = max(most, now.high)
    st.slider(
        field(place.name),
        0.0,
        most,
        step=0.01,
        format="%.2f",
        **show(f"range_{place.name}", (now.low, now.high), _take_range, place, usual, limits=(most,)),
    )


def _take_range(ends: tuple[float, float], place: Place, usual: Range) -> None:
    chosen = Range(low=ends[0], high=ends[1])
    log = places(("overhead",))["overhead_log"]  # of which it no longer is
    change({place: None if chosen == usual else chosen, log: None})


def explain(error: ConfigError, take: Take, where: str = "near") -> None:
    """An error, with buttons for the nearest valid values."""
    alert("error", "error", error.message)
    if error.nearest:
        with st.container(horizontal=True, gap="xsmall"):
            for near in error.nearest:
                label = say("Use {value}", value=value(near))
                st.button(label, key=f"{where}_{near}", on_click=take, args=(near,))


@contextmanager
def drawer(label: str, key: str, icon: str | None = None, opened: bool = False) -> Iterator[bool]:
    """An expander that says whether it is open; `opened` opens it."""
    if opened:
        st.session_state[key] = True
    with st.expander(label, key=key, icon=icon, on_change="rerun") as container:
        yield bool(container.open)


def controls_in_drawer(label: str, key: str, places: Iterable[Place], error: ConfigError | None) -> None:
    """Controls in a drawer, which opens where something is wrong with one of them."""
    shown = list(places)
    with drawer(label, key, opened=concerns(error, {place.name for place in shown})) as is_open:
        if is_open:
            for place in shown:
                control(place, error)


def concerns(error: ConfigError | None, fields: Collection[str]) -> bool:
    """Whether something is wrong with one of these fields."""
    return error is not None and error.field in fields


def several(label: str, key: str, options: Iterable[str], called: Callable[[str], str] = str) -> list[str]:
    return st.multiselect(label, options, format_func=called, key=key, placeholder=say("any"))


def vendor_and_form(gpus: Iterable[GPU], key: str) -> Callable[[GPU], bool]:
    """Filters by maker and form. Returns whether a GPU passes them."""
    known = list(gpus)
    vendors = several(say("Vendor"), f"{key}vendors", sorted({gpu.vendor for gpu in known}), words.vendor)
    forms = several(
        say("Form"), f"{key}forms", sorted({gpu.form for gpu in known}), lambda form: say(words.FORMS[form])
    )
    return lambda gpu: (not vendors or gpu.vendor in vendors) and (not forms or gpu.form in forms)
