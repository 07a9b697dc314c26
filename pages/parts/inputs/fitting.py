"""The controls of the page of GPUs: what is shown, on which GPU, how many, of which model."""

import streamlit as st

from calc.hardware import find_gpu
from calc.time import MAPPED
from pages.parts.inputs.control import control
from pages.parts.inputs.planning import engine_choice
from pages.parts.state.planned import own_gpus
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.url import bind
from pages.parts.words import field, say
from presets import gpus


def controls(scenario: Scenario) -> None:
    """The view; for the map of models and the roofline the GPU; the figure of a map; and the engine."""
    known, view = places(("hardware",)), scenario.hardware.view
    control(known["view"], None, label=say("Show"))
    if view == "models":
        with st.grid(3, min_column_width=150, gap="small"):
            card(scenario)
            for name in ("cards", "length"):
                control(known[name], None)
    elif view == "roofline":
        card(scenario)
    if view != "roofline":
        control(known["figure"], None)
    engine_choice(scenario, MAPPED)


def card(scenario: Scenario) -> None:
    """A GPU of the catalogue, or one of the reader's own."""
    cards = [*own_gpus(scenario), *gpus()]
    st.selectbox(
        field("card"),
        cards,
        format_func=lambda name: find_gpu(name).name,
        help=say("The GPU that models are tried on."),
        **bind(places(("hardware",))["card"], options=cards),
    )
