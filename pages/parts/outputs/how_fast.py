"""Bound of the speed on the GPU of the memory answer, in one line."""

import streamlit as st

from pages.parts import words
from pages.parts.inputs import efficiencies
from pages.parts.labels import ORIGINS
from pages.parts.state.weighed import Weighed
from pages.parts.words import say


def draw(answer: Weighed) -> None:
    """Speed; nothing where it does not fit or does not run."""
    efficiencies.idle(answer, training=False)
    speed = answer.speed
    if speed is None:
        return
    lines = [say("Decoding is limited by {bound}.", bound=words.BOUNDS[speed.bound])]
    if answer.report.scenario.workload.batch > 1:
        rate, span = words.figure(speed.tokens_per_s.expected), words.span(speed.tokens_per_s)
        lines.append(say("In all: {rate} tokens/s ({span}).", rate=rate, span=span))
    lines.append(say("({origin}; n = {n:,})", origin=ORIGINS[speed.origin.basis], n=speed.origin.rows))
    st.markdown(f":material/speed: {words.together(lines)}", help=say(speed.origin.sentence))
