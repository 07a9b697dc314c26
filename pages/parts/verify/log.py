"""A pasted start-up log or out-of-memory message against what is computed for the model on screen."""

from collections.abc import Sized
from functools import partial

import streamlit as st

from calc import ConfigError, Overhead, Report
from calc.errors import Message
from calc.serving.engines import LOGS
from calc.serving.engines.llamacpp.startup_log import read_buffers, states_buffers
from calc.text import MAX_CHARACTERS
from calc.verify import planned_buffers_of
from calc.verify.logs import (
    Difference,
    Log,
    OutOfMemory,
    Remedy,
    calibrated,
    differences,
    engine_for,
    gpus_of,
    largest,
    read_log,
    remedies,
    shortage,
    weigh_as,
)
from pages.parts import words
from pages.parts.outputs.answer import calibration
from pages.parts.screen import alert, button, caption, leading_button, paragraph, small_table
from pages.parts.state.query import TRAIN, WEIGH
from pages.parts.state.scenario import ServingChoice
from pages.parts.state.url import change, choose
from pages.parts.state.weighed import Answer
from pages.parts.verify import example
from pages.parts.words import say
from presets import gpus, named_preset

LOG = "Model loading took 14.99 GiB ...\nAvailable KV cache memory: 50.13 GiB\nGPU KV cache size: ..."
"""Placeholder of the box for a log."""
TERMS = {
    "weights": Message("Weights"),
    "bytes per token": Message("KV cache per token"),
    "tokens": Message("Tokens in the cache"),
    "one request": Message("Cache of one request"),
    "max length": Message("Longest request"),
    "state blocks": Message("Blocks for recurrent states"),
    "attention block": Message("Tokens of a block of attention"),
    "concurrency": Message("Concurrency × length"),
    "activations": Message("Peak activation memory (profiling)"),
    "cuda_graphs": Message("CUDA graphs"),
    "graph batch": Message("Largest batch with a CUDA graph"),
    "libraries": Message("Outside PyTorch"),
    "states": Message("Recurrent states"),
    "KV budget": Message("Available KV cache memory"),
    "left": Message("Free memory after the pools"),
    "memory": Message("In use and asked for"),
}
STATED = {
    "weights": Message("weights {size}"),
    "kv_bytes": Message("KV cache {size}"),
    "activations": Message("activation peak {size}"),
    "non_torch": Message("outside PyTorch {size}"),
    "cuda_graphs": Message("CUDA graphs {size}"),
    "total": Message("memory of the GPU {size}"),
    "free": Message("free at the start {size}"),
    "state_bytes": Message("recurrent states {size}"),
    "left": Message("free after the pools {size}"),
    "checkpoint": Message("checkpoint {size}"),
    "consumed": Message("weights and memory outside PyTorch {size}"),
    "graphs_estimated": Message("CUDA graphs, estimated {size}"),
}
COUNTED = {
    "encoder_tokens": Message("encoder budget of {n:,} tokens"),
    "attention_block": Message("attention blocks of {n:,} tokens"),
    "state_blocks": Message("blocks left for recurrent states {n:,}"),
    "estimated_max_model_len": Message("estimated maximum length {n:,} tokens"),
}
RAN_OUT = {
    "in_use": Message("in use {size}"),
    "tried": Message("asked for {size}"),
    "free": Message("free {size}"),
    "total": Message("memory of the GPU {size}"),
    "allocated": Message("allocated by PyTorch {size}"),
    "reserved": Message("reserved by PyTorch and not allocated {size}"),
}
"""Sizes that an out-of-memory message states."""
WHAT = {"model": Message("Weights"), "context": Message("KV cache and states"), "compute": Message("Largest pass")}
AS_IT_RAN = Remedy(what=Message("Weigh it as it ran, to see what would make it fit"), changes={})


