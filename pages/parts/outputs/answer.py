"""The answer first: one sentence, one bar of one GPU, and what would make it fit."""

from collections.abc import Iterable
from html import escape
from typing import Any

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from calc.hardware.parallel import Layout
from calc.serving.levers import Lever
from calc.serving.memory import Memory
from calc.serving.verdict import Verdict
from pages.parts import words
from pages.parts.outputs.charts import served
from pages.parts.state.scenario import places
from pages.parts.state.url import change
from pages.parts.state.weighed import Weighed
from pages.parts.words import say

FEW = 5
"""Levers in sight."""


def draw(answer: Weighed) -> None:
    focus = answer.focus
    if focus is None:
        st.info(say("No GPU is chosen: choose one in the sidebar to see whether it fits."), icon=":material/memory:")
        return
    sentence(answer, focus)
    beyond(answer)
    bar(focus)
    if focus.verdict != "fits":
        offers(answer)


def where(verdict: Verdict, layout: Layout) -> str:
    """The GPUs and the layout over them: 8 × H200 SXM 141GB with TP 8."""
    name = find_gpu(verdict.gpu).name
    if verdict.gpus == 1:
        return name
    return say("{n:,} × {gpu} with {layout}", n=verdict.gpus, gpu=name, layout=words.layout(layout))


def sentence(answer: Weighed, focus: Verdict) -> None:
    """Whether it fits, on what, and by how much."""
    report = answer.report
    fits = [verdict for verdict in report.verdicts if verdict.verdict == "fits"]
    place, size = where(focus, report.scenario.layout), words.gib(abs(focus.spare))
    values: dict[str, Any] = {"where": place, "size": size, "n": len(fits), "all": len(report.verdicts)}
    if fits:
        text = say("**Fits on {where}**, with {size} headroom per GPU.", **values)
        if len(report.verdicts) > 1:
            text = say("**Fits on {n} of {all} GPUs.** The smallest is {where}, with {size} headroom.", **values)
        st.success(text, icon=":material/check_circle:")
        st.caption(room(focus))
        return
    if focus.verdict == "fits with":
        text = say("**Fits on {where} with** `{flags}`.", where=place, flags=" ".join(focus.flags))
        st.warning(text, icon=":material/tune:")
    elif focus.verdict == "tight":
        st.warning(say("**Tight on {where}**: the overhead decides.", where=place), icon=":material/balance:")
    elif focus.spare < 0:
        text = say("**Not on {where}**: {size} short per GPU.", **values)
        if len(report.verdicts) > 1:
            text = say("**Fits on none of {all} GPUs.** The nearest is {where}: {size} short per GPU.", **values)
        st.error(text, icon=":material/cancel:")
    else:
        st.error(say("**Not on {where}.** {reason}", where=place, reason=focus.reason), icon=":material/cancel:")


def room(focus: Verdict) -> str:
    """What the headroom would buy."""
    return say(
        "Room for a batch of {batch}, or for a context of {context} tokens.",
        batch=most(focus.max_batch),
        context=most(focus.max_context),
    )


def most(n: int | None) -> str:
    return say("any size") if n is None else f"{n:,}"


def beyond(answer: Weighed) -> None:
    """A context for which the model was not made is no small print."""
    longest, context = answer.architecture.max_positions, answer.report.scenario.workload.context
    if longest is not None and context > longest:
        st.warning(
            say("The model was made for {most:,} tokens; {context:,} go beyond that.", most=longest, context=context),
            icon=":material/straighten:",
        )


def offers(answer: Weighed) -> None:
    """The changes with which it fits, each one click away."""
    if not answer.levers:
        st.caption(say("No single change makes it fit, nor do 1,024 of these GPUs."))
        return
    st.markdown(say("**What would make it fit**"))
    for number, lever in enumerate(answer.levers[:FEW]):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.button(say("Use this"), key=f"lever_{number}", on_click=use, args=(answer, lever))
            what = words.listed(say(part) for part in lever.what)
            st.markdown(say("**{what}**: fits, {size} headroom per GPU", what=what, size=words.gib(lever.spare)))


def use(answer: Weighed, lever: Lever) -> None:
    known = places(("serving",), answer.scenario.serving.engine)
    asked = answer.scenario.serving
    layout = answer.report.scenario.layout.model_copy(
        update={name: value for name, value in lever.changes.items() if name in Layout.model_fields}
    )
    changes = {known[name]: value for name, value in lever.changes.items()}
    if asked.num_gpus is not None and layout.gpus != asked.num_gpus:
        changes[known["num_gpus"]] = None
    change(changes)


def bar(focus: Verdict) -> None:
    """One GPU: its parts against what it has. Drawn without a chart, so that it is there at once."""
    memory, usable = focus.memory, focus.usable
    end = max(memory.high, usable)
    parts = {name: getattr(memory, name) for name in served([memory])}
    cells = [cell(words.color(name), size / end) for name, size in parts.items() if size]
    cells.append(cell(HATCHED, (memory.high - memory.total) / end))
    keys = [
        key(f'<em style="{SWATCH};background:{words.color(name)}"></em>', words.part(name), size)
        for name, size in parts.items()
        if size
    ]
    keys.append(key("<b>|</b> ", say("Usable"), usable))
    ends = f'<i style="{END};left:{100 * usable / end:.3f}%"></i>'
    spoken = escape(told(memory, usable), quote=True)
    st.html(
        f'<div style="{BAR}" role="img" aria-label="{spoken}">{"".join(cells)}{ends}</div>'
        f'<div style="{KEYS}">{"".join(keys)}</div>'
    )


HATCHED = "repeating-linear-gradient(45deg,#9EA3AC 0 2px,transparent 2px 6px)"
BAR = "position:relative;display:flex;height:34px;margin:6px 0;background:rgba(128,128,128,.14)"
END = "position:absolute;top:-5px;bottom:-5px;width:3px;margin-left:-2px;background:currentColor"
KEYS = "display:flex;flex-wrap:wrap;gap:2px 18px;margin-top:10px;font-size:14px"
SWATCH = "display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:5px"


def cell(background: str, share: float) -> str:
    return f'<span style="display:block;height:100%;width:{100 * share:.3f}%;background:{background}"></span>'


def key(mark: str, label: str, size: int) -> str:
    return f"<span>{mark}{escape(label)} <b>{words.gib(size)}</b></span>"


def keys(entries: Iterable[tuple[str, str]]) -> str:
    """Colours with what they stand for."""
    cells = (f'<span><em style="{SWATCH};background:{color}"></em>{escape(label)}</span>' for color, label in entries)
    return f'<div style="{KEYS}">{"".join(cells)}</div>'


def told(memory: Memory, usable: int) -> str:
    """The bar for those who do not see it."""
    return say(
        "{total} needed on one GPU, at most {high}; {usable} are usable.",
        total=words.gib(memory.total),
        high=words.gib(memory.high),
        usable=words.gib(usable),
    )
