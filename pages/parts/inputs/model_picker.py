"""Models beyond the presets: of the Hub (suggestions as one types, a revision, a token for gated models), or a config
of the reader's own."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from calc import Architecture, ConfigError
from calc.errors import Message
from calc.families import as_llama, knows
from calc.formats import HF_QUANT_CONFIG, native, with_hf_quant_config
from calc.text import MAX_CHARACTERS, parse_config
from pages.parts.inputs.control import drawer
from pages.parts.screen import alert, button, caption
from pages.parts.state.published import count_look_up, token
from pages.parts.state.scenario import Source
from pages.parts.state.url import again, change, choose
from pages.parts.state.weighed import Answer
from pages.parts.state.widgets import show
from pages.parts.words import say
from presets.hub import HubError, HubModel, is_id, preferred, search


def model_picker(answer: Answer) -> None:
    """Source of the model, and the ways to one that is no preset."""
    published = answer.model.published
    if published.preset is not None:
        link = f"[{published.preset.id}]({published.preset.source})"
        if (released := published.preset.released) is None:
            st.caption(link)
        else:
            month = f"[{released.month}]({released.source})"
            caption("{link}, released {month}", link=link, month=month)
    elif published.hub is not None:
        hub = published.hub
        link = f"[{hub.id}]({hub.source})"
        caption("{link}, commit {commit}", link=link, commit=hub.revision[:8])
        several_files(answer.scenario.source, hub)
    any_hub_model(answer)
    own_config()


def several_files(source: Source, model: HubModel) -> None:
    """The choice between the GGUF files of a repository without a config.json."""
    if "config.json" not in model.files and len(model.gguf_files) > 1:
        st.selectbox(
            say("GGUF file"),
            model.gguf_files,
            **show(
                "file",
                source.file or preferred(model.gguf_files),
                lambda file: choose(source.model, source.revision, file),
                options=model.gguf_files,
            ),
        )


def own_config() -> None:
    state = st.session_state
    with drawer(say("Your own config.json"), "own_drawer", ":material/upload_file:") as is_open:
        if not is_open:
            return
        st.text_area(say("Paste it"), key="own_text", height=120, placeholder='{"model_type": "llama", ...}')
        st.file_uploader(
            say("or upload it"),
            type="json",
            max_upload_size=MAX_CHARACTERS // 10**6,
            accept_multiple_files=True,
            key="own_file",
            help=say("With its {file}, if the checkpoint has one.", file=HF_QUANT_CONFIG),
        )
        st.button(say("Weigh it"), key="own_weigh", on_click=_take_own)
        if (problem := state.get("own_problem")) is not None:
            alert("error", "error", problem)
        if (unknown := state.get("own_unknown")) is not None:
            as_known = as_llama(unknown)
            assume_button("own_assume", lambda: _take_config(as_known))


def assume_button(key: str, take: Any) -> None:
    """The way on with a family that is not known."""
    st.button(say("Read it as a Llama-like decoder, an assumption"), key=key, on_click=take)


def _take_own() -> None:
    """The uploaded files, else the pasted text, become the model; or their problem a sentence."""
    state = st.session_state
    try:
        _take_config(joined([file.getvalue().decode() for file in state.own_file] or [state.own_text]))
    except UnicodeDecodeError:
        state.own_problem = Message("The file is not text; a config.json is JSON in UTF-8.")
    except ConfigError as error:
        state.own_problem = error.message


def joined(texts: Sequence[str]) -> dict[str, Any]:
    """A config.json, with what stands in the hf_quant_config.json that came with it. Raises ConfigError."""
    files = [parse_config(text) for text in texts]
    if len(files) == 1:
        return files[0]
    configs, others = ([file for file in files if ("model_type" in file) is wanted] for wanted in (True, False))
    if len(configs) == len(others) == 1:
        return with_hf_quant_config(configs[0], others[0])
    raise ConfigError(Message("Give one config.json, and at most one {file} with it.", file=HF_QUANT_CONFIG))


def _take_config(config: dict[str, Any]) -> None:
    state = st.session_state
    state.own_problem = state.own_unknown = None
    try:
        Architecture.from_config(config)
        native(config)
    except ConfigError as error:
        state.own_problem = error.message
        state.own_unknown = config if isinstance(config.get("model_type"), str) and not knows(config) else None
    else:
        change(source=Source(pasted=config), overrides={})


def any_hub_model(answer: Answer) -> None:
    unread = answer.model.published.unread
    label = say("Any model on the Hugging Face Hub")
    with drawer(label, "hub_drawer", ":material/hub:", opened=unread is not None) as is_open:
        if not is_open:
            return
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
            alert("error", "error", unread.message)
            button(say("Try again"), "hub_again", "refresh", again)


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
            st.button(name, key=f"suggested_{name}", on_click=_take_suggestion, args=(name,))


def _take_suggestion(name: str) -> None:
    del st.session_state.hub_words
    choose(name)


def _listed(text: str) -> list[str]:
    """Models of the Hub for a text; a sentence where there are none."""
    models: list[str] = []
    problem: Message | None = None
    try:
        count_look_up()
        models = search(text, token())
    except ConfigError as error:
        problem = error.message
    if is_id(text) and text not in models:
        models = [text, *models]
    if problem is not None:
        caption(problem)
    elif not models:
        caption(
            "The Hub finds no text model for “{text}”. A full id such as Qwen/Qwen2.5-3B is read as it is.", text=text
        )
    return models[:8]
