import streamlit as st

from calc import Architecture, ConfigError, training_report
from pages.parts.inputs import sidebar, training
from pages.parts.outputs import charts, share, training_step, unknown
from pages.parts.state import url
from presets import gpus

scenario = url.current()
result, error = None, None
try:
    result = training_report(
        scenario.config(),
        model=scenario.model if scenario.pasted is None else scenario.name(),
        workload=scenario.training(),
        recipe=scenario.training_recipe(),
        frozen=scenario.frozen(),
        layout=scenario.training_layout(),
        overhead=scenario.overhead(),
        gpus=[gpus()[name] for name in scenario.gpu],
    )
except ConfigError as problem:
    error = problem
controls = training
sidebar.draw(scenario, error, controls.step, sidebar.gpu_picker, controls.spread, controls.details)

share.header(scenario, result)
for problem in url.problems():
    st.warning(problem, icon=":material/link_off:")
if result is None:
    unknown.explain(scenario, error)
    st.stop()

architecture = Architecture.from_config(scenario.config())
for sentence in architecture.assumptions:
    st.warning(sentence, icon=":material/help:")
training_step.totals(result)
training_step.sentence(result)
training_step.cards(result)

dark = st.context.theme.type == "dark"
st.subheader("Phases of the step", anchor=False)
training_step.timeline(result, architecture, dark)
st.subheader("Memory against each GPU", anchor=False)
names = {name: gpu.name for name, gpu in gpus().items()}
figure = charts.gpu_bars(result.verdicts, names, [result.memory] * len(result.verdicts), dark, charts.TRAINED)
st.plotly_chart(figure, key="gpus", theme=None, config=charts.CONFIG)
st.subheader("Memory over the length of the sequences", anchor=False)
st.plotly_chart(charts.sequence_bars(result.by_sequence, dark), key="sequences", theme=None, config=charts.CONFIG)
if len(result.stages) > 1:
    st.subheader("Memory of each stage", anchor=False)
    figure = charts.stage_bars(result.stages, dark, charts.TRAINED)
    st.plotly_chart(figure, key="stages", theme=None, config=charts.CONFIG)

st.subheader("What is assumed", anchor=False)
st.markdown("\n".join(f"- {sentence}" for sentence in result.assumptions))
