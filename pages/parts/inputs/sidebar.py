"""The sidebar: the model, its sliders, and the sections of a page."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from pages.parts.inputs.control import explain
from pages.parts.inputs.drawer import concerns, drawer
from pages.parts.inputs.fields import MULTIPLIERS, RARE, Control, Switch, controlled
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
        model_picker(answer)
        for section in sections:
            section(answer)
        if answer.model.published.settings:
            sliders(answer)


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

    def draw_one(name: str) -> None:
        setting(name, controls[name], published[name], values, changed=name in answer.scenario.overrides)

    controls = controlled(published)
    with st.grid(2, min_column_width=140, gap="small"):
        for name in controls:
            if name not in RARE:
                draw_one(name)
    fault(answer, published, controls.keys() - RARE)
    rare = [name for name in controls if name in RARE]
    changed = not answer.scenario.overrides.keys().isdisjoint(rare)
    if rare:
        with drawer(say("More sizes"), "sizes_drawer", opened=changed or concerns(answer.error, rare)) as is_open:
            if is_open:
                for name in rare:
                    draw_one(name)
                fault(answer, published, rare)


def fault(answer: Answer, published: Mapping[str, Any], names: Collection[str]) -> None:
    """What is wrong with one of these fields, and what would be right."""
    name = None if answer.error is None else answer.error.field
    if answer.error is not None and name is not None and name in names:
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
