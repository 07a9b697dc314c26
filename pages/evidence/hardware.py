import streamlit as st

from pages.parts.inputs import own_gpu
from pages.parts.outputs import catalogue, frame
from pages.parts.state.query import HARDWARE
from pages.parts.words import say

scenario = frame.without_model(HARDWARE)
catalogue.draw()
st.header(say("A GPU of your own"), anchor=False)
st.caption(say("It travels in the link, has a verdict on Weigh, and is among the GPUs of plans."))
own_gpu.draw(scenario)
