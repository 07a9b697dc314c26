"""The dashboard: `streamlit run app.py`. The main script is in pages/, for Streamlit takes a folder of that name beside
the main script for the pages of its older multipage mode."""

import streamlit as st

app = st.App("pages/router.py")
