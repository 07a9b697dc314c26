import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import cards, downloads, frame, paper
from pages.parts.screen import caption
from pages.parts.state.query import DERIVE
from pages.parts.state.weighed import weighed

answer = frame.page(DERIVE, weighed, *serving.SECTIONS)
cards.summary(answer)
caption("Every figure as a calculation: formula, values filled in, result. It follows every setting.")
st.markdown(paper.lead(answer))
derived = paper.sections(answer)
downloads.buttons(answer, paper.lead(answer), derived)
paper.contents(derived)
paper.draw(derived, answer.scenario.derive)
frame.assumptions(answer.report.assumptions)
