"""Finding of a page with its weighbridge, ways to share it, and three questions to click for those who come for the
first time."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.text import config_file
from pages.parts import words
from pages.parts.inputs.fields import moved
from pages.parts.inputs.lists import short_name
from pages.parts.outputs import findings, kept, launch_and_embed, scripts
from pages.parts.outputs.bar import alt_text
from pages.parts.outputs.cards import BADGES
from pages.parts.outputs.findings import Load
from pages.parts.screen import caption, download, quiet_button
from pages.parts.state.query import ATTENTION, COMPARE, DERIVE, STEPS, WEIGH, Page
from pages.parts.state.scenario import Scenario, ServingChoice, Source
from pages.parts.state.url import link, speak, way
from pages.parts.state.weighed import Answer
from pages.parts.words import LANGUAGES, language, listed, say

BUTTON = scripts.element("weighbridge_copy", "copy.js")
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
SCALE = scripts.element("weighbridge_scale", "scale.js")


def header(answer: Answer, page: Page, with_layout: Answer) -> None:
    """Finding of the page, with the scale next to it; below, links and downloads of what is on screen. The link is
    that of the question, which may be refused."""
    result, weight = findings.heading(answer, page), findings.load(answer, page)
    with st.container(horizontal=True, vertical_alignment="center", key="finding"):
        with st.container(gap="small", key="finding_words"):
            findings.draw_title(*result)
            if figures := findings.figures(answer, page):
                findings.draw_figures(figures)
            actions(answer, page, with_layout)
        if weight is not None:
            scale(weight)
    below = st.empty()  # what comes after it keeps its place, and the browser what it has drawn there
    if changes := list(changed(answer)):
        below.caption(say("Changed: {changes}", changes=listed(changes)))
    elif page == WEIGH:
        examples(below)


def actions(answer: Answer, page: Page, with_layout: Answer) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="header"):
        copy_link(with_layout, page)
        if answer.download is not None:
            file, text = (
                f"{answer.model.name.replace('/', '--')}.json",
                partial(answer.download.model_dump_json, indent=1),
            )
            download(say("Report"), "download", file, "application/json", text, type="tertiary")
        launch_and_embed.draw(answer, page)
        if page not in (COMPARE, STEPS):
            kept.draw(with_layout)
        languages()


def changed(answer: Answer) -> Iterator[str]:
    """Each slider that differs, and from what."""
    before = answer.model.published.settings or {}
    for name, now in answer.scenario.overrides.items():
        yield moved(name, before.get(name), now)


def languages() -> None:
    """The way to each other language."""
    for code, name in LANGUAGES.items():
        if code != language():
            quiet_button(name, f"speak_{code}", "translate", speak, code)


def copy_link(answer: Answer, page: Page) -> None:
    address = link(answer.scenario, page)
    if address is not None:
        copy_button(say("Copy link"), address, say("Link copied. Whoever opens it sees the same numbers."))
        return
    with st.popover(say("Copy link"), icon=":material/link:", type="tertiary"):
        caption("This config is too long for an address. Hand on the file instead.")
        download("config.json", "config", "config.json", "application/json", config_file(answer.model.config or {}))


def nothing() -> None:
    """A click is asked about in the run that it starts."""


def copy_button(label: str, text: str, done: str) -> None:
    """Button with a toast once the text is copied; where a browser forbids that, the text to be copied by hand."""
    clicked = BUTTON(
        key="copy",
        data={"label": label, "text": text},
        on_copied_change=nothing,
        on_refused_change=nothing,
        width="content",
        height="content",
    )
    if clicked.copied:
        st.toast(done, icon=":material/check:")
    if clicked.refused:
        st.code(text, language=None, wrap_lines=True)


def examples(place: Any) -> None:
    """Examples, until the reader has chosen something."""
    if (scenario := st.session_state.scenario) != Scenario(opened=scenario.opened, tab=scenario.tab):
        return
    with place.container(horizontal=True, vertical_alignment="center", gap="small", key="examples"):
        st.caption(say("For example:"), width="content")
        for question, page, scenario in EXAMPLES:
            way(scenario, page, say(question))


def scale(weight: Load) -> None:
    """Parts as shares of the heavier side, in the order and the colours of the bar."""
    memory, focus = weight.memory, weight.focus
    heavier = max(memory.total, focus.usable)
    _, color, _ = BADGES[focus.verdict]
    SCALE(
        key="scale",
        data={
            "label": alt_text(memory, focus.usable),
            "parts": [
                [words.color(part), round(size / heavier, 4)]
                for part in weight.parts
                if (size := getattr(memory, part))
            ],
            "gpu": round(focus.usable / heavier, 4),
            "needed": words.gib(memory.total),
            "usable": words.gib(focus.usable),
            "left": say("needed per GPU"),
            "right": short_name(find_gpu(focus.gpu)),
            "color": color,
        },
        width=320,
    )
