"""Beginning and end of every page: the ways to others (on a phone a menu at the foot of the screen), the inputs, the
title, sections below an answer, assumptions."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import streamlit as st

from calc import ConfigError
from calc.errors import Message
from pages.parts import words
from pages.parts.inputs import control, question, sidebar
from pages.parts.inputs.model_picker import assume_button
from pages.parts.outputs import findings, scripts, share
from pages.parts.outputs.findings import draw_title, plain
from pages.parts.screen import alert, caption, heading, paragraph
from pages.parts.state import url
from pages.parts.state.published import checkpoint
from pages.parts.state.query import AREAS, Page
from pages.parts.state.scenario import Scenario, Tab, places
from pages.parts.state.url import change
from pages.parts.state.weighed import Answer, looked
from pages.parts.state.widgets import show
from pages.parts.turns import TURNS
from pages.parts.words import say

A = TypeVar("A", bound=Answer)
MARKS = scripts.element("weighbridge_marks", "navigation.js")
Section = tuple[str, Callable[[], None]]
"""Title of a section, and the function that draws it."""


def page(
    here: Page, calculate: Callable[[Scenario], A], *sections: Callable[[A], None], needs_answer: bool = True
) -> A:
    """The inputs of a page, its one calculation, and what stands above every answer: the question, the title with its
    link, what the link said wrong, what the numbers depend on. A page that has nothing to show without an
    answer ends with why."""
    answer = titled(calculate(enter(here)), here)
    with st.sidebar:
        sidebar.draw(answer, sections)
    return begin(answer, here, calculate, needs_answer=needs_answer)


def quick_page(
    here: Page, calculate: Callable[[Scenario], A], draw: Callable[[A], None], *sections: Callable[[A], None]
) -> None:
    """A page of which a slider runs, sends and draws a part: the answer and the sliders. The rest of the sidebar stays
    in the browser as it is; a change that it depends on reruns the page."""
    answer = titled(calculate(enter(here)), here)
    with st.sidebar:
        rooms = sidebar.outline(answer, sections)
    first = [answer]  # of the run of the whole page, in whose turn it is: the part is not to calculate it again

    def part(answer: A) -> None:
        st.session_state.dependencies = sidebar.dependencies(answer)
        if answer.error is None:
            draw(begin(answer, here, calculate))
            sidebar.fill(rooms, answer)
        else:  # what is wrong stands next to its control
            sidebar.fill(rooms, answer)
            draw(begin(answer, here, calculate))

    @st.fragment
    def quick() -> None:
        if first:
            part(first.pop())
            return
        with TURNS.take():
            words.begin()
            answer = calculate(url.current(here))
            if sidebar.dependencies(answer) != st.session_state.dependencies:
                st.rerun()
            if findings.title(answer, here) != st.session_state.tab_title:
                titled(answer, here)
            part(answer)

    quick()


def enter(here: Page) -> Scenario:
    """The scenario, and above the page the way to the others, except in a frame of another site's."""
    scenario = url.current(here)
    if not st.context.is_embedded:
        navigation(here)
    return scenario


def titled(answer: A, here: Page) -> A:
    """The browser's tab says what the page has found; a slider says it only where that changes."""
    title = findings.title(answer, here)
    st.set_page_config(page_title=title)
    st.session_state.tab_title = title
    return answer


def begin(answer: A, here: Page, calculate: Callable[[Scenario], A], *, needs_answer: bool = True) -> A:
    """Parts above an answer."""
    shown = last_good(answer, here, calculate) if needs_answer else answer
    question.draw(answer, here)
    share.header(shown, here, answer)
    link_problems()
    if answer.error is not None and needs_answer:
        with st.container(key="refused"):
            explain(answer, here)
            if shown is not answer:
                caption("Below, dimmed: the last answer there was.")
        if shown is answer:
            st.stop()
        st.html(DIMMED)
    if shown.error is None:
        hub = shown.model.published.hub
        if hub is not None and hub.note is not None:
            alert("info", "info", hub.note)
        for sentence in shown.architecture.assumptions:
            alert("warning", "help", sentence)
    return shown


DIMMED = "<style>.stVerticalBlock > :has(> .st-key-refused) ~ * { filter: grayscale(1); opacity: 0.9; }</style>"
"""Style of the last answer under a refusal: grey, and still of enough contrast to be read. Streamlit has no word for
that."""


def last_good(answer: A, here: Page, calculate: Callable[[Scenario], A]) -> A:
    """An answer, or where a value is refused the one before it, of the same model."""
    scenarios: dict[str, Scenario] = st.session_state.setdefault("good", {})
    if answer.error is None:
        scenarios[here.path] = answer.scenario
        return answer
    before = scenarios.get(here.path)
    return answer if before is None or before.source != answer.scenario.source else calculate(before)


def without_model(here: Page) -> Scenario:
    """A page that is about no model, or about one that it asks for itself. The reader's own goes along to the next."""
    scenario = enter(here)
    if "hardware" in here.uses and scenario.hardware.view != "models":
        question.draw(looked(scenario), here)
    result = findings.alone(scenario, here)
    st.set_page_config(page_title=f"{plain(result.sentence)} · Weighbridge")
    draw_title(*result)
    model = looked(scenario)
    share.actions(model, here, model)
    link_problems()
    return scenario


