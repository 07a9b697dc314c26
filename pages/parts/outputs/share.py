"""The title line: what is on screen, its link, and its report as a file."""

import json
from urllib.parse import urlencode, urlsplit

import streamlit as st

from calc import Report
from pages.parts.state.scenario import Scenario, encode, shareable


def header(scenario: Scenario, report: Report | None) -> None:
    name = scenario.name()
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(name if not scenario.overrides else f"{name}, changed", anchor=False)
        with st.container(horizontal=True, width="content"):
            with st.popover("Copy link", icon=":material/link:"):
                if shareable(scenario):
                    st.code(link(scenario), language=None, wrap_lines=True)
                    st.caption("Whoever opens it sees the same numbers.")
                else:
                    st.caption("This config is too long for an address. Hand on the file instead.")
                    st.download_button(
                        "config.json",
                        json.dumps(scenario.config(), indent=2, ensure_ascii=False),
                        file_name="config.json",
                        mime="application/json",
                        icon=":material/download:",
                        on_click="ignore",
                        key="config",
                    )
            if report is not None:
                st.download_button(
                    "Report",
                    report.model_dump_json(indent=1),
                    file_name=f"{name.replace('/', '--')}.json",
                    mime="application/json",
                    icon=":material/download:",
                    on_click="ignore",
                    key="download",
                )


def link(scenario: Scenario) -> str:
    """The address of this screen."""
    here = urlsplit(st.context.url or "")
    return here._replace(path=here.path or "/", query=urlencode(encode(scenario), safe="/,"), fragment="").geturl()
