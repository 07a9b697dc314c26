import streamlit as st

from pages.parts.inputs import planning
from pages.parts.outputs import frame, training_plans
from pages.parts.screen import caption
from pages.parts.state.planned import training_planned
from pages.parts.state.query import TRAIN_PLAN
from pages.parts.words import say

with st.spinner(say("Trying every layout, ZeRO stage and recomputation …")):  # for the title says the fastest
    answer = frame.page(TRAIN_PLAN, training_planned, planning.training_run, planning.hardware, planning.prices)
caption("Plans to train all of its weights: layout, days and price.")
training_plans.draw(answer)
