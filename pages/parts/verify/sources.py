"""Our list against a real checkpoint: where it comes from, and how the two compare."""

from collections.abc import Iterator

import streamlit as st

from calc import ConfigError, Precision
from calc.errors import Message
from calc.formats.stored import CheckpointSize, stored
from calc.verify import Checkpoint, Comparison, Stored, compare, read_gguf, read_printed, read_safetensors
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.cards import published_total
from pages.parts.outputs.tables import Column
from pages.parts.screen import alert, caption, heading, small_table
from pages.parts.state.published import checkpoint as of_the_hub
from pages.parts.state.weighed import Answer
from pages.parts.verify import example
from pages.parts.words import say

SOURCES = {
    "hub": Message("Checkpoint on the Hub"),
    "printed": Message("print(model)"),
    "file": Message("File"),
    "log": Message("Start-up log"),
    "measured": Message("Own measurement"),
    "presets": Message("All presets"),
}
PRINTED = "Qwen2ForCausalLM(\n  (model): Qwen2Model(\n    (embed_tokens): Embedding(151936, 896)\n    ..."
"""Placeholder of the box for a print-out."""
MAX_FILE_MB = 100
CLOSE = 0.005
"""Share by which the bytes of files may differ from those of their formats."""


def choice() -> str:
    """The source to compare with."""
    chosen = st.segmented_control(
        say("Compare with"),
        list(SOURCES),
        format_func=lambda name: say(SOURCES[name]),
        required=True,
        key="beside",
        persist_state="session",
        label_visibility="collapsed",
    )
    return chosen or next(iter(SOURCES))


def draw(answer: Answer, choice: str) -> None:
    """The published total, the other list, and how ours compares."""
    published = published_total(answer)
    if published is not None:
        st.markdown(published)
    try:
        checkpoint = {"hub": _from_hub, "printed": _from_print_out, "file": _from_file}[choice](answer)
    except ConfigError as problem:
        alert("error", "error", problem.message)
        return
    if checkpoint is not None:
        comparison(answer, checkpoint)


def _from_hub(answer: Answer) -> Checkpoint | None:
    source = answer.scenario.source
    if source.pasted is not None:
        st.info(say("A pasted config names no checkpoint. Choose a model above, or give a file."))
        return None
    pressed = st.button(
        say("Read the headers of {model}", model=source.model),
        key="read_headers",
        icon=":material/cloud_download:",
        help=say("Only the tables of names, shapes and types are read, not the weights."),
    )
    if pressed:
        st.session_state.headers_of = source
    if st.session_state.get("headers_of") != source:
        return None
    with st.spinner(say("Reading the headers of {model}", model=source.model)):
        return of_the_hub(source, answer.model.published.hub)


def _from_print_out(_: Answer) -> Checkpoint | None:
    text = example.pasted("printed", say("Paste what print(model) shows"), PRINTED)
    if not text:
        return None
    printed = read_printed(text)
    shapes = {name: Stored(None, shape, None) for name, shape in printed.shapes().items()}
    return Checkpoint(tensors=shapes, unseen=printed.unseen)


def _from_file(answer: Answer) -> Checkpoint | None:
    st.file_uploader(
        say("A safetensors file or its header, model.safetensors.index.json, or a GGUF file"),
        key="table_file",
        max_upload_size=MAX_FILE_MB,
        help=say(
            "The beginning is enough for a large one: {command}",
            command=f"`head -c {MAX_FILE_MB}M model.safetensors > header.safetensors`",
        ),
    )
    example.buttons("table_file")
    data = example.uploaded("table_file", answer.scenario.source.model)
    if data is None:
        return None
    return read_gguf(data).checkpoint if data[:4] == b"GGUF" else read_safetensors(data)


