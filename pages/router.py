from pathlib import Path

import streamlit as st

from pages.parts.state import url
from pages.parts.state.query import PAGES, WEIGH
from pages.parts.turns import TURNS
from pages.parts.words import say

ICON = str(Path(__file__).with_name("icon.svg"))  # an icon of Streamlit's set would be fetched from another site

st.set_page_config(page_title="Weighbridge", page_icon=ICON, layout="wide", initial_sidebar_state=360)
st.html(Path(__file__).with_name("frame.css"))
with TURNS.take():
    url.arrive()
    st.navigation(
        [
            st.Page(
                page.script,
                title=say(page.title),
                icon=f":material/{page.icon}:",
                url_path=page.path,
                default=page == WEIGH,
            )
            for page in PAGES
        ],
        position="hidden",  # frame.py draws the links
    ).run()
    url.resume()
