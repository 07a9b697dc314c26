"""Which model: a preset, one of the Hub, or a config of the reader's own."""

from typing import Any

import streamlit as st

from calc import Architecture, ConfigError
from calc.errors import Message
from calc.families import as_llama, knows
from calc.text import parse_config
from pages.parts.inputs import hub_picker
from pages.parts.state.scenario import DEFAULT_MODEL, Source
from pages.parts.state.url import change, choose, show
from pages.parts.state.weighed import Answer
from pages.parts.words import say
from presets import models
from presets.hub import HubModel, preferred


def model_picker(answer: Answer) -> None:
    presets, published = models(), answer.model.published
    show("model", published.preset.id if published.preset else None)
    st.selectbox(
        say("Model"),
        list(presets),
        index=None,
        format_func=lambda name: presets[name].name,
        placeholder=answer.model.name,
        key="model",
        on_change=lambda: choose(st.session_state.model or DEFAULT_MODEL),
        help=say("Type to search."),
    )
    if published.preset is not None:
        st.caption(f"[{published.preset.id}]({published.preset.source})")
    elif published.hub is not None:
        found = published.hub
        link = f"[{found.id}]({found.source})"
        st.caption(say("{link}, commit {commit}", link=link, commit=found.revision[:8]))
        several_files(answer.scenario.source, found)
    hub_picker.draw(answer)
    own_config()


def several_files(source: Source, model: HubModel) -> None:
    """The choice between the GGUF files of a repository without a config.json."""
    if "config.json" not in model.files and len(model.gguf_files) > 1:
        show("file", source.file or preferred(model.gguf_files))
        st.selectbox(
            say("GGUF file"),
            model.gguf_files,
            key="file",
            on_change=lambda: choose(source.model, source.revision, st.session_state.file),
        )


def own_config() -> None:
    state = st.session_state
    with st.expander(say("Your own config.json"), icon=":material/upload_file:"):
        st.text_area(say("Paste it"), key="own_text", height=120, placeholder='{"model_type": "llama", ...}')
        st.file_uploader(say("or upload it"), type="json", max_upload_size=1, key="own_file")
        st.button(say("Weigh it"), key="own_weigh", on_click=_take_own)
        if (problem := state.get("own_problem")) is not None:
            st.error(say(problem), icon=":material/error:")
        if (unknown := state.get("own_unknown")) is not None:
            as_known = as_llama(unknown)
            assume_button("own_assume", lambda: _take_config(as_known))


def assume_button(key: str, take: Any) -> None:
    """The way on with a family that is not known."""
    st.button(say("Read it as a Llama-like decoder, an assumption"), key=key, on_click=take)


def _take_own() -> None:
    """The uploaded file, else the pasted text, becomes the model; or its problem a sentence."""
    state = st.session_state
    try:
        _take_config(parse_config(state.own_file.getvalue().decode() if state.own_file else state.own_text))
    except UnicodeDecodeError:
        state.own_problem = Message("The file is not text; a config.json is JSON in UTF-8.")
    except ConfigError as error:
        state.own_problem = error.message


def _take_config(config: dict[str, Any]) -> None:
    state = st.session_state
    state.own_problem = state.own_unknown = None
    try:
        Architecture.from_config(config)
    except ConfigError as error:
        state.own_problem = error.message
        state.own_unknown = config if isinstance(config.get("model_type"), str) and not knows(config) else None
    else:
        change(source=Source(pasted=config), overrides={})
