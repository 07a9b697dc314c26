"""A screen without numbers of ours: why, the ways on, and for a model of the Hub what its own files say."""

import streamlit as st

from calc import ConfigError
from calc.families import knows
from pages.parts import words
from pages.parts.inputs.controls import explain as explain_field
from pages.parts.inputs.controls import taker
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import change, checkpoint
from presets import gpus
from presets.hub import HubModel


def explain(scenario: Scenario, error: ConfigError) -> None:
    if scenario.unread is not None and scenario.hub is None:
        st.error(f"{error} Or choose another model in the sidebar.", icon=":material/cloud_off:")
    elif scenario.hub is not None and not knows(scenario.base()):
        st.error(str(error), icon=":material/error:")
        if isinstance(scenario.base().get("model_type"), str):
            st.button(
                "Read it as a Llama-like decoder, an assumption",
                key="assume",
                on_click=lambda: change(assume="llama"),
            )
        by_its_table(scenario.hub, scenario.file)
    elif error.nearest and error.field and (take := taker(scenario, error.field)) is not None:
        explain_field(error, take, place="main")
    else:
        st.error(f"{error} Put it right in the sidebar.", icon=":material/error:")


def by_its_table(model: HubModel, file: str | None) -> None:
    """What the checkpoint's own tensor table says, which is exact for any model."""
    try:
        table = checkpoint(model, file)
    except ConfigError as problem:
        st.warning(str(problem), icon=":material/help:")
        return
    st.subheader("What its own tensor table says", anchor=False)
    held = table.bytes or 0
    with st.grid(3, min_column_width=150, gap="xsmall"):
        st.metric("Stored elements", words.count(table.elements), border=True)
        st.metric("Weights", words.size(held), border=True)
        st.metric("Tensors", f"{len(table.tensors):,}", border=True)
    parts = "; ".join(f"{dtype} {words.size(size)}" for dtype, size in table.bytes_by_dtype().items())
    st.caption(f"Exactly **{table.elements:,}** elements in **{held:,}** bytes: {parts}.")
    st.markdown("Weights alone, without KV cache and activations, which the table does not tell:")
    for gpu in (gpus()[name] for name in st.session_state.scenario.gpu):
        fewest = -(-held // gpu.usable_bytes)
        st.markdown(f"- **{gpu.name}**: at least {fewest:,} of {words.gib(gpu.usable_bytes)}")
