import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import charts, comparison, comparison_charts, frame
from pages.parts.state.compared import Compared, compared
from pages.parts.state.query import COMPARE
from pages.parts.words import say

answer: Compared = frame.page(
    COMPARE, compared, serving.workload, serving.gpus, serving.formats, serving.engine, serving.overhead
)
comparison.choose(answer)
comparison.headings(answer)
comparison.numbers(answer)

left, right = st.columns(2)
with left:
    st.subheader(say("Memory per GPU"), anchor=False)
    charts.draw("memory_bars", comparison_charts.memory_bars(answer.complete, charts.theme()))
with right:
    st.subheader(say("Parameters"), anchor=False)
    charts.draw("parameter_bars", comparison_charts.parameter_bars(answer.complete, charts.theme()))
st.subheader(say("KV cache vs. context length"), anchor=False)
charts.draw("growth", comparison_charts.growth_curves(answer.complete, charts.theme()))
comparison.settings(answer)
