"""Any model on the Hugging Face Hub: suggestions as one types, a revision, a token for gated models."""

import streamlit as st

from pages.parts.state.scenario import Scenario
from pages.parts.state.url import choose, retry, token
from presets.hub import HubError, is_id, search


def draw(scenario: Scenario) -> None:
    wants_token = isinstance(scenario.unread, HubError) and scenario.unread.wants_token
    with st.expander("Any model on the Hugging Face Hub", icon=":material/hub:", expanded=scenario.unread is not None):
        _finder()
        st.text_input("Revision", key="hub_revision", placeholder="main", help="A branch, a tag or a commit.")
        st.text_input(
            "Token",
            type="password",
            key="hub_token",
            autocomplete="off",
            persist_state="session",
            on_change=retry if scenario.unread is not None else "rerun",
            placeholder="for gated and private models" if not wants_token else "hf_…, a read token",
            help="Sent to the Hub only, kept until you close this tab, and never part of a link or a file.",
        )
        if scenario.unread is not None:
            st.error(str(scenario.unread), icon=":material/error:")
            st.button("Try again", key="hub_again", icon=":material/refresh:", on_click=retry)


@st.fragment
def _finder() -> None:
    """The search, which runs by itself while the rest of the page rests."""
    text = st.text_input(
        "Find a model", type="search", live=True, key="hub_text", placeholder="organisation/name, or words"
    ).strip()
    if not text:
        return
    found, problem = _suggestions(text)
    if is_id(text) and text not in found:
        found = [text, *found]
    for name in found[:8]:
        if st.button(name, key=f"hub_{name}", width="stretch"):
            choose(name, st.session_state.hub_revision.strip() or None)
            st.rerun()
    if problem is not None:
        st.caption(problem)
    elif not found:
        st.caption(f"The Hub finds no text model for “{text}”. A full id such as Qwen/Qwen2.5-3B is read as it is.")


def _suggestions(text: str) -> tuple[list[str], str | None]:
    try:
        return search(text, token()), None
    except HubError as problem:
        return [], str(problem)
