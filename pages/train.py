import streamlit as st

from pages.parts import words
from pages.parts.inputs import sidebar, training
from pages.parts.outputs import charts, frame, training_step
from pages.parts.state.query import TRAIN
from pages.parts.state.weighed import trained
from pages.parts.words import say

answer = frame.page(
    TRAIN, trained, training.step, sidebar.gpu_picker, training.spread, training.details, training.overhead
)
report = answer.report
training_step.totals(answer)
training_step.sentence(answer)
training_step.cards(answer)

st.subheader(say("Memory vs. GPU capacity"), anchor=False)
charts.draw("gpus", charts.gpu_bars(report.verdicts, report.memories, charts.theme(), words.TRAINED))
training_step.timeline(answer)
st.subheader(say("Memory vs. sequence length"), anchor=False)
charts.draw("sequences", charts.sequence_bars(report.by_sequence, charts.theme()))
if len(report.stages) > 1:
    st.subheader(say("Memory per pipeline stage"), anchor=False)
    charts.draw("stages", charts.stage_bars(report.stages, charts.theme(), words.TRAINED))
frame.assumptions(report.assumptions)
