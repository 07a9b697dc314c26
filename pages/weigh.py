import streamlit as st

from calc import Architecture, ConfigError, report
from pages.parts import answer, charts, share, sidebar, state, working
from presets import gpus, models

scenario = state.current()
result, error = None, None
try:
    result = report(
        scenario.config(),
        model=scenario.model,
        workload=scenario.workload(),
        precision=scenario.precision(),
        layout=scenario.layout(),
        overhead=scenario.overhead(),
        gpus=[gpus()[name] for name in scenario.gpu],
    )
except ConfigError as problem:
    error = problem
sidebar.draw(scenario, error)

share.header(models()[scenario.model].name, scenario, result)
for problem in state.problems():
    st.warning(problem, icon=":material/link_off:")
if result is None:
    st.error(f"{error} It can be put right in the sidebar.", icon=":material/error:")
    st.stop()

answer.totals(result)
answer.exact(result)
answer.cards(result)

architecture = Architecture.from_config(scenario.config())
left, right = st.columns(2)
with left:
    st.subheader("Where the parameters sit")
    charts.draw_parameters(result, architecture)
with right:
    st.subheader("Memory against each GPU")
    charts.draw_gpus(result)
st.subheader("When the cache overtakes the weights")
charts.draw_contexts(result)

st.subheader("Every number's formula")
working.draw(result, architecture)
st.subheader("Tensors")
working.tensors(architecture)
st.subheader("What is assumed")
for sentence in result.assumptions:
    st.markdown(f"- {sentence}")
