"""Ways out of the dashboard: the command that starts it so, a frame for a web page, a badge for a README."""

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from urllib.parse import quote

import streamlit as st

from calc.errors import Message
from calc.serving.engines import ENGINES
from calc.serving.engines.launch import LOCAL, Launch
from calc.training import accelerate, objective_launches, torchrun
from pages.parts import words
from pages.parts.screen import caption, paragraph
from pages.parts.state.query import Page
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import link, program_link
from pages.parts.state.weighed import Answer, Trained, Weighed
from pages.parts.words import say

BADGE = "https://img.shields.io/badge"
LOOK = 'width="100%" height="900" style="border:0" loading="lazy"'


def draw(answer: Answer, page: Page) -> None:
    """Made when it is opened."""
    if answer.error is not None:
        return
    if not isinstance(answer, Weighed | Trained):
        for_programs(answer.scenario, page)
        return
    with opened(say("Launch, embed, API")) as is_open:
        if is_open:
            commands(answer)
            programs(answer.scenario, page)
            embedding(answer, page)


def for_programs(scenario: Scenario, page: Page) -> None:
    """The address of a page's answer for programs alone."""
    with opened(say("API")) as is_open:
        if is_open:
            programs(scenario, page)


@contextmanager
def opened(label: str) -> Iterator[bool]:
    """A popover that says whether it is open."""
    with st.popover(
        label, type="tertiary", icon=":material/terminal:", width="content", key="carry", on_change="rerun"
    ) as container:
        yield bool(container.open)


def commands(answer: Weighed | Trained) -> None:
    """Command lines with this layout."""
    for title, launch in launches(answer):
        st.markdown(f"**{title}**")
        st.code(launch.text, language="bash")
        for note in launch.notes:
            caption(note)


def launches(answer: Weighed | Trained) -> list[tuple[str, Launch]]:
    """Commands by the name of their tool, with the flags with which it fits."""
    if isinstance(answer, Trained):
        step = answer.report.scenario
        started = objective_launches(model(answer), step, answer.scenario.training.teacher)
        return list(started.items()) or [
            ("accelerate", accelerate(step.workload, step.recipe, step.layout)),
            ("torchrun", torchrun(step.layout)),
        ]
    scenario, focus = answer.report.scenario, answer.focus
    engine = answer.scenario.serving.started()
    work = scenario.workload
    question = model(answer), scenario.precision, scenario.layout, work.context, work.batch
    launch = engine.launch(*question, sparse=bool(answer.architecture.experts))
    title = ENGINES[scenario.engine].title
    if launch is None:
        python = f'model = AutoModelForCausalLM.from_pretrained("{model(answer)}", dtype="auto", device_map="auto")'
        return [(title, Launch(words=("python", "-c", f"from transformers import AutoModelForCausalLM; {python}")))]
    launch = of_changed(answer, launch)
    return [(title, launch.with_flags(focus.flags if focus is not None else ()))]


def of_changed(answer: Answer, launch: Launch) -> Launch:
    """A command, with a note where the sliders have changed its model."""
    if not answer.scenario.overrides:
        return launch
    note = Message("The sliders have changed the model: this starts one of your own, saved in {place}.", place=LOCAL)
    return launch.model_copy(update={"notes": (note, *launch.notes)})


def model(answer: Answer) -> str:
    """Model in the command."""
    return answer.model.served(answer.scenario)


def programs(scenario: Scenario, page: Page) -> None:
    """The address of the same answer for programs."""
    program = program_link(scenario, page)
    if program is not None:
        paragraph("**For programs**, as JSON")
        st.code(f"curl '{program}'", language="bash", wrap_lines=True)
        st.link_button(say("Open it"), program, icon=":material/data_object:", type="tertiary")


def embedding(answer: Weighed | Trained, page: Page) -> None:
    """Code for web pages and READMEs."""
    address = link(answer.scenario, page)
    if address is None:
        return
    framed = f"{address}{'&' if '?' in address else '?'}embed=true"
    paragraph("**In a web page**")
    st.code(f'<iframe src="{escape(framed, quote=True)}" {LOOK}></iframe>', language="html", wrap_lines=True)
    paragraph("**Badge for a README**")
    count, memory = answer.architecture.parameters().total, answer.report.memory.total
    rounded = f"{words.count(count)} · {words.gib(memory)}"
    picture = f"{BADGE}/{quote(shielded(answer.model.name))}-{quote(shielded(rounded))}-0072B2"
    st.code(f"[![{answer.model.name}: {rounded}]({picture})]({address})", language="markdown", wrap_lines=True)


def shielded(text: str) -> str:
    """Text for shields.io: a dash and an underscore are doubled."""
    return text.replace("-", "--").replace("_", "__")
