"""The catalogue of GPUs as a table that can be searched, sorted and filtered."""

from typing import Any

import streamlit as st

from calc.hardware.engine_rules import runs
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.serving.engines import ENGINES
from calc.time.prices import price_of
from calc.units import GIB
from pages.parts import words
from pages.parts.state.query import WEIGH
from pages.parts.state.url import change, lead
from pages.parts.words import say
from presets import gpus

PEAKS: tuple[Dtype, ...] = ("bf16", "fp16", "fp8", "fp4", "int8")


def draw() -> None:
    """The filters, how many pass them, and the table."""
    shown = chosen()
    st.caption(
        say(
            "{n:,} GPUs, each figure with its source; a figure without a source stays out. Click rows to weigh on "
            "them.",
            n=len(shown),
        )
    )
    table(shown)


def chosen() -> list[GPU]:
    """Those that pass the filters, in the order of the catalogue."""
    known = list(gpus().values())
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        vendors = st.multiselect(
            say("Vendor"), sorted({gpu.vendor for gpu in known}), key="vendors", placeholder=say("any"), width=280
        )
        forms = st.multiselect(
            say("Form"),
            sorted({gpu.form for gpu in known}),
            format_func=lambda form: say(words.FORMS[form]),
            key="forms",
            placeholder=say("any"),
            width=280,
        )
        engines = st.multiselect(
            say("Engine"),
            list(ENGINES),
            format_func=lambda name: ENGINES[name].title,
            key="runs",
            placeholder=say("any"),
            width=280,
        )
        least = st.number_input(
            say("Memory, at least (GB)"), min_value=0, value=0, step=8, key="least_memory", width=180
        )
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
    picked = st.dataframe(
        [row(gpu) for gpu in shown],
        hide_index=True,
        key="catalogue",
        placeholder="–",
        height=560,
        on_select="rerun",
        selection_mode="multi-row",
        column_config=columns(),
    )
    names = tuple(shown[index].id for index in picked.selection.rows if index < len(shown))
    if names and st.button(
        say("Weigh on these {n:,} GPUs", n=len(names)) if len(names) > 1 else say("Weigh on this GPU"),
        key="weigh_on",
        icon=":material/arrow_forward:",
        on_click=lambda: change(gpu=names),
    ):
        lead(WEIGH)


def row(gpu: GPU) -> dict[str, Any]:
    """What is not known stays empty."""
    return {
        "gpu": gpu.name,
        "vendor": gpu.vendor,
        "form": say(words.FORMS[gpu.form]),
        "year": gpu.year,
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


def engines(gpu: GPU) -> list[str]:
    return [name for name, engine in ENGINES.items() if runs(gpu, engine.support)]


def source(gpu: GPU, fact: Any) -> str | None:
    """Its address. A memory may be that of another GPU with the same."""
    cited = gpu.sources.get(fact)
    return cited if cited is not None and cited.startswith("https://") else None


def columns() -> dict[str, Any]:
    number, link = st.column_config.NumberColumn, st.column_config.LinkColumn
    return {
        "gpu": st.column_config.TextColumn(say("GPU"), pinned=True),
        "vendor": say("Vendor"),
        "form": say("Form"),
        "year": number(say("Year"), format="%d"),
        "memory": number(say("Memory, GB"), format="%g"),
        "usable": number(say("Usable, GiB"), format="%.2f", help=say("What a process can hope for.")),
        "bandwidth": number(say("Bandwidth, GB/s"), format="localized"),
        **{
            dtype: number(
                say("{dtype}, TOPS", dtype=dtype) if dtype == "int8" else say("{dtype}, TFLOPS", dtype=dtype),
                format="localized",
                help=say("Dense peak of the matrix units."),
            )
            for dtype in PEAKS
        },
        "link": number(say("Link, GB/s"), format="localized", help=say("GPU to GPU, both directions together.")),
        "topology": say("Topology"),
        "pcie": say("PCIe"),
        "capability": say("Capability"),
        "tdp": number(say("Power, W"), format="%d"),
        "price": number(say("Price per hour"), format="dollar", help=say("Median of a dated sample of list prices.")),
        "engines": say("Engines"),
        "specification": link(say("Specification"), display_text=say("open")),
        "measured": link(say("Memory observed"), display_text=say("open")),
        "id": say("Id in links"),
    }
