import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import answer as answers
from pages.parts.outputs import cards, charts, frame, how_fast, kv_budget, sunburst
from pages.parts.outputs.derivations import ModelDerivations
from pages.parts.state.query import WEIGH
from pages.parts.state.weighed import weighed
from pages.parts.words import say

answer = frame.page(WEIGH, weighed, serving.workload, serving.gpus, serving.formats, serving.engine, serving.overhead)
report = answer.report
answers.draw(answer)
how_fast.draw(answer)
cards.totals(answer)
cards.exact(answer)
cards.cards(answer)

left, right = st.columns(2)
with left:
    st.subheader(say("Parameter breakdown"), anchor=False)
    charts.draw("shares", sunburst.shares(report.parameters.total, answer.architecture.tensors(), charts.theme()))
with right:
    st.subheader(say("Memory vs. GPU capacity"), anchor=False)
    charts.draw("gpus", charts.gpu_bars(report.verdicts, report.memories, charts.theme()))
cards.overtaking(answer)
charts.draw("contexts", charts.context_bars(report, charts.theme()))
if len(report.stages) > 1:
    st.subheader(say("Memory per pipeline stage"), anchor=False)
    charts.draw("stages", charts.stage_bars(report.stages, charts.theme()))
kv_budget.draw(report)

st.subheader(say("Tensors"), anchor=False)
ModelDerivations(answer).tensors()
frame.assumptions(report.assumptions)
