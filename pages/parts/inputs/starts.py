"""Steps to start from, at the top of Train: QLoRA on a home card, LoRA, all weights, pre-training."""

import streamlit as st

from pages.parts.state.trained_as import STARTS, start_of
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained
from pages.parts.state.widgets import show
from pages.parts.words import say


def draw(answer: Trained) -> None:
    """One click sets method, flags, layout and GPUs; model, batch and lengths stay."""
    st.pills(
        say("Start from"),
        list(STARTS),
        format_func=lambda name: say(STARTS[name].title),
        label_visibility="collapsed",
        help=say("Sets method, flags, activation checkpointing and GPUs; model, batch and lengths stay."),
        **show("start", start_of(answer.scenario.training), take, given=None),
    )


def take(name: str | None) -> None:
    """The step that is chosen; a click on it again changes nothing."""
    if name is not None:
        start = STARTS[name]
        change(training=start.of(st.session_state.scenario.training), gpu=start.gpus)
