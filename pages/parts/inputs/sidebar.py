"""The sidebar: the model, its sliders, and the sections of a page."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from pages.parts.inputs.control import explain
from pages.parts.inputs.fields import MULTIPLIERS, Control, Switch, controlled
from pages.parts.inputs.model_picker import model_picker
from pages.parts.state.url import change, show
from pages.parts.state.weighed import Answer
from pages.parts.words import field, say, value
from presets import gpus

A_contra = TypeVar("A_contra", bound=Answer, contravariant=True)


class Section(Protocol[A_contra]):
    """What a page asks for beside the model."""

    def __call__(self, answer: A_contra, /) -> None: ...


def draw(answer: Answer, sections: Iterable[Section[Any]]) -> None:
    """All inputs. A sentence about an impossible combination stands beside the control that it is about."""
    with st.sidebar:
        st.markdown("### :material/scale: Weighbridge")
        st.caption(say("Weigh a language model before you load it."))
        model_picker(answer)
        if answer.model.published.settings:
            sliders(answer)
        for section in sections:
            section(answer)


def sliders(answer: Answer) -> None:
    """One control for each config field of the model that decides a size."""
    published, now = answer.model.published.settings or {}, answer.model.settings or {}
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(say("**Architecture**"))
        st.button(
            say("Reset all"),
            icon=":material/undo:",
            type="tertiary",
            key="reset_all",
            disabled=not answer.scenario.overrides,
            on_click=lambda: change(overrides={}),
        )
    values = {**published, **now}  # fewer layers may read fewer fields
    for name, control in controlled(published).items():
        setting(name, control, published[name], values, changed=name in answer.scenario.overrides)
        if answer.error is not None and answer.error.field == name:
            explain(answer.error, partial(_put, name, published[name]))


def setting(name: str, control: Control | Switch, original: Any, values: dict[str, Any], *, changed: bool) -> None:
    """One slider, with the model's own value and a way back to it when it differs."""
    key, now, label = f"field_{name}", values[name], say(control.label)
    if name in MULTIPLIERS:
        label = say("{label}: {width:,} wide", label=label, width=now)
    if changed:
        label = say("{label} :orange-badge[preset {value}]", label=label, value=value(original))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="xsmall"):
        if isinstance(control, Switch):
            show(key, now)
            st.toggle(
                label, key=key, help=say(control.help), width="stretch", on_change=_take, args=(key, name, original)
            )
        elif name in MULTIPLIERS:
            multiplier(label, name, control, original, values)
        else:
            low, high = control.span(original)
            show(key, now)
            st.slider(
                label,
                min_value=min(low, now),
                max_value=max(high, now),
                step=control.step,
                key=key,
                help=say(control.help),
                on_change=_take,
                args=(key, name, original),
            )
        if changed:
            st.button(
                "",
                icon=":material/undo:",
                type="tertiary",
                key=f"reset_{name}",
                help=say("Back to {value}", value=value(original)),
                on_click=lambda: put(name, original, original),
            )


def multiplier(label: str, name: str, control: Control, original: int, values: dict[str, Any]) -> None:
    """The width of the feed-forward as a multiple of the hidden size."""
    key, hidden = f"field_{name}", values[MULTIPLIERS[name]]
    now = round(values[name] / hidden, 4)
    show(key, now)
    st.slider(
        label,
        min_value=min(0.125, now),
        max_value=max(16.0, now),
        step=0.125,
        format="%.4g",
        key=key,
        help=say(control.help),
        on_change=lambda: put(name, control.multiple(st.session_state[key], hidden), original),
    )


def _take(key: str, name: str, original: int | bool) -> None:
    put(name, st.session_state[key], original)


def _put(name: str, original: Any, chosen: Any) -> None:
    put(name, chosen, original)


def put(name: str, chosen: Any, original: Any) -> None:
    """Change one field of the config; the model's own value is no change."""
    others = {field: kept for field, kept in st.session_state.scenario.overrides.items() if field != name}
    change(overrides=others if chosen == original else others | {name: chosen})


def gpu_picker(answer: Answer) -> None:
    own = [name for name in answer.scenario.gpu if name not in gpus()]
    show("gpu", list(answer.scenario.gpu))
    st.multiselect(
        field("gpu"),
        [*own, *gpus()],
        format_func=lambda name: find_gpu(name).name,
        key="gpu",
        on_change=lambda: change(gpu=tuple(st.session_state.gpu)),
        help=say("Each gets a verdict."),
        placeholder=say("Choose GPUs"),
    )
