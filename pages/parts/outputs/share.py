"""Finding of a page with its weighbridge; ways out of it: links, files, what is kept to be compared, the command that
starts it, a frame for a web page, a badge for a README; and three questions for those who come for the first time."""

from collections.abc import Sized
from functools import partial
from html import escape
from typing import Any
from urllib.parse import quote

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.serving.engines import ENGINES
from calc.serving.engines.launch import LOCAL, Launch, ServerStart
from calc.text import config_file
from calc.training import accelerate, objective_launches, torchrun
from pages.parts import words
from pages.parts.inputs.fields import moved
from pages.parts.inputs.lists import short_name
from pages.parts.outputs import findings, scripts
from pages.parts.outputs.bar import alt_text
from pages.parts.outputs.cards import BADGES
from pages.parts.outputs.findings import Load
from pages.parts.screen import caption, download, paragraph, quiet_button
from pages.parts.state.compared import LETTERS, add_current, can_keep
from pages.parts.state.compared import keep as keep_now
from pages.parts.state.query import ATTENTION, COMPARE, DERIVE, STEPS, WEIGH, Page
from pages.parts.state.scenario import MOST_OTHERS, Comparison, Scenario, ServingChoice, Source
from pages.parts.state.url import link, program_link, speak, way
from pages.parts.state.weighed import Answer, Trained, Weighed
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
UNTOUCHED = {"source": Source(), "comparison": Comparison()}
SCALE = scripts.element("weighbridge_scale", "scale.js")


def header(answer: Answer, page: Page, with_layout: Answer) -> None:
    """Finding of the page, with the scale next to it; below, links and downloads of what is on screen, and each slider
    that differs, and from what. The link is that of the question, which may be refused."""
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
    before = answer.model.published.settings or {}
    changes = [moved(name, before.get(name), now) for name, now in answer.scenario.overrides.items()]
    if changes:
        below.caption(say("Changed: {changes}", changes=listed(changes)))
    elif page == WEIGH:
        examples(below)


def actions(answer: Answer, page: Page, with_layout: Answer) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="header"):
        copy_link(with_layout, page)
        if answer.download is not None:
            file = f"{answer.model.name.replace('/', '--')}.json"
            text = partial(answer.download.model_dump_json, indent=1)
            download(say("Report"), "download", file, "application/json", text, type="tertiary")
        if page.answers_at and (answer.error is None or page in findings.ALONE):
            ways_out(answer.scenario, page, answer if isinstance(answer, Weighed | Trained) else None)
        if page not in (COMPARE, STEPS, *findings.ALONE):
            keep(with_layout)
        if page not in (COMPARE, STEPS):
            ways_to_compare(with_layout.scenario)
        languages()


def languages() -> None:
    """The way to each other language."""
    for code, name in LANGUAGES.items():
        if code != language():
            quiet_button(name, f"speak_{code}", "translate", speak, code)


def copy_link(answer: Answer, page: Page) -> None:
    """Button with a toast once the link is copied; where a browser forbids that, the link to be copied by hand."""
    address = link(answer.scenario, page)
    if address is None:
        with st.popover(say("Copy link"), icon=":material/link:", type="tertiary"):
            caption("This config is too long for a link. Share the file instead.")
            download("config.json", "config", "config.json", "application/json", config_file(answer.model.config or {}))
        return
    clicked = BUTTON(
        key="copy",
        data={"label": say("Copy link"), "text": address},
        on_copied_change=lambda: None,  # it is asked about in the run that it starts
        on_refused_change=lambda: None,
        width="content",
        height="content",
    )
    if clicked.copied:
        st.toast(say("Link copied. Whoever opens it sees the same numbers."), icon=":material/check:")
    if clicked.refused:
        st.code(address, language=None, wrap_lines=True)


def examples(place: Any) -> None:
    """Examples, until the reader has chosen something."""
    if (scenario := st.session_state.scenario) != scenario.usual.model_copy(update=UNTOUCHED):
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


def ways_to_compare(scenario: Scenario) -> None:
    """Links to the comparison of models and of training steps that were kept as B."""
    models, steps = scenario.comparison.others, scenario.comparison.steps
    if models:
        lead_to(COMPARE, say("Compare A with {letters}", letters=letters(models)))
    if steps:
        lead_to(STEPS, say("Compare step A with {letters}", letters=letters(steps)))


