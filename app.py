import streamlit as st

st.set_page_config(page_title="Weighbridge", page_icon=":material/scale:", layout="wide")
st.navigation(
    [st.Page("pages/weigh.py", title="Weigh", icon=":material/scale:", default=True)], position="hidden"
).run()