def draw(answer: Answer) -> None:
    label = say("Paste a start-up log of vLLM, SGLang, llama.cpp or Ollama, or a CUDA out-of-memory message")
    text = example.pasted("log", label, LOG)
    if not text:
        return
    if states_buffers(text):
        of_buffers(answer, text)
        return
    try:
        log = read_log(text)
        ours = weigh_as(log, answer.model.config or {}, gpus().values())
        rows = differences(log, answer.architecture, ours)
    except ConfigError as problem:
        alert("error", "error", problem.message)
        return
    if log.training is not None:
        alert("error", "cancel", log.training.message)
        paragraph(log.training.advice)
        st.page_link(TRAIN.script, label=say("Train"), icon=f":material/{TRAIN.icon}:")
        stated(log)
        return
    which_model(answer, log)
    if log.refusal is not None:
        alert("error", "cancel", shortage(log))
    changes(answer, log, ours)
    worst = largest(rows)
    verdict(rows, None if worst is None else (TERMS[worst.term], worst.sentence), died=log.refusal is not None)
    if rows:
        table(rows)
    calibrate(answer, calibrated(log, ours))
    stated(log)


def calibrate(answer: Answer, overhead: Overhead | None) -> None:
    """The machine's own figures in place of our ranges."""
    if overhead is not None and overhead != answer.scenario.overhead:
        help_text = say(
            "CUDA graphs, memory outside PyTorch and what the pass at start took beyond ours become the overhead on "
            "Weigh, in place of our ranges."
        )
        take = partial(change, overhead=overhead)
        button(say("Use these figures for this session"), "calibrate", "tune", take, help=help_text)
    calibration(answer.scenario, leads_to_weigh=True)


def which_model(answer: Answer, log: Log) -> None:
    """The log is weighed as the model on screen; it may name another."""
    named, here = log.settings.model, answer.scenario.source.model
    if named is None or named.rstrip("/").split("/")[-1].lower() == here.split("/")[-1].lower():
        return
    alert(
        "warning",
        "help",
        "The log is of {model}; it is weighed here as {name}. Choose its model above.",
        model=named[:100],
        name=answer.model.name,
    )
    if (preset := named_preset(named)) is not None:
        st.button(say("Weigh it as {model}", model=preset), key="log_model", on_click=choose, args=(preset,))


def verdict(rows: Sized, worst: tuple[Message, Message] | None, *, died: bool = False) -> None:
    """Result of a comparison: of the figure that differs most its name, and the sentence on it."""
    if not rows:
        alert("info", "info", "The log states nothing that is computed here.")
    elif worst is None and died:
        alert("info", "balance", "Every figure that the log states agrees with ours.")
    elif worst is None:
        alert("success", "check_circle", "Every figure that the log states agrees.")
    else:
        alert("warning", "balance", "What differs most: **{term}**. {sentence}", term=worst[0], sentence=worst[1])


def table(rows: tuple[Difference, ...]) -> None:
    head = [say("Term"), say("In the log"), say("Computed"), say("Difference")]
    lines = [(say(TERMS[row.term]), amount(row, row.log), computed(row), share(row)) for row in rows]
    small_table(head, lines, numbers=3)
    st.markdown("\n".join(f"- {say(row.sentence)}" for row in rows))


def amount(row: Difference, value: int) -> str:
    return words.size(value) if row.unit == "bytes" else f"{value:,}"


def computed(row: Difference) -> str:
    if row.low is None or row.high is None:
        return amount(row, row.ours)
    low, high = amount(row, row.low), amount(row, row.high)
    return low if low == high else say("{low} to {high}", low=low, high=high)


def share(row: Difference) -> str:
    """The difference as a share of the computed figure; where that is a range, whether the log's lies within."""
    if row.low is None:
        return words.difference(row.share)
    return say("within") if row.agrees else say("outside")


def stated(log: Log) -> None:
    """List all that was read, so that the reader sees what was not."""
    engine = " ".join(filter(None, (LOGS[log.engine].engine.title if log.engine in LOGS else "PyTorch", log.version)))
    figures = [*sizes(log, STATED), *(sizes(log.out_of_memory, RAN_OUT) if log.out_of_memory else ())]
    figures += [say(text, n=count) for name, text in COUNTED.items() if (count := getattr(log, name)) is not None]
    settings = [f"`{name} {value}`" for name, value in log.settings if value is not None and name != "model"]
    caption("Read from the log: {list}.", list=words.listed([engine, *figures, *settings]))
    for note in log.notes:
        caption(note)


