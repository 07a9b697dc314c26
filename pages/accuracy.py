import streamlit as st

from pages.parts.outputs import charts, frame
from pages.parts.state.query import ACCURACY
from pages.parts.verify import accuracy as shown
from pages.parts.verify.evidence import accuracy
from pages.parts.words import say

frame.without_model(ACCURACY, say("Accuracy"))
found = accuracy()
st.markdown(
    say(
        "Computed figures beside **{n}** that people published from their own GPUs: start-up logs of engines, "
        "benchmarks, training runs. Each is computed from the settings that its source states, with the formulas of "
        "the other pages.",
        n=len(found.rows),
    )
)
shown.kinds(found)
shown.scatter(found, charts.theme())
shown.table(found)
shown.left_out(found)
