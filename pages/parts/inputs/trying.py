"""The controls of the page of GPUs: what is shown, on which GPU, how many, of which model."""

import streamlit as st

from calc.hardware import find_gpu
from calc.time import MAPPED
from pages.parts.inputs.control import control
from pages.parts.inputs.planning import engine_choice
from pages.parts.state.planned import own_gpus
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.url import bind
from pages.parts.state.weighed import Answer, looked
from pages.parts.words import field, say
from presets import gpus


def view() -> str:
    """The view that the reader chose."""
    control(places(("hardware",))["view"], None, label=say("Show"))
    chosen: str = st.session_state.scenario.hardware.view
    return chosen


def card_and_figure(scenario: Scenario) -> Scenario:
    """Controls of the map of models."""
    with st.grid(3, min_column_width=150, gap="small"):
        card(scenario)
        for name in ("cards", "length"):
            control(places(("hardware",))[name], None)
    figure_and_engine(scenario)
    return scenario


def model_and_figure(scenario: Scenario) -> Answer:
    """Inputs of the map of GPUs."""
    answer = looked(scenario)
    figure_and_engine(scenario)
    return answer


def model_and_card(scenario: Scenario) -> Answer:
    """Inputs of the roofline."""
    answer = looked(scenario)
    card(scenario)
    engine_choice(scenario, MAPPED)
    return answer


def figure_and_engine(scenario: Scenario) -> None:
    """Choices of a map's figure and of the engine."""
    control(places(("hardware",))["figure"], None)
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
