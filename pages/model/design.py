import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import blueprint, cards, design_aids, frame
from pages.parts.state.query import DESIGN
from pages.parts.state.weighed import weighed

answer = frame.page(DESIGN, weighed, *serving.SECTIONS)
cards.summary(answer)
left, right = st.columns([6, 5], gap="large")
with left:
    blueprint.draw(answer)
with right:
    design_aids.lint(answer)
    design_aids.scale_to(answer)
    design_aids.experts(answer)
with left if len(answer.architecture.all_blocks) == 1 else right:  # layers of one kind are a short drawing
    design_aids.standing(answer)
    design_aids.notes(answer)
