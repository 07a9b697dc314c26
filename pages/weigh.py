import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import answer as answers
from pages.parts.outputs import (
    blueprint,
    cards,
    charts,
    examples,
    frame,
    gpu_rows,
    how_fast,
    kv_budget,
    plot,
    shares,
)
from pages.parts.outputs.derivations import ModelDerivations
from pages.parts.state.query import WEIGH
from pages.parts.state.weighed import weighed
from pages.parts.words import say

answer = frame.page(WEIGH, weighed, serving.workload, serving.gpus, serving.formats, serving.engine, serving.overhead)
report = answer.report
examples.draw()
answers.draw(answer)
how_fast.draw(answer)
cards.totals(answer)
cards.exact(answer)
gpu_rows.draw(answer)

left, right = st.columns(2)
with left:
    st.header(say("Parameter breakdown"), anchor=False)
    shares.draw(report.parameters.total, answer.architecture.tensors(), charts.theme())
    blueprint.way(answer)
with right:
    st.header(say("Memory vs. GPU capacity"), anchor=False)
    plot.draw("gpus", say("Memory vs. GPU capacity"), charts.gpu_bars(report.verdicts, report.memories, charts.theme()))
cards.overtaking(answer)
plot.draw("contexts", say("Memory vs. context length"), charts.context_bars(report, charts.theme()))
if len(report.stages) > 1:
    st.header(say("Memory per pipeline stage"), anchor=False)
    plot.draw("stages", say("Memory per pipeline stage"), charts.stage_bars(report.stages, charts.theme()))
kv_budget.draw(report)

st.header(say("Tensors"), anchor=False)
ModelDerivations(answer).tensors()
frame.assumptions(report.assumptions)
