import streamlit as st

from pages.parts.inputs import quantizing as inputs
from pages.parts.outputs import frame, quantizing
from pages.parts.state.quantized import quantized
from pages.parts.state.query import QUANTIZE
from pages.parts.words import say

answer = frame.page(QUANTIZE, quantized, *inputs.SECTIONS)
st.caption(say("What the conversion itself takes, by the rules of the tool's own code; formulas below."))
quantizing.verdicts(answer)
quantizing.phases(answer)
frame.assumptions(answer.report.assumptions)
