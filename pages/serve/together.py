"""Several models on the same GPUs: what is there with what is asked of each, what each takes of a GPU, and how its
server is started."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from calc import Workload
from calc.errors import Message
from calc.formats import WEIGHT_FORMATS
from calc.options import options
from calc.serving.shared_gpus import MOST_MODELS, Neighbour, SharedGPUs
from calc.units import GIB
from pages.parts import words
from pages.parts.inputs import added_models, control, serving
from pages.parts.inputs.question import CONTEXTS
from pages.parts.outputs import bar, frame, tables
from pages.parts.outputs.cards import no_gpu
from pages.parts.outputs.comparison import LINES
from pages.parts.outputs.share import started
from pages.parts.outputs.tables import Column, identifier
from pages.parts.screen import alert, caption, heading, paragraph
from pages.parts.state.compared import Shared, shared
from pages.parts.state.query import TOGETHER
from pages.parts.state.scenario import neighbour, places
from pages.parts.state.url import change
from pages.parts.state.widgets import show
from pages.parts.words import say

# models that chat models are often next to
SUGGESTED = ("BAAI/bge-m3", "Qwen/Qwen3-Reranker-0.6B", "Qwen/Qwen3-Embedding-0.6B")


def neighbours(others: Sequence[Neighbour]) -> None:
    """A box that adds a model; the models in the order of their start, each with what is asked of it; and whether they
    take turns."""
    known, most = places(("sharing",)), MOST_MODELS - 1
    place, turns = known["share_with"], known["sleep_level"]
    full = say("{n} at most", n=MOST_MODELS) if len(others) == most else None
    added_models.add_model(place, neighbour, most, "add_neighbour", full)
    added_models.suggest(place, neighbour, most, SUGGESTED)
    if others:
        shown = control.labelled(turns, say("Servers that are not in use"))
        control.choose(turns, turns.option.choices, shown)
    caption("Each has a server of its own. They start one after another: the model of the question first, then these.")
    for number, other in enumerate(others):
        with st.container(border=True, key=f"neighbour_{number}"):
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                paragraph("**{n}** · {name}", n=number + 2, name=other.model)
                added_models.remove_button(place, number, f"remove_neighbour_{number}")
            with st.grid(3, min_column_width=150, gap="small"):
                asked_of(number, other)


def asked_of(number: int, other: Neighbour) -> None:
    """The controls of a neighbour."""
    batch, context, formats = options(Workload)["batch"], other.workload.context, [None, *WEIGHT_FORMATS]

    def bound(name: str, value: Any, **how: Any) -> dict[str, Any]:
        return show(f"neighbour_{number}_{name}", value, take, number, name, **how)

    st.number_input(
        words.field("batch"),
        min_value=int(batch.least or 1),
        max_value=int(batch.most or 2**20),
        **bound("batch", other.workload.batch),
    )
    lengths = sorted({*CONTEXTS, context})
    st.selectbox(
        words.field("context"), lengths, format_func=words.tokens, **bound("context", context, options=lengths)
    )
    st.selectbox(
        words.field("weights"),
        formats,
        format_func=lambda name: say("as the checkpoint") if name is None else name,
        **bound("weights", other.weights, options=formats),
    )


def take(value: Any, number: int, name: str) -> None:
    place = places(("sharing",))["share_with"]
    known = place.of(st.session_state.scenario)
    if number < len(known):
        other = known[number]
        changes = {name: value} if name == "weights" else {"workload": other.workload.model_copy(update={name: value})}
        change({place: (*known[:number], other.model_copy(update=changes), *known[number + 1 :])})


def draw_bar(on: SharedGPUs) -> None:
    """A GPU with all servers, each in a colour, and what is left; where they take turns while the one that leaves
    least is awake."""
    sizes = [server.taken for server in on.servers]
    if on.sleep_level:
        awake = min(on.servers, key=lambda server: server.free - server.taken)
        sizes = [server.taken if server is awake else server.asleep or 0 for server in on.servers]
    taken = [
        (LINES[number % len(LINES)][0], server.model, size)
        for number, (server, size) in enumerate(zip(on.servers, sizes, strict=True))
        if size
    ]
    cells = [bar.cell(color, size / on.usable) for color, _, size in taken]
    keys = [bar.key(bar.swatch(color), model, size) for color, model, size in taken]
    keys.append(bar.key("", say("left"), on.usable - sum(sizes)))
    parts = [f"{model}: {words.gib(size)}" for _, model, size in taken]
    usable, left = words.gib(on.usable), words.gib(on.usable - sum(sizes))
    if parts:
        spoken = say("{parts}; of {usable} {left} are left.", parts=words.listed(parts), usable=usable, left=left)
    else:  # none of them starts
        spoken = say("{size} headroom of {usable}", size=left, usable=usable)
    bar.draw(cells, spoken, keys)


def servers(on: SharedGPUs) -> None:
    """Memory of each server on a GPU."""

    def gib(label: Message, name: str) -> Column:
        return Column(label, lambda line: None if (size := getattr(line[1], name)) is None else size / GIB, "two")

    columns = [
        Column("Model", lambda line: f"{line[0]} · {line[1].model}"),
        Column("Starts", lambda line: line[1].verdict == "fits", "mark"),
        Column("Share", lambda line: line[1].share, "two"),
        gib(Message("Taken, GiB"), "taken"),
        gib(Message("Weights, GiB"), "weights"),
        gib(Message("KV cache, GiB"), "kv_cache"),
        gib(Message("Other, GiB"), "other"),
        gib(Message("Free before, GiB"), "free"),
    ]
    if on.sleep_level:
        columns.append(gib(Message("Asleep, GiB"), "asleep"))
    tables.draw(
        "shared_servers",
        say("Servers on each GPU"),
        columns,
        enumerate(on.servers, 1),
        id=lambda line: identifier(f"{line[0]} {line[1].model}"),
    )
    caption(
        "Each server gets the smallest share of the GPU with which it fits (`--gpu-memory-utilization`); that share "
        "must be free when the server starts. What a server takes is counted at the high end of the overhead."
    )


def commands(on: SharedGPUs) -> None:
    """Commands to type, in this order; each once the one before is ready."""
    launches = [server.launch for server in on.servers if server.launch is not None]
    if not launches:
        return
    heading("Start them in this order")
    if on.sleep_level:
        caption(
            "Each once the one before it sleeps. With `VLLM_SERVER_DEV_MODE=1` a server takes "
            "`POST /sleep?level={level}` and `POST /wake_up`.",
            level=on.sleep_level,
        )
    else:
        caption("Each once the one before it is ready: vLLM measures at its start what is free.")
    for launch in launches:
        started(launch)


answer: Shared = frame.page(TOGETHER, shared, serving.engine, serving.overhead, needs_answer=False)
focus = answer.focus if answer.error is None else None
if answer.error is not None:
    frame.explain(answer, TOGETHER)
elif focus is None:
    no_gpu()
else:
    draw_bar(focus)
    for number, server in enumerate(focus.servers, 1):
        if server.reason is not None:
            why = say(server.reason)
            alert("error", "error", "**{n}** · {name}: {why}", n=number, name=server.model, why=why)
neighbours(answer.scenario.sharing.share_with)
if focus is not None:
    servers(focus)
    if len(answer.results) > 1:
        columns = [
            Column("GPU", lambda on: words.on_gpus(on.gpu, on.gpus)),
            Column("All start", "fits", "mark"),
            Column("Left per GPU, GiB", lambda on: on.left / GIB, "two"),
        ]
        tables.draw("shared_each", say("On each GPU"), columns, answer.results, id=lambda on: identifier(on.gpu))
    commands(focus)
