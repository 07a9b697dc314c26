import streamlit as st

from pages.parts.state import url
from pages.parts.words import say

st.set_page_config(page_title="Weighbridge", page_icon=":material/scale:", layout="wide", initial_sidebar_state=360)
url.arrive()
st.navigation(
    [
        st.Page("weigh.py", title=say("Weigh"), icon=":material/scale:", default=True),
        st.Page("train.py", title=say("Train"), icon=":material/model_training:", url_path="train"),
        st.Page("plan.py", title=say("Plan"), icon=":material/route:", url_path="plan"),
        st.Page("derive.py", title=say("Derive"), icon=":material/function:", url_path="derive"),
        st.Page("attention.py", title=say("Attention"), icon=":material/hub:", url_path="attention"),
        st.Page("compare.py", title=say("Compare"), icon=":material/compare_arrows:", url_path="compare"),
        st.Page("hardware.py", title=say("Hardware"), icon=":material/memory:", url_path="hardware"),
        st.Page("verify.py", title=say("Verify"), icon=":material/fact_check:", url_path="verify"),
        st.Page("accuracy.py", title=say("Accuracy"), icon=":material/target:", url_path="accuracy"),
    ],
    position="top",
).run()
