import streamlit as st

from calc import Architecture, ConfigError
from pages.parts.inputs import sidebar
from pages.parts.outputs import share, unknown
from pages.parts.state import url
from pages.parts.verify import log, measured, sources

scenario = url.current()
architecture, error = None, None
try:
    architecture = Architecture.from_config(scenario.config())
except ConfigError as problem:
    error = problem
sidebar.draw(scenario, error)

share.header(scenario, None)
for problem in url.problems():
    st.warning(problem, icon=":material/link_off:")
st.caption("Theory against the real thing: our numbers beside what a checkpoint holds and what a GPU reports.")

choice = st.segmented_control(
    "Compare with",
    list(sources.SOURCES),
    format_func=lambda name: sources.SOURCES[name],
    default="hub",
    required=True,
    key="beside",
    persist_state="session",
    label_visibility="collapsed",
)
if choice == "presets":
    sources.presets()
elif choice == "measured":
    measured.draw()
elif architecture is None:
    unknown.explain(scenario, error)
elif choice == "log":
    log.draw(scenario, architecture)
else:
    sources.published(scenario, architecture)
    checkpoint = sources.checkpoint(choice, scenario)
    if checkpoint is not None:
        sources.comparison(architecture, checkpoint)
