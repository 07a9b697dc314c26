import streamlit as st

from pages.parts.inputs import own_gpu, trying
from pages.parts.outputs import catalogue, fitted, frame
from pages.parts.state.query import HARDWARE
from pages.parts.words import say

scenario = frame.without_model(HARDWARE)
match trying.view():
    case "models":
        fitted.models_on_a_gpu(trying.card_and_figure(scenario))
    case "formats":
        fitted.model_on_gpus(trying.model_and_figure(scenario))
    case "roofline":
        fitted.roofline(trying.model_and_card(scenario))
    case _:
        catalogue.draw()
        st.header(say("A GPU of your own"), anchor=False)
        st.caption(say("It travels in the link, has a verdict on Weigh, and is among the GPUs of plans."))
        own_gpu.draw(scenario)
