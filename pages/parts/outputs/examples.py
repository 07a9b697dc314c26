"""Three questions to click for those who come for the first time."""

from typing import Any

import streamlit as st

from calc.errors import Message
from pages.parts.state.query import ATTENTION, DERIVE, WEIGH, Page, encode
from pages.parts.state.scenario import Scenario, ServingChoice, Source
from pages.parts.words import say

EXAMPLES: tuple[tuple[Message, Page, Scenario], ...] = (
    (
        Message("Does DeepSeek-V3 fit on 8 × H200?"),
        WEIGH,
        Scenario(source=Source(model="deepseek-ai/DeepSeek-V3"), gpu=("h200-sxm",), serving=ServingChoice(num_gpus=8)),
    ),
    (
        Message("Why is Qwen2.5-3B 3.09 B?"),
        DERIVE,
        Scenario(source=Source(model="Qwen/Qwen2.5-3B"), derive="parameters"),
    ),
    (Message("What does GQA save?"), ATTENTION, Scenario(source=Source(model="Qwen/Qwen3-8B"))),
)


def draw(place: Any) -> None:
    """Examples, until the reader has chosen something."""
    if (scenario := st.session_state.scenario) != Scenario(opened=scenario.opened, tab=scenario.tab):
        return
    with place.container(horizontal=True, vertical_alignment="center", gap="small", key="examples"):
        st.caption(say("For example:"), width="content")
        for question, page, scenario in EXAMPLES:
            st.page_link(
                page.script,
                label=say(question),
                icon=f":material/{page.icon}:",
                query_params=encode(scenario, page),
            )
