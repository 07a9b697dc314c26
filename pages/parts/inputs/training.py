"""The controls of a training step."""

import streamlit as st

from calc import TrainingLayout
from calc.training import TRAINERS, usual_overhead
from pages.parts.inputs.control import concerns, control, controls_in_drawer, drawer
from pages.parts.inputs.serving import ranges, weight_format
from pages.parts.screen import caption, paragraph
from pages.parts.state.scenario import places
from pages.parts.state.trained_as import STARTS, start_of, trained_as, trainer_of
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained
from pages.parts.state.widgets import show
from pages.parts.words import field, say

FIRST = ("accumulation", "optimizer", "recipe", "recompute")
"""Fields that stand in sight, below the workload; the others of the step are in a drawer."""
ADAPTERS = ("lora_rank", "lora_targets", "lora_dropout", "fp32_adapters", "fp32_rest", "quantized_experts")
"""Fields that only LoRA and QLoRA have."""
QUANTIZED = {"fp32_rest", "quantized_experts"}
"""Fields that only QLoRA has."""
LOSS = {"loss", "loss_chunks", "keep_outputs"}
"""Fields of transformers' own loss, which a loss of TRL takes the place of."""


def starts(answer: Trained) -> None:
    """Steps to start from, at the top of Train: one click sets method, flags, layout and GPUs; model, batch and lengths
    stay."""

    def take(name: str | None) -> None:
        if name is not None:  # a click on it again changes nothing
            start = STARTS[name]
            change(training=start.of(st.session_state.scenario.training), gpu=start.gpus)

    st.pills(
        say("Start from"),
        list(STARTS),
        format_func=lambda name: say(STARTS[name].title),
        label_visibility="collapsed",
        help=say("Sets method, flags, activation checkpointing and GPUs; model, batch and lengths stay."),
        **show("start", start_of(answer.scenario.training), take, given=None),
    )


def step(answer: Trained) -> None:
    known = places(("training",))
    paragraph("**Training step**")
    trainer(answer)
    if not answer.scenario.training.workload.trains_base:
        adapters(answer)
    for name in FIRST:
        control(known[name], answer.error)


def trainer(answer: Trained) -> None:
    """All flags at once, as a trainer has them by default."""
    name = trainer_of(answer.scenario.training)

    def take(chosen: str | None) -> None:
        change(training=trained_as(st.session_state.scenario.training, chosen))

    st.selectbox(
        say("Flags of"),
        list(TRAINERS),
        index=None,
        format_func=lambda name: TRAINERS[name].title,
        placeholder=say("your own"),
        help=say("Sets every flag below as this trainer has it by default; batch, length, adapters and GPUs stay."),
        **show("trainer", name, take, given=None),
    )
    if name is not None:
        caption("Read in {source}.", source=TRAINERS[name].source)


def adapters(answer: Trained) -> None:
    """Controls of LoRA and QLoRA: adapters, and the storage of frozen weights."""
    known, method = places(("training",)), answer.scenario.training.workload.method
    for name in ADAPTERS:
        if name not in QUANTIZED or method == "qlora":
            control(known[name], answer.error)
    weight_format(known["weights"], "nf4-dq" if method == "qlora" else "bf16", "frozen", field("frozen"))


def spread(answer: Trained) -> None:
    """Controls of the layout over GPUs."""
    known = {place.name: place for place in places(("training",)).values() if "layout" in place.path}
    with drawer(say("GPUs and sharding"), "spread_drawer", opened=concerns(answer.error, known.keys())) as is_open:
        if is_open:
            pieces = known.pop("vp")
            for place in known.values():
                control(place, answer.error)
                if place.name == "pp" and interleaves(answer.scenario.training.layout):
                    control(pieces, answer.error)


def interleaves(layout: TrainingLayout) -> bool:
    """Whether there are pipeline stages to interleave."""
    return layout.pp > 1 or layout.vp > 1


def details(answer: Trained) -> None:
    """Everything else that a step may set."""
    seen = {*FIRST, *ADAPTERS, "method", "micro_batch", "sequence"}
    if answer.scenario.training.loss_method is not None:
        seen |= LOSS
    rest = [place for place in places(("training",)).values() if "workload" in place.path and place.name not in seen]
    controls_in_drawer(say("Kernels and loss"), "details_drawer", rest, answer.error)


def overhead(answer: Trained) -> None:
    """Controls of the overhead, as ranges."""
    ranges(usual_overhead(answer.scenario.training.layout.gpus), answer.error)


SECTIONS = (step, spread, details, overhead)