def comparison(answer: Answer, checkpoint: Checkpoint) -> None:
    compared = compare(answer.architecture, checkpoint)
    n = sum(row.count for row in compared.differences)
    if not compared.meets:
        alert(
            "warning",
            "help",
            "No tensor has a name that the computed list has: this is another model, or a file that names its "
            "tensors otherwise, as GGUF does. The sums below stand.",
        )
    elif compared.differences:
        alert(
            "warning",
            "balance",
            "One tensor differs; {matched:,} agree.",
            plural="{n:,} tensors differ; {matched:,} agree.",
            n=n,
            matched=compared.matched,
        )
    elif checkpoint.elements:
        alert("success", "check_circle", "All {matched:,} tensors agree in name and shape.", matched=compared.matched)
    else:
        alert("success", "check_circle", "All {matched:,} tensors agree in name.", matched=compared.matched)
    hidden = say("not shown")
    with st.grid(5, min_column_width=180, gap="xsmall"):
        st.metric(say("Parameters, computed"), f"{compared.ours:,}")
        st.metric(say("Checkpoint"), f"{compared.theirs:,}" if checkpoint.elements else hidden)
        st.metric(say("Difference"), f"{compared.difference:+,}" if compared.difference else "0")
        st.metric(say("Matching tensors"), f"{compared.matched:,}")
        st.metric(say("Stored"), hidden if checkpoint.bytes is None else words.size(checkpoint.bytes))
    for sentence in remarks(compared):
        st.caption(sentence)
    if checkpoint.bytes is not None and not any(row.status == "missing" for row in compared.differences):
        stored_bytes(answer, checkpoint.bytes, copies=compared.tied)
    if checkpoint.unseen:
        lines = (f"- {say(sentence)}" for sentence in checkpoint.unseen)
        st.info("\n".join(lines), icon=":material/visibility_off:")
    storage(checkpoint)
    if compared.differences:
        differences(compared)


def remarks(compared: Comparison) -> Iterator[str]:
    """Sentences on tensors of the checkpoint that are no difference."""
    yield say("Vision encoder and multi-token prediction (MTP) layers are compared too.")
    if compared.packed:
        yield say("{n:,} weights are packed, as their format does.", n=compared.packed)
    if compared.auxiliary:
        yield say("{n:,} tensors are scales, zero points and the like of a quantized format.", n=compared.auxiliary)
    if compared.derived:
        yield say("{n:,} tensors are buffers that the class computes by itself.", n=compared.derived)
    if compared.tied:
        yield say("The output head is a copy of the embedding and counts once.")


def storage(checkpoint: Checkpoint) -> None:
    """Bytes of each type."""
    shares = checkpoint.shares_by_dtype()
    if shares:
        rows = [(dtype, f"{size:,}", words.size(size), words.percent(share)) for dtype, size, share in shares]
        heading("Storage by type")
        small_table([say("Type"), say("Bytes"), say("Size"), say("Share")], rows, numbers=3)


def stored_bytes(answer: Answer, theirs: int, *, copies: int) -> None:
    """Bytes of the files next to those of the formats that the config states, with copies of the embedding as head."""
    architecture, precision = answer.architecture, Precision.stored_as(answer.model.published.stored)
    table = architecture.names.table
    pieces = stored(architecture, precision)
    heads = copies * sum(piece.nbytes for piece in pieces if piece.tensor.name == table)
    ours = CheckpointSize.of(architecture, precision).total + heads
    values = {"computed": words.size(ours), "stored": words.size(theirs), "difference": f"{theirs / ours - 1:+.3%}"}
    if abs(theirs / ours - 1) <= CLOSE:
        caption("In the formats that the config states it takes {computed}: {difference}.", **values)
        return
    alert(
        "warning",
        "scale",
        "In the formats that the config states it would take {computed}, and the files hold {stored} "
        "({difference}): they are quantized otherwise, or the config of another checkpoint was given.",
        **values,
    )


STATUS = {"missing": Message("missing"), "extra": Message("extra"), "other shape": Message("other shape")}


def differences(compared: Comparison) -> None:
    """Every tensor that differs; those that differ alike are one line."""
    heading("Differences")
    tables.draw(
        "differences",
        say("Differences"),
        [
            Column(say("Tensor"), "name", "name"),
            Column(say("Status"), lambda row: say(STATUS[row.status])),
            Column(say("Computed"), lambda row: "" if row.ours is None else words.shape(row.ours), "name"),
            Column(say("Checkpoint"), lambda row: "" if row.theirs is None else words.shape(row.theirs), "name"),
            Column(say("Count"), "count", "whole"),
            Column(say("Parameters"), "parameters", "whole"),
        ],
        compared.differences,
    )
