"""The answer as files: the derivation in Markdown and in HTML, tables as CSV, the design as a config.json."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO

import streamlit as st

from calc import Report
from calc.hardware import find_gpu
from calc.model.architecture import Architecture
from calc.model.paper import Section
from calc.text import config_file
from pages.parts.outputs import paper
from pages.parts.screen import download
from pages.parts.state.weighed import Weighed
from pages.parts.words import say


def buttons(answer: Weighed, lead: str, sections: Sequence[Section]) -> None:
    """One for each file. They are made with the page: what is made on a click no longer knows the reader's language."""
    name, config = answer.model.name, answer.model.config or {}
    files: list[tuple[str, str, str, str]] = [
        (say("Markdown"), "md", "text/markdown", paper.markdown_file(name, lead, sections)),
        (say("HTML"), "html", "text/html", paper.html_page(name, lead, sections)),
        (say("Tensors (CSV)"), "tensors.csv", "text/csv", tensors(answer.architecture)),
        (say("Verdicts (CSV)"), "verdicts.csv", "text/csv", verdicts(answer.report)),
        ("config.json", "config.json", "application/json", config_file(config)),
    ]
    stem = name.replace("/", "--")
    with st.container(horizontal=True, gap="medium"):
        for label, ending, mime, text in files:
            name = ending if ending == "config.json" else f"{stem}.{ending}"
            download(label, f"take_{ending}", name, mime, text, type="tertiary")


def tensors(architecture: Architecture) -> str:
    """A row a tensor, under the checkpoint's names; columns are named as in the JSON report, in every language."""
    counts = ("component", "count", "parameters", "active")
    rows = (
        (t.name, "x".join(map(str, t.shape)), *(getattr(t, name) for name in counts), t.excluded_as or "")
        for t in architecture.tensors()
    )
    return table(("name", "shape", *counts, "not_in_total"), rows)


VERDICT = ("gpu", "gpus", "verdict", "required", "usable", "spare", "max_context", "max_batch", "min_gpus")


def verdicts(report: Report) -> str:
    """A row a GPU, in bytes; `reason` in the reader's language."""
    rows = (
        (*(getattr(v, name) for name in VERDICT), " ".join(v.flags), find_gpu(v.gpu).name, say(v.reason))
        for v in report.verdicts
    )
    return table((*VERDICT, "flags", "name", "reason"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
