"""The controls of a training plan: how much is trained, in which steps, on how many of which GPUs."""

import streamlit as st

from pages.parts.inputs import planning
from pages.parts.inputs.control import control, faults, within
from pages.parts.inputs.drawer import concerns, drawer
from pages.parts.state.scenario import Place, places
from pages.parts.state.training_planned import TrainingPlanned
from pages.parts.state.url import change
from pages.parts.state.widgets import show
from pages.parts.words import say

QUESTION = ("gpus", "global_batch", "sequence")
"""Fields that are set in the question on top; what is wrong with one is said here."""
DETAILS = ("optimizer", "recipe")
BILLION = 1e9


def run(answer: TrainingPlanned) -> None:
    """Controls of the run: tokens, GPUs, batch."""
    known = places(("planning",))
    st.markdown(say("**Training run**"))
    with st.grid(2, min_column_width=140, gap="small"):
        tokens(known["tokens"])
        planning.number(known["micro_batch"])
    for name in ("tokens", *QUESTION, "micro_batch"):
        faults(answer.error, known[name])
    with drawer(say("Optimizer and precision"), "run_drawer", opened=concerns(answer.error, DETAILS)) as is_open:
        if is_open:
            for name in DETAILS:
                control(known[name], answer.error)


def tokens(place: Place) -> None:
    """Tokens in billions; the scenario has single ones."""
    limits, now = within(1e-6, 1e9, place.of(st.session_state.scenario) / BILLION)
    st.number_input(
        say("Tokens to train on, billions"),
        format="%g",
        step=10.0,
        **limits,
        **show("billions", now, _take_tokens, place),
    )


def _take_tokens(billions: float, place: Place) -> None:
    change({place: billions * BILLION})
