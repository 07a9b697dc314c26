import streamlit as st

from presets import accuracy
from screens.parts import agreement, state

state.current()  # the reader's scenario goes along from screen to screen
st.title("How right it is", anchor=False)
found = accuracy()
st.markdown(
    f"Our figures beside **{len(found.rows)}** that people published from their own GPUs: start-up logs of engines, "
    "benchmarks, training runs. Each of ours comes from the settings that its source states and from the formulas of "
    "the other screens."
)
agreement.kinds(found)
dark = st.context.theme.type == "dark"
agreement.scatter(found, dark)
agreement.table(found)
agreement.left_out(found)
