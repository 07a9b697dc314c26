"""Overhead that is a machine's own, taken from its start-up log: said in a line, and gone by one click."""

from functools import partial

import streamlit as st

from calc import Overhead
from calc.errors import Outside
from calc.hardware import OverheadItem
from pages.parts import words
from pages.parts.screen import quiet_button
from pages.parts.state.query import WEIGH
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import change
from pages.parts.words import say

ITEMS: tuple[OverheadItem, ...] = ("cuda_graphs", "libraries", "peak_gap")


def draw(scenario: Scenario, *, leads_to_weigh: bool = False) -> None:
    """Overhead from a log; nothing without one."""
    overhead = scenario.overhead
    spans = {item: span for item in ITEMS if (span := getattr(overhead, item)) is not None}
    if overhead.overhead_log is None or not spans:  # a link may name a log alone
        return
    named = [
        say("{part} {span} GiB", part=words.PARTS[item], span=f"{span.low:g}" if span.low == span.high else str(span))
        for item, span in spans.items()
    ]
    line = say("Overhead from a log of {log}: {list}.", log=Outside(overhead.overhead_log), list=words.listed(named))
    st.markdown(f":material/tune: {line}")
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="calibrated"):
        take = partial(change, overhead=Overhead())
        quiet_button(say("Remove"), "remove_calibration", "undo", take, help=say("Our own ranges again."))
        if leads_to_weigh:
            st.page_link(WEIGH.script, label=say("Weigh"), icon=":material/scale:", width="content")
