import streamlit as st

st.set_page_config(page_title="Weighbridge", page_icon=":material/scale:", layout="wide")
st.navigation(
    [
        st.Page("weigh.py", title="Weigh", icon=":material/scale:", default=True),
        st.Page("train.py", title="Train", icon=":material/model_training:", url_path="train"),
        st.Page("verify.py", title="Verify", icon=":material/fact_check:", url_path="verify"),
        st.Page("accuracy.py", title="Accuracy", icon=":material/target:", url_path="accuracy"),
    ],
    position="top",
).run()