def sizes(source: Log | OutOfMemory, names: dict[str, Message]) -> list[str]:
    """The sizes that are stated."""
    known = {name: getattr(source, name) for name in names}
    return [say(names[name], size=words.size(value)) for name, value in known.items() if value is not None]


def changes(answer: Answer, log: Log, ours: Report) -> None:
    """The least changes with which a server that died would have started, each one click into Weigh; from a trainer's
    message the way to Train."""
    if log.refusal is None:
        return
    if log.engine not in LOGS:
        trainer(log)
        return
    least = remedies(log, ours.memory.weights, ours.memory.kv_cache)
    near = {gpu.id: gpu for gpu in gpus_of(log, gpus().values())} or {
        answer.scenario.first_gpu().id: answer.scenario.first_gpu()
    }
    if least:
        paragraph("**The least change, by the log's own figures**")
    if len(near) > 1:
        gpu = st.selectbox(
            say("GPU of the log"), list(near), format_func=lambda name: gpus()[name].name, key="log_gpu", width=300
        )
    else:
        (gpu,) = near
    for number, remedy in enumerate((*least, AS_IT_RAN)):
        label = say("Weigh with {change}", change=remedy.what) if remedy.changes else say(remedy.what)
        help_text = say("With the log's own settings: GPU, layout, formats and flags.")
        leading_button(WEIGH, label, f"remedy_{number}", use, answer, log, ours, gpu, remedy, help=help_text)


def trainer(log: Log) -> None:
    """PyTorch's message alone names no program: what makes a training step fit on that GPU is a click away."""
    near = tuple(gpu.id for gpu in gpus_of(log, gpus().values()))
    help_text = say("Train with the GPU of the message, and every change that makes a step smaller.")
    take = partial(change, gpu=near[:1]) if near else change
    leading_button(TRAIN, say("It was training: what makes it fit"), "log_train", take, help=help_text)


def use(answer: Answer, log: Log, ours: Report, gpu: str, remedy: Remedy) -> None:
    """Make the log's run, with a change, the scenario of Weigh."""
    settings = log.settings.model_copy(update=remedy.changes)
    ran = ours.scenario
    changed = log.model_copy(update={"settings": settings})
    engine = engine_for(changed, answer.architecture, ran.precision, ran.layout)
    context = settings.max_model_len or ran.workload.context
    serving = ServingChoice(
        workload=ran.workload.model_copy(update={"context": context}),
        engine=engine.name,
        options=engine.options,
        **answer.model.chosen(ran.precision.weights, ran.precision.kv, engine.name),
        layout=ran.layout,
    )
    change(gpu=(gpu,), serving=serving)


def of_buffers(answer: Answer, text: str) -> None:
    """The buffers of a log of llama.cpp or Ollama against those that are planned for the model on screen."""
    log = read_buffers(text[:MAX_CHARACTERS])
    if log.share is not None:
        alert(
            "info",
            "info",
            "Ollama holds {size} for it, {share} of that on GPUs.",
            size=words.gib(log.share.bytes),
            share=words.percent(log.share.on_gpus),
        )
    if not log.buffers:
        return
    try:
        buffers = planned_buffers_of(log, answer.architecture, "Q4_K_M")
    except ConfigError as problem:
        alert("error", "error", problem.message)
        return
    differ = [row for row in buffers.rows if not row.agrees]
    worst = max(differ, key=lambda row: abs(row.log - row.ours), default=None)
    verdict(buffers.rows, None if worst is None else (WHAT[worst.what], worst.sentence))
    head = [say("Device"), say("Buffer"), say("In the log"), say("Computed"), say("Difference")]
    lines = [
        (
            row.device,
            say(WHAT[row.what]),
            words.size(row.log),
            words.size(row.ours),
            words.difference(row.log / max(1, row.ours) - 1),
        )
        for row in buffers.rows
    ]
    small_table(head, lines, numbers=3)
    for row in differ:
        st.markdown(f"- {row.device}, {say(WHAT[row.what])}: {say(row.sentence)}")
    stated = [f"`{name} {value}`" for name, value in log.flags.items()]
    if log.weights is None:
        caption("The log names no type of the file: {weights} is assumed.", weights=buffers.weights)
    if stated:
        caption("Read from the log: {list}.", list=words.listed(stated))
