"""Controls drawn from fields: what a field of calc's models says of itself decides widget, limits and help."""

from collections.abc import Callable, Iterable
from typing import Any

import streamlit as st

from calc import ConfigError, Range
from calc.options import Option
from pages.parts.state.scenario import Place, Scenario
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
    option, name = place.option, place.name
    shown: dict[str, Any] = {"label": label or field(name), "help": help_of(option)}
    if option.is_switch and not option.optional:
        st.toggle(**shown, **bind(place))
    elif option.choices and option.is_number:
        worded(place, shown, usual)
    elif option.is_switch or option.choices:
        choices = (True, False) if option.is_switch else option.choices
        choose(place, choices, shown, usual)
    elif option.is_number:
        number(place, shown, usual)
    else:
        now = place.of(st.session_state.scenario) or ""
        st.text_input(**shown, placeholder=default(usual), **show(name, now, _take_text, place))
    faults(error, place)


def faults(error: ConfigError | None, place: Place) -> None:
    """What is wrong with a field, beside its control."""
    if error is not None and error.field == place.name:
        explain(error, lambda near: change({place: near}))


def choose(place: Place, choices: Iterable[Any], shown: dict[str, Any], usual: Any) -> None:
    """A few choices side by side, many in a list, and none chosen where that is allowed."""
    choices = list(choices)
    shown["format_func"] = lambda chosen: choice(place.name, chosen)
    if place.option.optional:
        st.selectbox(options=choices, index=None, placeholder=default(usual), **shown, **bind(place))
    elif len(choices) <= BUTTONS:
        st.segmented_control(options=choices, required=True, **shown, **bind(place))
    else:
        st.selectbox(options=choices, **shown, **bind(place))


def number(place: Place, shown: dict[str, Any], usual: Any) -> None:
    """A number within the field's limits, which may be left to the engine."""
    option, kind = place.option, int if place.option.is_whole else float
    limits: dict[str, Any] = {"min_value": None if option.least is None else kind(option.least)}
    limits["max_value"] = None if option.most is None else kind(min(option.most, LARGEST))
    if not option.is_whole:
        shown |= {"step": 0.01, "format": "%g"}
    if option.optional:
        shown |= {"value": None, "placeholder": default(usual)}
    st.number_input(**shown, **limits, **bind(place))


def worded(place: Place, shown: dict[str, Any], usual: Any) -> None:
    """A number, or a word in its place."""
    now = place.of(st.session_state.scenario)
    text = "" if now is None else str(now)
    st.text_input(**shown, placeholder=default(usual), **show(place.name, text, _take_worded, place))


def _take_worded(place: Place) -> None:
    """What can't be read is kept as it is, and refused beside the control."""
    text = st.session_state[place.name].strip()
    try:
        change({place: place.option.parse(text) if text else None})
    except ValueError:
        change({place: text})


def _take_text(place: Place) -> None:
    change({place: st.session_state[place.name].strip() or None})


def default(usual: Any) -> str:
    """What an empty control says."""
    return say("default") if usual is None else say("default: {value}", value=value(usual))


def reset(group: str, places: Iterable[Place]) -> None:
    """The way back of a group of fields, where one of them differs."""
    now: Scenario = st.session_state.scenario
    usual = Scenario(serving=Scenario().serving.with_engine(now.serving.engine))
    differing = {place: place.of(usual) for place in places if place.of(now) != place.of(usual)}
    if differing:
        st.button(
            say("Reset"),
            icon=":material/undo:",
            type="tertiary",
            key=f"reset_group_{group}",
            on_click=change,
            args=(differing,),
        )


def help_of(option: Option) -> str | None:
    return None if option.description is None else say(option.description)


def ranged(place: Place, usual: Range, most: float) -> None:
    """A slider with two ends; the usual range is no choice."""
    now: Range = place.of(st.session_state.scenario) or usual
    key = f"range_{place.name}"
    most = max(most, now.high)
    st.slider(
        field(place.name),
        0.0,
        most,
        step=0.01,
        format="%.2f",
        **show(key, (now.low, now.high), _take_range, place, key, usual, limits=(most,)),
    )


def _take_range(place: Place, key: str, usual: Range) -> None:
    low, high = st.session_state[key]
    chosen = Range(low=low, high=high)
    change({place: None if chosen == usual else chosen})


def explain(error: ConfigError, take: Take, where: str = "near") -> None:
    """What is wrong and what would be right, to click."""
    st.error(say(error.message), icon=":material/error:")
    if error.nearest:
        with st.container(horizontal=True, gap="xsmall"):
            for near in error.nearest:
                label = say("Use {value}", value=value(near))
                st.button(label, key=f"{where}_{near}", on_click=take, args=(near,))
