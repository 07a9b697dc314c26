"""The way to other pages: the five places of the app, and below them the views of the one that the reader is in. On a
phone the places are a menu at the foot of the screen."""

import streamlit as st

from calc.errors import Message
from pages.parts.outputs import scripts
from pages.parts.state.query import AREAS, Page
from pages.parts.words import say

MARKS = scripts.element("weighbridge_marks", "navigation.js")


def draw(here: Page) -> None:
    """Links without a query: the scenario of the session goes along, with moves that came after they were drawn."""
    views = next((area.pages for area in AREAS if here in area.pages), ())
    with st.container(gap="xxsmall", key="navigation"):
        with st.container(horizontal=True, gap="xxsmall", key="places"):
            for area in AREAS:
                current = here in area.pages
                page = here if current else area.pages[0]
                link(page, area.title, f":material/{area.icon}:", key="current_place" if current else None)
        if len(views) > 1:
            with st.container(horizontal=True, gap="xxsmall", key="views"):
                for page in views:
                    link(page, page.title, key="current_view" if page == here else None)
        MARKS(key="marks", data={"here": here.path})


def link(page: Page, title: Message, icon: str | None = None, *, key: str | None) -> None:
    """One way; that to the page that the reader is on lies in a container with a key."""
    with st.container(width="content", key=key):
        st.page_link(page.script, label=say(title), icon=icon)
