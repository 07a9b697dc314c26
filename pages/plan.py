import streamlit as st

from pages.parts.inputs import efficiencies, planning, training_planning
from pages.parts.outputs import carried, frame, paper, plans, training_plans
from pages.parts.state import url
from pages.parts.state.planned import planned
from pages.parts.state.query import PLAN
from pages.parts.state.training_planned import training_planned
from pages.parts.words import say

if url.current(PLAN).planning.purpose == "train":
    with st.spinner(say("Trying every layout, ZeRO stage and recomputation …")):  # for the title says the fastest
        trained = frame.page(
            PLAN, training_planned, planning.purpose, training_planning.run, planning.hardware, planning.prices
        )
    st.caption(say("How to train all of its weights: laid out how, in how many days, at what price."))
    training_plans.draw(trained)
else:
    answer = frame.page(PLAN, planned, planning.purpose, *planning.SECTIONS)
    carried.on_plan(answer)
    plans.best(answer)
    chosen = plans.table(answer)
    plans.frontier(answer, chosen)
    plans.sensitivity(answer)
    paper.link(answer, "time")
    plans.listed_prices(answer)
    if chosen is not None:
        efficiencies.draw(answer, chosen.gpu, answer.plans.rows_of(chosen), training=False)
    frame.assumptions(answer.plans.assumptions)
