"""Any model on the Hugging Face Hub: suggestions as one types, a revision, a token for gated models."""

import streamlit as st

from calc import ConfigError
from calc.errors import Message
from pages.parts.inputs.drawer import drawer
from pages.parts.state.published import count_look_up, token
from pages.parts.state.url import again, choose
from pages.parts.state.weighed import Answer
from pages.parts.words import say
from presets.hub import HubError, is_id, search


def draw(answer: Answer) -> None:
    unread = answer.model.published.unread
    label = say("Any model on the Hugging Face Hub")
    with drawer(label, "hub_drawer", ":material/hub:", opened=unread is not None) as is_open:
        if is_open:
            _inputs(unread)


def _inputs(unread: ConfigError | None) -> None:
    _finder()
    st.text_input(say("Revision"), key="hub_revision", placeholder="main", help=say("A branch, a tag or a commit."))
    wants_token = isinstance(unread, HubError) and unread.wants_token
    st.text_input(
        say("Token"),
        type="password",
        key="hub_token",
        autocomplete="off",
        persist_state="session",
        on_change="rerun" if unread is None else again,
        placeholder=say("hf_…, a read token") if wants_token else say("for gated and private models"),
        help=say("Sent to the Hub only, kept until you close this tab, and never part of a link or a file."),
    )
    if unread is not None:
        st.error(say(unread.message), icon=":material/error:")
        st.button(say("Try again"), key="hub_again", icon=":material/refresh:", on_click=again)


@st.fragment
def _finder() -> None:
    """The search, which runs by itself while the rest of the page rests."""
    text = st.text_input(
        say("Find a model"), type="search", live=True, key="hub_text", placeholder=say("organisation/name, or words")
    ).strip()
    if not text:
        return
    for name in _listed(text):
        if st.button(name, key=f"hub_{name}", width="stretch"):
            choose(name, st.session_state.hub_revision.strip() or None)
            st.rerun()


def suggest(text: str) -> None:
    """Models of the Hub for words that the question's list did not have."""
    with st.container(horizontal=True, gap="xsmall", key="suggested"):
        for name in _listed(text):
            st.button(name, key=f"suggested_{name}", on_click=_take, args=(name,))


def _take(name: str) -> None:
    del st.session_state.hub_words
    choose(name)


def _listed(text: str) -> list[str]:
    """Models of the Hub for a text; a sentence where there are none."""
    models: list[str] = []
    problem: Message | None = None
    try:
        count_look_up(st.context.ip_address)
        models = search(text, token())
    except ConfigError as error:
        problem = error.message
    if is_id(text) and text not in models:
        models = [text, *models]
    if problem is not None:
        st.caption(say(problem))
    elif not models:
        st.caption(
            say(
                "The Hub finds no text model for “{text}”. A full id such as Qwen/Qwen2.5-3B is read as it is.",
                text=text,
            )
        )
    return models[:8]
