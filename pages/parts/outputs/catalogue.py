"""The catalogue of GPUs as a table that can be searched, sorted and filtered."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calc.hardware import GPU, Dtype, runs
from calc.serving.engines import ENGINES
from calc.time import price_of
from calc.units import GIB
from pages.parts import words
from pages.parts.outputs import rows
from pages.parts.outputs.rows import Column, Row, row_of
from pages.parts.state.query import WEIGH
from pages.parts.state.url import change, lead
from pages.parts.words import say
from presets import gpus

DECISIVE = 9
"""Columns in sight without a click."""
PEAKS: tuple[Dtype, ...] = ("bf16", "fp16", "fp8", "fp4", "int8")


def draw() -> None:
    """The filters, how many pass them, and the table."""
    shown = chosen()
    st.caption(
        say(
            "{n:,} GPUs; a figure without a source stays out. Click rows, of several GPUs too, to weigh on them.",
            n=len(shown),
        )
    )
    table(shown)


def chosen() -> list[GPU]:
    """GPUs that pass the filters, the newest first, of a year by bandwidth."""
    known = sorted(gpus().values(), key=lambda gpu: (gpu.year or 0, gpu.bandwidth_gb_s), reverse=True)
    with st.grid(4, min_column_width=150, gap="small", key="catalogue_filters"):
        vendors = st.multiselect(
            say("Vendor"), sorted({gpu.vendor for gpu in known}), key="vendors", placeholder=say("any")
        )
        forms = st.multiselect(
            say("Form"),
            sorted({gpu.form for gpu in known}),
            format_func=lambda form: say(words.FORMS[form]),
            key="forms",
            placeholder=say("any"),
        )
        engines = st.multiselect(
            say("Engine"),
            list(ENGINES),
            format_func=lambda name: ENGINES[name].title,
            key="runs",
            placeholder=say("any"),
        )
        least = st.number_input(say("Memory, at least (GB)"), min_value=0, value=0, step=8, key="least_memory")
    return [
        gpu
        for gpu in known
        if (not vendors or gpu.vendor in vendors)
        and (not forms or gpu.form in forms)
        and all(runs(gpu, ENGINES[engine].support) for engine in engines)
        and gpu.memory_gb >= least
    ]


def table(shown: list[GPU]) -> None:
    """A row a GPU; rows that are clicked can be weighed."""
    picked = rows.opened("catalogue")
    names = tuple(gpu.id for gpu in shown if gpu.id in picked)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        every = rows.more_columns("catalogue_columns")
        if st.button(
            say("Weigh on these {n:,} GPUs", n=len(names)) if len(names) > 1 else say("Weigh on this GPU"),
            key="weigh_on",
            icon=":material/arrow_forward:",
            disabled=not names,
            on_click=lambda: change(gpu=names),
        ):
            lead(WEIGH)
    known = columns()
    lines = [row(gpu, known) for gpu in shown]
    most = None if every else DECISIVE
    rows.pick("catalogue", say("GPUs"), known.values(), lines, most=most, several=True)


def row(gpu: GPU, columns: Mapping[str, Column]) -> Row:
    """Row of a GPU; cells of unknown figures stay empty."""
    values: dict[str, Any] = {
        "gpu": gpu.name,
        "vendor": gpu.vendor,
        "form": say(words.FORMS[gpu.form]),
        "year": f"{gpu.year}",
        "memory": gpu.memory_gb,
        "usable": gpu.usable_bytes / GIB,
        "bandwidth": gpu.bandwidth_gb_s,
        **{dtype: gpu.tflops.get(dtype) for dtype in PEAKS},
        "link": gpu.link_gb_s,
        "topology": None if gpu.topology is None else say(words.TOPOLOGIES[gpu.topology]),
        "pcie": gpu.pcie,
        "capability": gpu.capability,
        "tdp": gpu.tdp_w,
        "price": price_of(gpu.id),
        "engines": ", ".join(ENGINES[engine].title for engine in engines(gpu)),
        "specification": source(gpu, "specification"),
        "measured": source(gpu, "memory"),
        "id": gpu.id,
    }
    return row_of(gpu.id, columns, values)


def engines(gpu: GPU) -> list[str]:
    return [name for name, engine in ENGINES.items() if runs(gpu, engine.support)]


def source(gpu: GPU, fact: Any) -> str | None:
    """Address of a fact. A memory may be that of another GPU with the same."""
    cited = gpu.sources.get(fact)
    return cited if cited is not None and cited.startswith("https://") else None


def columns() -> dict[str, Column]:
    """Columns, `DECISIVE` of them first."""
    dense = say("Dense peak of the matrix units.")
    return {
        "gpu": Column(say("GPU")),
        "form": Column(say("Form")),
        "year": Column(say("Year")),
        "memory": Column(say("Memory, GB"), "figure"),
        "bandwidth": Column(say("Bandwidth, GB/s"), "figure"),
        "bf16": Column(say("{dtype}, TFLOPS", dtype="bf16"), "figure", dense),
        "fp8": Column(say("{dtype}, TFLOPS", dtype="fp8"), "figure", dense),
        "price": Column(say("Price per hour"), "dollars", say("Median of a dated sample of list prices.")),
        "specification": Column(say("Specification"), "link"),
        "vendor": Column(say("Vendor")),
        "usable": Column(say("Usable, GiB"), "two", say("What a process can hope for.")),
        "fp16": Column(say("{dtype}, TFLOPS", dtype="fp16"), "figure", dense),
        "fp4": Column(say("{dtype}, TFLOPS", dtype="fp4"), "figure", dense),
        "int8": Column(say("{dtype}, TOPS", dtype="int8"), "figure", dense),
        "link": Column(say("Link, GB/s"), "figure", say("GPU to GPU, both directions together.")),
        "topology": Column(say("Topology")),
        "pcie": Column(say("PCIe")),
        "capability": Column(say("Capability")),
        "tdp": Column(say("Power, W"), "whole"),
        "engines": Column(say("Engines")),
        "measured": Column(say("Memory observed"), "link"),
        "id": Column(say("Id in links")),
    }