def link_problems() -> None:
    """Values of the link that make no sense, in one box."""
    sentences = [say(problem) for problem in url.problems()]
    if sentences:
        lines = sentences if len(sentences) == 1 else [f"- {sentence}" for sentence in sentences]
        st.warning("\n".join(lines), icon=":material/link_off:")


def assumptions(sentences: Iterable[Message]) -> None:
    """Assumptions, at the end of the page."""
    st.markdown("\n".join([f"## {say('Assumptions')}", "", *(f"- {say(sentence)}" for sentence in sentences)]))


def navigation(here: Page) -> None:
    """Links without a query: the scenario of the session goes along, with moves that came after they were drawn."""
    views = next((area.pages for area in AREAS if here in area.pages), ())
    with st.container(gap="xxsmall", key="navigation"):
        with st.container(horizontal=True, gap="xxsmall", key="places"):
            for area in AREAS:
                current = here in area.pages
                page = here if current else area.pages[0]
                way(page, area.title, f":material/{area.icon}:", key="current_place" if current else None)
        if len(views) > 1:
            with st.container(horizontal=True, gap="xxsmall", key="views"):
                for page in views:
                    way(page, page.title, key="current_view" if page == here else None)
        MARKS(key="marks", data={"here": here.path})


def way(page: Page, title: Message, icon: str | None = None, *, key: str | None) -> None:
    """One way; that to the page that the reader is on lies in a container with a key."""
    with st.container(width="content", key=key):
        st.page_link(page.script, label=say(title), icon=icon)


def open_section(sections: Mapping[Tab, Section]) -> None:
    """Sections side by side below an answer, of which only the open one is computed, sent and drawn: the first, unless
    the scenario says another."""
    place = places(("tab",))["tab"]
    names = list(sections)
    chosen = place.of(st.session_state.scenario)
    number = names.index(chosen) if chosen in names else 0

    def take(tab: Tab) -> None:
        change({place: None if tab == names[0] else tab})

    st.segmented_control(
        say("Sections"),
        names,
        required=True,
        format_func=lambda name: sections[name][0],
        label_visibility="collapsed",
        **show("sections", names[number], take, given="default"),
    )
    sections[names[number]][1]()


# A page without numbers of ours: why, the ways on, and for a model of the Hub what its own files say


def explain(answer: Answer, here: Page) -> None:
    """Why there is no answer, and what would help."""
    error, published = answer.error, answer.model.published
    if error is None:
        return
    sentence, take = say(error.message), taker(answer, here, error)
    if published.unread is not None:
        alert("error", "cloud_off", "{why} Or choose another model above.", why=sentence)
    elif not published.is_known:
        alert("error", "error", error.message)
        if isinstance((published.config or {}).get("model_type"), str):
            source = answer.scenario.source.model_copy(update={"assume": "llama"})
            assume_button("assume", lambda: change(source=source))
        by_its_table(answer)
    elif error.nearest and take is not None:
        control.explain(error, take, where="main")
    elif error.field == "model":
        alert("error", "error", "{why} Choose another model above.", why=sentence)
    else:
        alert("error", "error", "{why} Put it right above or in the sidebar.", why=sentence)


def taker(answer: Answer, here: Page, error: ConfigError) -> control.Take | None:
    """Callback that puts a value into the field of a sentence; None where no control has the field."""
    name, settings = error.field, answer.model.published.settings or {}
    if name is not None and name in settings:
        return lambda near: sidebar.put(near, name, settings[name])
    place = places(here.uses, answer.scenario.serving.engine).get(name or "")
    return None if place is None else lambda near: change({place: near})


def by_its_table(answer: Answer) -> None:
    """Counts of the checkpoint's own tensor table, exact for any model."""
    hub = answer.model.published.hub
    if hub is None:
        return
    try:
        table = checkpoint(answer.scenario.source, hub)
    except ConfigError as problem:
        alert("warning", "help", problem.message)
        return
    heading("From the checkpoint's tensor table")
    stored = table.bytes or 0
    with st.grid(3, min_column_width=150, gap="xsmall"):
        st.metric(say("Stored elements"), words.count(table.elements))
        st.metric(say("Weights"), words.size(stored))
        st.metric(say("Tensors"), f"{len(table.tensors):,}")
    parts = words.listed(f"{dtype} {words.size(size)}" for dtype, size in table.bytes_by_dtype().items())
    caption(
        "Exactly **{elements:,}** elements in **{bytes:,}** bytes: {parts}.",
        elements=table.elements,
        bytes=stored,
        parts=parts,
    )
    paragraph("Weights alone, without KV cache and activations, which the table does not tell:")
    for gpu in answer.scenario.chosen_gpus():
        paragraph(
            "- **{gpu}**: at least {least:,} of {usable}",
            gpu=gpu.name,
            least=gpu.fewest(stored),
            usable=words.gib(gpu.usable_bytes),
        )
