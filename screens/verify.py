import streamlit as st

from calc import Architecture, ConfigError
from screens.parts import beside, logs, measured, share, sidebar, state, unknown

scenario = state.current()
architecture, error = None, None
try:
    architecture = Architecture.from_config(scenario.config())
except ConfigError as problem:
    error = problem
sidebar.draw(scenario, error)

share.header(scenario, None)
for problem in state.problems():
    st.warning(problem, icon=":material/link_off:")
st.caption("Theory against the real thing: our numbers beside what a checkpoint holds and what a GPU reports.")

choice = st.segmented_control(
    "Compare with",
    list(beside.SOURCES),
    format_func=lambda name: beside.SOURCES[name],
    default="hub",
    required=True,
    key="beside",
    persist_state="session",
    label_visibility="collapsed",
)
if choice == "presets":
    beside.presets()
elif choice == "measured":
    measured.draw()
elif architecture is None:
    unknown.explain(scenario, error)
elif choice == "log":
    logs.draw(scenario, architecture)
else:
    beside.published(scenario, architecture)
    checkpoint = beside.checkpoint(choice, scenario)
    if checkpoint is not None:
        beside.comparison(architecture, checkpoint)
