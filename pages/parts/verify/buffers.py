"""The buffers of a pasted log of llama.cpp or Ollama beside those that are planned for the model on screen."""

import streamlit as st

from calc import ConfigError
from calc.errors import Message
from calc.serving.engines.llamacpp.startup_log import BufferLog, read_buffers
from calc.text import MAX_CHARACTERS
from calc.verify import BufferRow, planned_buffers_of
from pages.parts import words
from pages.parts.state.weighed import Answer
from pages.parts.words import say

WHAT = {"model": Message("Weights"), "context": Message("KV cache and states"), "compute": Message("Largest pass")}


def draw(answer: Answer, text: str) -> None:
    log = read_buffers(text[:MAX_CHARACTERS])
    if log.share is not None:
        share(log)
    if not log.buffers:
        return
    try:
        buffers = planned_buffers_of(log, answer.architecture, "Q4_K_M")
    except ConfigError as problem:
        st.error(say(problem.message), icon=":material/error:")
        return
    verdict(buffers.rows)
    head = [say("Device"), say("Buffer"), say("In the log"), say("Computed"), say("Difference")]
    lines = [
        (
            row.device,
            say(WHAT[row.what]),
            words.size(row.log),
            words.size(row.ours),
            words.difference(row.log / max(1, row.ours) - 1),
        )
        for row in buffers.rows
    ]
    st.markdown(words.table(head, lines, numbers=3))
    for row in buffers.rows:
        if not row.agrees:
            st.markdown(f"- {row.device}, {say(WHAT[row.what])}: {say(row.sentence)}")
    stated = [f"`{name} {value}`" for name, value in log.flags.items()]
    if log.weights is None:
        st.caption(say("The log names no type of the file: {weights} is taken for granted.", weights=buffers.weights))
    if stated:
        st.caption(say("Read from the log: {list}.", list=words.listed(stated)))


def verdict(rows: tuple[BufferRow, ...]) -> None:
    differ = [row for row in rows if not row.agrees]
    if not rows:
        st.info(say("The log states nothing that is computed here."), icon=":material/info:")
    elif not differ:
        st.success(say("Every figure that the log states agrees."), icon=":material/check_circle:")
    else:
        worst = max(differ, key=lambda row: abs(row.log - row.ours))
        st.warning(
            say("What differs most: **{term}**. {sentence}", term=WHAT[worst.what], sentence=worst.sentence),
            icon=":material/balance:",
        )


def share(log: BufferLog) -> None:
    """The line of `ollama ps`."""
    assert log.share is not None
    st.info(
        say(
            "Ollama holds {size} for it, {share} of that on GPUs.",
            size=words.gib(log.share.bytes),
            share=words.percent(log.share.on_gpus),
        ),
        icon=":material/info:",
    )
