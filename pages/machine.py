"""Models on the reader's own machine: its parts, and what runs on it."""

import streamlit as st

from calc.hardware import find_gpu
from pages.parts.inputs.control import control, faults, help_of
from pages.parts.outputs import frame, local
from pages.parts.screen import caption, heading, paragraph
from pages.parts.state.local import LocalAnswer, local_answer
from pages.parts.state.query import MACHINE
from pages.parts.state.scenario import Place, places
from pages.parts.state.url import change
from pages.parts.state.widgets import show
from pages.parts.words import field, say
from presets import gpus

MOST = 4  # cards that have a place of their own


def machine(answer: LocalAnswer) -> None:
    """Controls of the machine: GPUs, memory, CPU."""
    known, computer = places(("machine",)), answer.computer
    paragraph("**My machine**")
    place = known["my_gpus"]
    own = [name for name in dict.fromkeys((*computer.my_gpus, *answer.scenario.gpu)) if name not in gpus()]
    for slot in range(min(MOST, len(computer.my_gpus) + 1)):
        card = computer.my_gpus[slot] if slot < len(computer.my_gpus) else None
        st.selectbox(
            say("Card {n}", n=slot + 1),
            [*own, *gpus()],
            index=None,
            format_func=lambda name: find_gpu(name).name,
            placeholder=say("none") if slot else say("none: the CPU computes"),
            help=help_of(place.option) if not slot else None,
            **show(f"card_{slot}", card, _take_card, place, slot, given=None),
        )
    faults(answer.error, place)
    if computer.is_unified:
        caption(
            "{gpu} shares one memory with the CPU: {usable:.1f} of {all:.1f} GiB are the GPU's as it is delivered.",
            gpu=computer.gpus[0].name,
            usable=computer.gpus[0].usable_bytes / 2**30,
            all=computer.memory_bytes / 2**30,
        )
    with st.grid(2, min_column_width=140, gap="small"):
        for name in ("ram_gib", "ram_gb_s", "cpu_tflops", "system_gib"):
            if not (computer.is_unified and name in ("ram_gib", "ram_gb_s")):
                control(known[name], answer.error, round(computer.kept_gib, 2) if name == "system_gib" else None)


def _take_card(card: str | None, place: Place, slot: int) -> None:
    now = place.of(st.session_state.scenario)
    chosen = (*now[:slot], card, *now[slot + 1 :])
    change({place: tuple(name for name in chosen if name is not None)})


def cache_format(answer: LocalAnswer) -> None:
    place = places(("serving",), answer.scenario.serving.engine)["kv"]
    kinds = ["bf16", "q8_0", "q4_0"]
    now = place.of(st.session_state.scenario) or "bf16"
    st.segmented_control(
        field("kv"),
        kinds if now in kinds else [*kinds, now],
        format_func=lambda kind: "f16" if kind == "bf16" else kind,
        required=True,
        help=say("f16 is llama.cpp's own; q8_0 takes half, and with CUDA a 16-bit copy of one layer."),
        **show("local_kv", now, lambda kind: change({place: kind}), given="default"),
    )
    faults(answer.error, place)


answer = frame.page(MACHINE, local_answer, machine, cache_format)
local.best(answer)
heading("Which file to download")
local.files(answer)
local.commands(answer)
local.folders(answer)
heading("What runs on it")
local.presets(answer)
local.traps()
