"""The derivation on paper: what is on it, its table of contents, and its sections."""

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.model.counting import Counting
from calc.model.paper import Anchor, Heading, PaperTable, Section
from calc.serving.derivation import ServingPaper, rules
from calc.serving.engines import ENGINES
from calc.time.time_paper import objective_time_section, step_time_section, time_section
from calc.training import training_section
from pages.parts.outputs import paper_formats
from pages.parts.screen import paragraph
from pages.parts.state import url
from pages.parts.state.query import DERIVE
from pages.parts.state.weighed import Answer, Weighed, trained
from pages.parts.words import say
from presets.hand import hand_section
from presets.studies import STUDIES


def sections(answer: Weighed) -> list[Section]:
    """Everything that is derived of a model and its memory on the GPU that the answer is about."""
    architecture, report, focus = answer.architecture, answer.report, answer.focus
    counted = Counting(architecture).sections()
    counted.append(rules(architecture, report))
    source = answer.scenario.source
    if source.pasted is None and source.model in STUDIES and not answer.scenario.overrides:
        counted.append(hand_section(STUDIES[source.model], architecture))
    gpu = None if focus is None else find_gpu(focus.gpu)
    counted += ServingPaper(architecture, report, answer.derivations(gpu)).sections(focus)
    if gpu is not None and focus is not None and focus.serves:
        shares = answer.scenario.efficiencies
        counted.append(time_section(answer.serving, gpu, report.scenario.workload, shares.edits, shares.node))
    step = trained(answer.scenario)
    if step.error is None:
        counted.append(training_section(architecture, step.report))
        if step.passes is not None:
            counted.append(objective_time_section(step.passes))
        elif step.speed is not None:
            counted.append(step_time_section(step.speed))
    return counted


def lead(answer: Weighed) -> str:
    """A sentence on the workload, engine and GPU that are derived."""
    report, focus = answer.report, answer.focus
    workload = report.scenario.workload
    values: dict[str, Any] = {
        "batch": workload.batch,
        "context": workload.context,
        "engine": ENGINES[report.scenario.engine].title,
    }
    formats = {"weights": report.scenario.precision.weights, "kv": report.scenario.precision.kv}
    if focus is None:
        return say(
            "Batch size {batch:,}, context length {context:,}, weights in {weights}, KV cache in {kv}, under {engine}.",
            **values,
            **formats,
        )
    return say(
        "Batch size {batch:,}, context length {context:,}, weights in {weights}, KV cache in {kv}, under {engine} on "
        "{gpu}.",
        **values,
        **formats,
        gpu=find_gpu(focus.gpu).name,
    )


def contents(listed: list[Section]) -> None:
    """Links to the sections."""
    links = [
        f"{number}. [{paper_formats.title(section)}](#{section.anchor})" for number, section in enumerate(listed, 1)
    ]
    with st.container():
        paragraph("**Contents**")
        with st.grid(3, min_column_width=240, gap="xxsmall"):
            for link in links:
                st.markdown(link)


def draw(listed: list[Section], opened: Anchor | None) -> None:
    """The sections, and the one that the link means in sight."""
    for section in listed:
        st.header(paper_formats.title(section), anchor=section.anchor)
        for item in section.items:
            if isinstance(item, Heading) and item.anchor is not None:
                st.subheader(paper_formats.title(item), anchor=item.anchor)
            elif isinstance(item, PaperTable):
                frame = SIDEWAYS if any(isinstance(cell, Message) for row in item.rows for cell in row) else UNBROKEN
                st.markdown(frame.format(table=paper_formats.markdown_item(item)), unsafe_allow_html=True)
            else:
                st.markdown(paper_formats.markdown_item(item))
    if opened is not None:
        st.html(SCROLL % json.dumps(opened), unsafe_allow_javascript=True)


SIDEWAYS = '<div tabindex="0" style="overflow-x:auto">\n\n{table}\n\n</div>'
"""A table too wide for a telephone moves sideways by itself, not with the page."""
UNBROKEN = '<div tabindex="0" style="overflow-x:auto;white-space:nowrap">\n\n{table}\n\n</div>'
"""Style of a table without sentences, whose cells stay on one line."""
SCROLL = """<script>
const start = Date.now();
let moved = false;
for (const what of ["wheel", "touchstart", "keydown", "pointerdown"])
  window.addEventListener(what, () => (moved = true), {once: true, passive: true});
const look = () => {
  const place = document.getElementById(%s);
  if (moved) return;
  const top = place?.getBoundingClientRect().top;
  if (top < 0 || top > 260) place.scrollIntoView();
  if (Date.now() - start < 6000) setTimeout(look, 250);
};
look();
</script>"""
"""Looks again for some seconds, for what stands above still grows when the page arrives, until the reader moves."""


def derivation_with_link(answer: Answer, to: Anchor, draw_lines: Callable[[], None]) -> None:
    """The derivation of a figure, and the way to its place on paper."""
    draw_lines()
    link(answer, to)


def link(answer: Answer, to: Anchor) -> None:
    """The way to a place on paper."""
    url.way(answer.scenario.model_copy(update={"derive": to}), DERIVE, say("Step by step"), "edit_note")