def lead_to(page: Page, label: str) -> None:
    st.page_link(page.script, label=label, icon=f":material/{page.icon}:", width="content")


def letters(others: Sized) -> str:
    return ", ".join(LETTERS[1 : len(others) + 1])


def keep(answer: Answer) -> None:
    """Keep the configuration on screen under the next letter, and go on with A: on Train the step, elsewhere the
    model."""
    if answer.error is not None:
        return
    scenario, known = answer.scenario, answer.scenario.comparison
    is_step = isinstance(answer, Trained)
    letter = LETTERS[min(len(known.steps if is_step else known.others) + 1, MOST_OTHERS)]
    label = say("Keep as {letter}", letter=letter)
    if is_step:
        help_text = say("The model and how it is trained stay as {letter}; A follows the question.", letter=letter)
        is_full = not can_keep(scenario)
        quiet_button(label, "keep_step", "push_pin", keep_now, scenario, help=help_text, disabled=is_full)
    else:
        help_text = say(
            "The model, its changes and formats stay as {letter}; A follows the question. GPUs, users and lengths "
            "are the question's for all of them, and how they are trained is not compared.",
            letter=letter,
        )
        is_full, formats = len(known.others) >= MOST_OTHERS, answer.model.precision(scenario.serving)
        quiet_button(label, "add_current", "push_pin", add_current, formats, help=help_text, disabled=is_full)


BADGE = "https://img.shields.io/badge"
LOOK = 'width="100%" height="900" style="border:0" loading="lazy"'


def ways_out(scenario: Scenario, page: Page, answer: Weighed | Trained | None = None) -> None:
    """The address of a page's answer for programs, and of one on serving or training its commands, a frame and a badge:
    made when it is opened."""
    with st.popover(
        say("API") if answer is None else say("Launch, embed, API"),
        type="tertiary",
        icon=":material/terminal:",
        width="content",
        key="carry",
        on_change="rerun",
    ) as container:
        if not container.open:
            return
        for title, launch in () if answer is None else launches(answer):
            st.markdown(f"**{title}**")
            started(launch)
        program = program_link(scenario, page)
        if program is not None:
            paragraph("**For programs**, as JSON")
            st.code(f"curl '{program}'", language="bash", wrap_lines=True)
            st.link_button(say("Open it"), program, icon=":material/data_object:", type="tertiary")
        if answer is not None:
            embedding(answer, page)


def started(launch: Launch) -> None:
    """A command, and what it can't say."""
    st.code(launch.text, language="bash")
    for note in launch.notes:
        caption(note)


def launches(answer: Weighed | Trained) -> list[tuple[str, Launch]]:
    """Commands by the name of their tool, with the flags with which it fits."""
    model = answer.model.served(answer.scenario)
    if isinstance(answer, Trained):
        step = answer.report.scenario
        by_trainer = objective_launches(model, step, answer.scenario.training.teacher)
        return list(by_trainer.items()) or [
            ("accelerate", accelerate(step.workload, step.recipe, step.layout)),
            ("torchrun", torchrun(step.layout)),
        ]
    scenario, focus = answer.report.scenario, answer.focus
    engine = answer.scenario.serving.started()
    work = scenario.workload
    server = answer.architecture, scenario.precision, scenario.layout, work.context, work.batch
    launch = engine.launch(ServerStart.of(model, *server))
    title = ENGINES[scenario.engine].title
    if launch is None:
        python = f'model = AutoModelForCausalLM.from_pretrained("{model}", dtype="auto", device_map="auto")'
        return [(title, Launch(words=("python", "-c", f"from transformers import AutoModelForCausalLM; {python}")))]
    launch = of_changed(answer, launch)
    return [(title, launch.with_flags(focus.flags if focus is not None else ()))]


def of_changed(answer: Answer, launch: Launch) -> Launch:
    """A command, with a note where the sliders have changed its model."""
    if not answer.scenario.overrides:
        return launch
    note = Message("The sliders have changed the model: this starts one of your own, saved in {place}.", place=LOCAL)
    return launch.model_copy(update={"notes": (note, *launch.notes)})


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
