"""A page without numbers of ours: why, the ways on, and for a model of the Hub what its own files say."""

import streamlit as st

from calc import ConfigError
from pages.parts import words
from pages.parts.inputs.control import Take
from pages.parts.inputs.control import explain as explain_field
from pages.parts.inputs.model_picker import assume_button
from pages.parts.inputs.sidebar import put
from pages.parts.screen import alert, caption, heading, paragraph
from pages.parts.state.published import checkpoint
from pages.parts.state.query import Page
from pages.parts.state.scenario import places
from pages.parts.state.url import change
from pages.parts.state.weighed import Answer
from pages.parts.words import say


def explain(answer: Answer, here: Page) -> None:
    """Why there is no answer, and what would help."""
    error, published = answer.error, answer.model.published
    if error is None:
        return
    sentence, take = say(error.message), taker(answer, here, error)
    if published.unread is not None:
        problem = say("{why} Or choose another model above.", why=sentence)
        st.error(problem, icon=":material/cloud_off:")
    elif not published.is_known:
        st.error(sentence, icon=":material/error:")
        if isinstance((published.config or {}).get("model_type"), str):
            source = answer.scenario.source.model_copy(update={"assume": "llama"})
            assume_button("assume", lambda: change(source=source))
        by_its_table(answer)
    elif error.nearest and take is not None:
        explain_field(error, take, where="main")
    else:
        alert("error", "error", "{why} Put it right above or in the sidebar.", why=sentence)


def taker(answer: Answer, here: Page, error: ConfigError) -> Take | None:
    """Callback that puts a value into the field of a sentence; None where no control has the field."""
    name, settings = error.field, answer.model.published.settings or {}
    if name is not None and name in settings:
        return lambda near: put(near, name, settings[name])
    place = places(here.uses, answer.scenario.serving.engine).get(name or "")
    return None if place is None else lambda near: change({place: near})


def by_its_table(answer: Answer) -> None:
    """Counts of the checkpoint's own tensor table, exact for any model."""
    hub = answer.model.published.hub
    if hub is None:
        return
    try:
        table = checkpoint(answer.scenario.source, hub)
    except ConfigError as problem:
        alert("warning", "help", problem.message)
        return
    heading("From the checkpoint's tensor table")
    stored = table.bytes or 0
    with st.grid(3, min_column_width=150, gap="xsmall"):
        st.metric(say("Stored elements"), words.count(table.elements))
        st.metric(say("Weights"), words.size(stored))
        st.metric(say("Tensors"), f"{len(table.tensors):,}")
    parts = words.listed(f"{dtype} {words.size(size)}" for dtype, size in table.bytes_by_dtype().items())
    caption(
        "Exactly **{elements:,}** elements in **{bytes:,}** bytes: {parts}.",
        elements=table.elements,
        bytes=stored,
        parts=parts,
    )
    paragraph("Weights alone, without KV cache and activations, which the table does not tell:")
    for gpu in answer.scenario.chosen_gpus():
        paragraph(
            "- **{gpu}**: at least {least:,} of {usable}",
            gpu=gpu.name,
            least=gpu.fewest(stored),
            usable=words.gib(gpu.usable_bytes),
        )
