import streamlit as st

from pages.parts.state import url
from pages.parts.verify import accuracy as shown
from pages.parts.verify.evidence import accuracy

url.current()  # the reader's scenario goes along from screen to screen
st.title("How right it is", anchor=False)
found = accuracy()
st.markdown(
    f"Our figures beside **{len(found.rows)}** that people published from their own GPUs: start-up logs of engines, "
    "benchmarks, training runs. Each of ours comes from the settings that its source states and from the formulas of "
    "the other screens."
)
shown.kinds(found)
dark = st.context.theme.type == "dark"
shown.scatter(found, dark)
shown.table(found)
shown.left_out(found)
