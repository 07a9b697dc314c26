"""The derivation on paper: what is on it, its table of contents and its sections; and the same in Markdown and in HTML,
in the reader's language: one text for the page and for files."""

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.model.counting import Counting
from calc.model.derivation import Step
from calc.model.formula import Formula, grouped, latex_lines, number
from calc.model.paper import Anchor, Cell, Code, Equation, Exact, Heading, Item, PaperTable, Section
from calc.serving.derivation import ServingPaper, rules
from calc.serving.engines import ENGINES
from calc.time.paper import objective_time_section, step_time_section, time_section
from calc.training import training_section
from pages.parts import words
from pages.parts.screen import paragraph
from pages.parts.state import url
from pages.parts.state.query import DERIVE
from pages.parts.state.weighed import Answer, Weighed, trained
from pages.parts.words import say
from presets.studies import STUDIES, hand_section


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
        counted.append(time_section(answer.serving, gpu, report.scenario.workload, answer.scenario.cluster))
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
    links = [f"{number}. [{title(section)}](#{section.anchor})" for number, section in enumerate(listed, 1)]
    with st.container():
        paragraph("**Contents**")
        with st.grid(3, min_column_width=240, gap="xxsmall"):
            for link in links:
                st.markdown(link)


def draw(listed: list[Section], opened: Anchor | None) -> None:
    """The sections, and the one that the link means in sight."""
    for section in listed:
        st.header(title(section), anchor=section.anchor)
        for item in section.items:
            if isinstance(item, Heading) and item.anchor is not None:
                st.subheader(title(item), anchor=item.anchor)
            elif isinstance(item, PaperTable):
                frame = SIDEWAYS if any(isinstance(cell, Message) for row in item.rows for cell in row) else UNBROKEN
                st.markdown(frame.format(table=markdown_item(item)), unsafe_allow_html=True)
            else:
                st.markdown(markdown_item(item))
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


def link(answer: Answer, to: Anchor) -> None:
    """The way to a place on paper."""
    url.way(answer.scenario.model_copy(update={"derive": to}), DERIVE, say("Step by step"), "edit_note")


def title(of: Section | Heading) -> str:
    return words.part(of.title)


def approximately(step: Step) -> str:
    """A result as people say it: 16.78 M, 1.00 GiB; nothing where that says no more."""
    rounded = words.size(step.result) if step.unit.startswith("bytes") else words.count(step.result)
    return "" if rounded.removesuffix(" B") == f"{step.result:,}" else rounded


def sides(step: Step) -> list[Formula]:
    """Formula and values, the lines above its result."""
    return [side for side in (step.formula, step.values) if side is not None and side != number(step.result)]


# Markdown, with formulas in LaTeX


def markdown_file(name: str, lead: str, sections: Iterable[Section]) -> str:
    """A whole file: title, what it says first, sections."""
    parts = [f"# {name}", lead]
    for section in sections:
        parts += [f"## {title(section)}", *map(markdown_item, section.items)]
    return "\n\n".join(parts) + "\n"


def markdown_item(item: Item) -> str:
    match item:
        case Heading():
            return f"**{title(item)}**"
        case Equation(step=step):
            return markdown_equation(step)
        case PaperTable(head=head, rows=rows):
            lines = ["---:" if rows and isinstance(cell, Exact) else "---" for cell in (rows[0] if rows else head)]
            cells = [[markdown_cell(cell) for cell in row] for row in rows]
            titles = [say(name) for name in head]
            return "\n".join("| " + " | ".join(row) + " |" for row in [titles, lines, *cells])
        case _:
            return say(item)


def markdown_cell(cell: Cell) -> str:
    match cell:
        case Exact(number=number):
            return f"{number:,}"
        case Formula():
            return f"${cell.latex()}$"
        case None:
            return ""
        case Code(text=text):
            return f"`{text}`"
        case _:
            return words.part(cell)


def markdown_equation(step: Step) -> str:
    """Formula, values and result, one below the other."""
    rows = [latex_lines(side) for side in sides(step)]
    result = grouped(str(step.result)).replace(",", "{,}")
    rounded = approximately(step)
    rows.append([result + (rf" \approx \text{{{rounded}}}" if rounded else "")])
    lines = []
    for i, (first, *others) in enumerate(rows):
        lines.append(rf"{'={}' if i else ''}&{first}")
        lines += [rf"&\quad {other.strip()}" for other in others]
    body = " \\\\[4pt]\n".join(lines)
    label = f"{words.part(step.what)}\n\n" if step.what else ""
    return f"{label}$$\n\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n$$"


# HTML, with formulas in MathML, for a file that needs nothing else

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
table { border-collapse: collapse; margin: .75rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #8885; padding: .25rem .6rem; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-family: ui-monospace, monospace; font-size: .92em; }
.equation { margin: .5rem 0 1rem 1.5rem; overflow-x: auto; } .equation div { margin: .2rem 0; }
nav ol { columns: 2; } @media (max-width: 600px) { nav ol { columns: 1; } }
@media print {
  body { max-width: none; font-size: 10pt; } h2 { break-after: avoid; } tr, .equation { break-inside: avoid; }
}
"""


def html_page(name: str, lead: str, sections: Iterable[Section]) -> str:
    """A whole file: title, what it says first, contents, sections."""
    sections = list(sections)
    contents = "".join(f'<li><a href="#{section.anchor}">{escape(title(section))}</a></li>' for section in sections)
    body = "\n".join(
        "\n".join([f'<h2 id="{section.anchor}">{escape(title(section))}</h2>', *map(html_item, section.items)])
        for section in sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="{words.language()}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(name)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(name)}</h1>\n<p>{html_text(lead)}</p>\n<nav><ol>{contents}</ol></nav>\n"
        f"{body}\n</body>\n</html>\n"
    )


def html_item(item: Item) -> str:
    match item:
        case Heading(anchor=anchor):
            place = f' id="{anchor}"' if anchor else ""
            return f"<h3{place}>{html_text(title(item))}</h3>"
        case Equation(step=step):
            return html_equation(step)
        case PaperTable(head=head, rows=rows):
            titles = "".join(f"<th>{html_text(say(name))}</th>" for name in head)
            body = "".join(f"<tr>{''.join(map(html_cell, row))}</tr>" for row in rows)
            return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
        case _:
            return f"<p>{html_text(say(item))}</p>"


def html_cell(cell: Cell) -> str:
    match cell:
        case Exact(number=number):
            return f'<td class="number">{number:,}</td>'
        case Formula():
            return f"<td>{math(cell)}</td>"
        case None:
            return "<td></td>"
        case Code(text=text):
            return f"<td><code>{escape(text)}</code></td>"
        case _:
            return f"<td>{html_text(words.part(cell))}</td>"


def html_equation(step: Step) -> str:
    rounded = approximately(step)
    rows = [*map(math, sides(step)), f"{step.result:,}" + (f" ≈ {rounded}" if rounded else "")]
    lines = "".join(f"<div>{'= ' if i else ''}{row}</div>" for i, row in enumerate(rows))
    label = f"<p>{html_text(words.part(step.what))}</p>" if step.what else ""
    return f'{label}<div class="equation">{lines}</div>'


def math(formula: Formula) -> str:
    return f"<math>{formula.mathml()}</math>"


def html_text(text: str) -> str:
    """A sentence with its bold words and its code."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text, quote=False))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", bold)
