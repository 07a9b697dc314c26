"""How fast the GPU answers that the memory answer is about, in one line."""

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from calc.time.reply import reply
from pages.parts import words
from pages.parts.inputs import efficiencies
from pages.parts.labels import ORIGINS
from pages.parts.state.weighed import Weighed
from pages.parts.words import say


def draw(answer: Weighed) -> None:
    """Nothing where it does not fit or does not run."""
    efficiencies.idle(answer, training=False)
    focus = answer.focus
    if focus is None or not focus.serves:
        return
    gpu, workload = find_gpu(focus.gpu), answer.report.scenario.workload
    speed = reply(answer.serving, gpu, workload, answer.scenario.efficiencies.edits)
    users, first = speed.tokens_per_s_per_user, speed.ttft_ms
    sentence = say(
        "How fast there: **{rate} tokens/s** per user ({span}), first token after **{ttft}** ({ttft_span}). Decoding "
        "is bound by {bound}.",
        rate=words.figure(users.expected),
        span=words.span(users),
        ttft=words.duration(first.expected),
        ttft_span=words.durations(first),
        bound=words.BOUNDS[speed.bound],
    )
    if workload.batch > 1:
        rate, span = words.figure(speed.tokens_per_s.expected), words.span(speed.tokens_per_s)
        sentence = f"{sentence} {say('In all: {rate} tokens/s ({span}).', rate=rate, span=span)}"
    origin = f"({say(ORIGINS[speed.origin.basis])})"
    st.markdown(f":material/speed: {sentence} {origin}", help=say(speed.origin.sentence))
