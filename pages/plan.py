import streamlit as st

from pages.parts.inputs import planning
from pages.parts.outputs import frame, plans
from pages.parts.state.planned import planned
from pages.parts.state.query import PLAN
from pages.parts.words import say

answer = frame.page(PLAN, planned, *planning.SECTIONS)
st.caption(say("Which GPUs serve it, how many, laid out how, how fast, and at what price."))
plans.best(answer)
plans.table(answer)
plans.sensitivity(answer)
plans.listed_prices(answer)
frame.assumptions(answer.plans.assumptions)
