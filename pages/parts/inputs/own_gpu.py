"""A GPU of the reader's own: its figures, carried in the link as text."""

import streamlit as st

from calc import ConfigError
from calc.hardware import Dtype, custom_gpu, find_gpu
from pages.parts.screen import alert, quiet_button
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import change
from pages.parts.words import say
from presets import gpus

PEAKS: tuple[Dtype, ...] = ("bf16", "fp8", "fp4")


def draw(scenario: Scenario) -> None:
    """The form, and the GPUs that came of it."""
    with st.form("own_gpu", border=True):
        with st.grid(4, min_column_width=150, gap="small"):
            st.text_input(say("Name"), key="own_name", placeholder=say("My GPU"), max_chars=40)
            quantity(say("Memory (GiB)"), "own_memory", 24.0)
            quantity(say("Bandwidth (GB/s)"), "own_bandwidth", 1000.0)
            quantity(say("Link, both directions (GB/s)"), "own_link", None)
            for dtype in PEAKS:
                quantity(say("Peak in {dtype}, dense (TFLOPS)", dtype=dtype), f"own_{dtype}", None)
        st.form_submit_button(say("Add"), key="own_add", icon=":material/add:", on_click=add)
    problem: ConfigError | None = st.session_state.pop("own_gpu_problem", None)
    if problem is not None:
        alert("error", "error", problem.message)
    for text in scenario.gpu:
        if text not in gpus():
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(f"**{find_gpu(text).name}** `{text}`")
                quiet_button(say("Remove"), f"own_remove_{text}", "delete", remove, text)


def quantity(label: str, key: str, value: float | None) -> None:
    st.number_input(label, min_value=0.0, max_value=1e6, value=value, step=1.0, format="%g", key=key)


def add() -> None:
    """Into the scenario, where it has a verdict on Weigh and is among the GPUs of plans."""
    state = st.session_state
    peaks = {dtype: state[f"own_{dtype}"] for dtype in PEAKS if state[f"own_{dtype}"] is not None}
    name = state.own_name.strip() or say("My GPU")
    try:
        gpu = custom_gpu(name, state.own_memory or 0.0, state.own_bandwidth or 0.0, peaks, state.own_link)
    except ConfigError as problem:
        state.own_gpu_problem = problem
        return
    change(gpu=tuple(dict.fromkeys((*state.scenario.gpu, gpu.id))))


def remove(text: str) -> None:
    change(gpu=tuple(name for name in st.session_state.scenario.gpu if name != text))
