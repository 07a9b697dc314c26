"""The sidebar: model, its sliders, the sections of a screen."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from calc import ConfigError
from calc.families import override, settings
from pages.parts.inputs.controls import explain, put
from pages.parts.inputs.fields import MULTIPLIERS, Control, Switch, controlled
from pages.parts.inputs.model_picker import model_picker
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import change, show
from presets import gpus

Section = Callable[[Scenario, ConfigError | None], None]


def draw(scenario: Scenario, error: ConfigError | None, *sections: Section) -> None:
    """All inputs: the model and what the screen asks beside. A sentence about an impossible combination stands beside
    the control that it is about."""
    with st.sidebar:
        st.markdown("### :material/scale: Weighbridge")
        st.caption("Weigh a language model before you load it.")
        model_picker(scenario)
        if scenario.settings():
            sliders(scenario, error)
        for section in sections:
            section(scenario, error)


def sliders(scenario: Scenario, error: ConfigError | None) -> None:
    published = settings(scenario.base())
    try:
        now = published | settings(override(scenario.base(), scenario.overrides))  # fewer layers may read fewer fields
    except ConfigError:
        now = published | scenario.overrides
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown("**Architecture**")
        st.button(
            "Reset all",
            icon=":material/undo:",
            type="tertiary",
            key="reset_all",
            disabled=not scenario.overrides,
            on_click=lambda: change(overrides={}),
        )
    for name, control in controlled(published).items():
        setting(name, control, scenario, published, now)
        if error is not None and error.field == name:
            explain(error, lambda value, name=name: put(name, value, published[name]))


def setting(
    name: str, control: Control | Switch, scenario: Scenario, published: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """One slider, with the preset's value and a way back to it when it differs."""
    key, original, value = f"field_{name}", published[name], now[name]
    differs = name in scenario.overrides
    label = f"{control.label} :orange-badge[preset {_shown(original)}]" if differs else control.label
    with st.container(horizontal=True, vertical_alignment="bottom", gap="xsmall"):
        if isinstance(control, Switch):
            show(key, value)
            st.toggle(label, key=key, help=control.help, width="stretch", on_change=_take, args=(key, name, original))
        elif name in MULTIPLIERS:
            hidden = now[MULTIPLIERS[name]]
            show(key, round(value / hidden, 4))
            st.slider(
                f"{label}: {value:,} wide",
                min_value=min(0.125, round(value / hidden, 4)),
                max_value=max(16.0, round(value / hidden, 4)),
                step=0.125,
                format="%.4g",
                key=key,
                help=control.help,
                on_change=lambda: put(name, max(1, round(st.session_state[key] * hidden)), original),
            )
        else:
            low, high = control.span(original)
            show(key, value)
            st.slider(
                label,
                min_value=min(low, value),
                max_value=max(high, value),
                step=control.step,
                key=key,
                help=control.help,
                on_change=_take,
                args=(key, name, original),
            )
        if differs:
            st.button(
                "",
                icon=":material/undo:",
                type="tertiary",
                key=f"reset_{name}",
                help=f"Back to {_shown(original)}",
                on_click=lambda: put(name, original, original),
            )


def _take(key: str, name: str, original: int | bool) -> None:
    put(name, st.session_state[key], original)


def gpu_picker(_: Scenario, __: ConfigError | None) -> None:
    table = gpus()
    show("gpu", list(st.session_state.scenario.gpu))
    st.multiselect(
        "GPUs",
        list(table),
        format_func=lambda name: table[name].name,
        key="gpu",
        on_change=lambda: change(gpu=tuple(st.session_state.gpu)),
        help="Each gets a verdict.",
    )


def _shown(value: int | bool) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value:,}"
