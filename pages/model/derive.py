import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import frame, paper, pinned, take_along
from pages.parts.state.query import DERIVE
from pages.parts.state.weighed import weighed
from pages.parts.words import say

answer = frame.page(DERIVE, weighed, *serving.SECTIONS)
pinned.draw(answer)
st.caption(
    say("The calculation as one writes it on paper: formula, values filled in, result. It follows every setting.")
)
st.markdown(paper.lead(answer))
derived = paper.sections(answer)
take_along.buttons(answer, paper.lead(answer), derived)
paper.contents(derived)
paper.draw(derived, answer.scenario.derive)
frame.assumptions(answer.report.assumptions)
