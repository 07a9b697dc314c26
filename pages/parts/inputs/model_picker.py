"""Which model: a preset, one of the Hub, or a config of the reader's own."""

from typing import Any

import streamlit as st

from calc import Architecture, ConfigError
from calc.families import as_llama, knows
from calc.text import parse_config
from pages.parts.inputs import hub_picker
from pages.parts.state.scenario import DEFAULT_MODEL, Scenario
from pages.parts.state.url import change, choose, show
from presets import models
from presets.hub import HubModel, preferred


def model_picker(scenario: Scenario) -> None:
    presets = models()
    preset = scenario.preset()
    show("model", preset.id if preset else None)
    st.selectbox(
        "Model",
        list(presets),
        index=None,
        format_func=lambda name: presets[name].name,
        placeholder=scenario.name(),
        key="model",
        on_change=lambda: choose(st.session_state.model or DEFAULT_MODEL),
        help="Type to search.",
    )
    if preset is not None:
        st.caption(f"[{preset.id}]({preset.source})")
    elif scenario.hub is not None:
        st.caption(f"[{scenario.model}]({scenario.hub.source}), commit {scenario.hub.revision[:8]}")
        several_files(scenario, scenario.hub)
    hub_picker.draw(scenario)
    own_config()


def several_files(scenario: Scenario, model: HubModel) -> None:
    """The choice between the GGUF files of a repository without a config.json."""
    if "config.json" not in model.files and len(model.gguf_files) > 1:
        show("file", scenario.file or preferred(model.gguf_files))
        st.selectbox(
            "GGUF file",
            model.gguf_files,
            key="file",
            on_change=lambda: choose(scenario.model, scenario.revision, st.session_state.file),
        )


def own_config() -> None:
    with st.expander("Your own config.json", icon=":material/upload_file:"):
        st.text_area("Paste it", key="own_text", height=120, placeholder='{"model_type": "llama", ...}')
        st.file_uploader("or upload it", type="json", max_upload_size=1, key="own_file")
        st.button("Weigh it", key="own_weigh", on_click=_take_own)
        if (problem := st.session_state.get("own_problem")) is not None:
            st.error(problem, icon=":material/error:")
        if (unknown := st.session_state.get("own_unknown")) is not None:
            st.button(
                "Read it as a Llama-like decoder, an assumption",
                key="own_assume",
                on_click=_take_config,
                args=(as_llama(unknown),),
            )


def _take_own() -> None:
    """The uploaded file, else the pasted text, becomes the model; or its problem a sentence."""
    state = st.session_state
    try:
        _take_config(parse_config(state.own_file.getvalue().decode() if state.own_file else state.own_text))
    except UnicodeDecodeError:
        state.own_problem = "The file is not text; a config.json is JSON in UTF-8."
    except ConfigError as error:
        state.own_problem = str(error)


def _take_config(config: dict[str, Any]) -> None:
    state = st.session_state
    state.own_problem = state.own_unknown = None
    try:
        Architecture.from_config(config)
    except ConfigError as error:
        state.own_problem = str(error)
        state.own_unknown = config if isinstance(config.get("model_type"), str) and not knows(config) else None
    else:
        change(pasted=config, hub=None, unread=None, revision=None, file=None, assume=None, overrides={})
