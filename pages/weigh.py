import streamlit as st

from calc import Architecture, ConfigError, report
from pages.parts.inputs import serving, sidebar
from pages.parts.outputs import cards, charts, derivations, kv_budget, share, sunburst, unknown
from pages.parts.state import url
from presets import gpus

scenario = url.current()
result, error = None, None
try:
    result = report(
        scenario.config(),
        model=scenario.model if scenario.pasted is None else scenario.name(),
        workload=scenario.workload(),
        engine=scenario.serving_engine(),
        precision=scenario.precision(),
        layout=scenario.layout(),
        overhead=scenario.overhead(),
        gpus=[gpus()[name] for name in scenario.gpu],
    )
except ConfigError as problem:
    error = problem
    error.field = serving.SERVING.get(error.field, error.field)
sidebar.draw(scenario, error, serving.workload, sidebar.gpu_picker, serving.advanced)

share.header(scenario, result)
for problem in url.problems():
    st.warning(problem, icon=":material/link_off:")
if result is None:
    unknown.explain(scenario, error)
    st.stop()

architecture = Architecture.from_config(scenario.config())
steps = derivations.Working(architecture, result, scenario)
if scenario.hub is not None and scenario.hub.note:
    st.info(scenario.hub.note, icon=":material/info:")
for sentence in architecture.assumptions:
    st.warning(sentence, icon=":material/help:")
cards.totals(result, steps)
cards.exact(result, None if scenario.overrides else scenario.preset())
cards.cards(result)

dark = st.context.theme.type == "dark"
left, right = st.columns(2)
with left:
    st.subheader("Where the parameters sit", anchor=False)
    figure = sunburst.shares(result.parameters.total, architecture.tensors(), dark)
    st.plotly_chart(figure, key="shares", theme=None, config=charts.CONFIG)
with right:
    st.subheader("Memory against each GPU", anchor=False)
    names = {name: gpu.name for name, gpu in gpus().items()}
    figure = charts.gpu_bars(result.verdicts, names, [verdict.memory for verdict in result.verdicts], dark)
    st.plotly_chart(figure, key="gpus", theme=None, config=charts.CONFIG)
cards.overtaking(result)
st.plotly_chart(charts.context_bars(result.by_context, dark), key="contexts", theme=None, config=charts.CONFIG)

if len(result.stages) > 1:
    st.subheader("Memory of each stage", anchor=False)
    st.plotly_chart(charts.stage_bars(result.stages, dark), key="stages", theme=None, config=charts.CONFIG)
kv_budget.draw(result)

st.subheader("Tensors", anchor=False)
steps.tensors()
st.subheader("What is assumed", anchor=False)
st.markdown("\n".join(f"- {sentence}" for sentence in result.assumptions))
