"""Our list against a real checkpoint, a reader's own measurement and every published total: where each comes from, and
how the two compare."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import streamlit as st

from calc import ConfigError, Precision
from calc.errors import Message
from calc.formats.stored import CheckpointSize, stored
from calc.units import hundredths
from calc.verify import (
    Checkpoint,
    Comparison,
    MeasuredRow,
    Measurement,
    closeness,
    compare,
    read_gguf,
    read_measurement,
    read_printed,
    read_safetensors,
    with_predictions,
)
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.cards import published_total
from pages.parts.outputs.tables import Column
from pages.parts.screen import alert, caption, heading, paragraph, small_table
from pages.parts.state.published import checkpoint as of_the_hub
from pages.parts.state.published import of_preset
from pages.parts.state.weighed import Answer
from pages.parts.verify import example
from pages.parts.words import choice, say
from presets import Preset, Published, models

SOURCES = {
    "hub": Message("Checkpoint on the Hub"),
    "printed": Message("print(model)"),
    "file": Message("File"),
    "log": Message("Start-up log"),
    "measured": Message("Your own measurement"),
    "presets": Message("All presets"),
}
PRINTED = "Qwen2ForCausalLM(\n  (model): Qwen2Model(\n    (embed_tokens): Embedding(151936, 896)\n    ..."
"""Placeholder of the box for a print-out."""
MAX_FILE_MB = 100
CLOSE = 0.005
"""Share by which the bytes of files may differ from those of their formats."""


def chosen_source() -> str:
    """The source to compare with."""
    return st.segmented_control(
        say("Compare with"),
        list(SOURCES),
        format_func=lambda name: say(SOURCES[name]),
        default="hub",
        required=True,
        key="beside",
        persist_state="session",
        label_visibility="collapsed",
    )


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
    return read_printed(text) if text else None


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
            Column("Tensor", "name", "name"),
            Column("Status", lambda row: say(STATUS[row.status])),
            Column("Computed", lambda row: "" if row.ours is None else words.shape(row.ours), "name"),
            Column("Checkpoint", lambda row: "" if row.theirs is None else words.shape(row.theirs), "name"),
            Column("Count", "count", "whole"),
            Column("Parameters", "parameters", "whole"),
        ],
        compared.differences,
    )


def all_presets() -> None:
    rows = [preset_row(preset, preset.published) for preset in models().values() if preset.published is not None]
    agreeing = sum(row["difference"] == 0 for row in rows)
    st.metric(
        say("Presets whose published total is met to the last parameter"),
        say("{n} of {all}", n=agreeing, all=len(rows)),
    )
    tables.draw(
        "preset_totals",
        say("All presets"),
        [
            Column("Model", "model", "name"),
            Column("Computed", "computed", "whole"),
            Column("Also in the file", "parts", "whole"),
            Column("Published", "published", "whole"),
            Column("Difference", "difference", "whole"),
            tables.source(),
            Column("Date", "date"),
            Column("What", "what"),
        ],
        rows,
    )


@cache
def totals() -> Mapping[str, int]:
    """Our count of every preset whose total somebody published."""
    known = {name: of_preset(name, None).architecture for name, preset in models().items() if preset.published}
    return MappingProxyType({name: model.parameters().total for name, model in known.items() if model is not None})


def preset_row(preset: Preset, published: Published) -> dict[str, Any]:
    """A preset whose total somebody published: parameters computed, and those that only its file has."""
    ours, auxiliary = totals()[preset.id], preset.auxiliary_parts()
    plus = sum(auxiliary.values())
    return {
        "model": preset.id,
        "computed": ours,
        "parts": plus,
        "what": words.listed(say(words.IN_FILES[part]) for part in auxiliary) if auxiliary else "",
        "published": published.total,
        "difference": published.total - ours - plus,
        "source": published.source,
        "date": published.date,
    }


MEASURED = {
    "parameters": Message("Parameters"),
    "weights": Message("Weights"),
    "context": Message("CUDA context"),
    "cache": Message("KV cache"),
    "prefill": Message("Prefill peak"),
    "decode": Message("Decode peak"),
    "train": Message("Training step peak"),
}


def own_measurement() -> None:
    paragraph(
        "{script} builds any model with random weights on your own GPU, measures it and writes a file. It needs "
        "only torch and transformers:",
        script="`benchmarks/measure.py`",
    )
    st.code("python measure.py Qwen/Qwen3-0.6B --batch 1 4 --context 512 4096 --out measured.json", language="bash")
    st.file_uploader(say("The file that it wrote"), type="json", max_upload_size=1, key="measured_file")
    example.buttons("measured_file")
    data = example.uploaded("measured_file", "")
    if data is None:
        return
    try:
        measurement = read_measurement(data.decode())
        rows = with_predictions(measurement)
    except UnicodeDecodeError:
        alert("error", "error", "The file is not text; the script writes JSON in UTF-8.")
    except ConfigError as problem:
        alert("error", "error", problem.message)
    else:
        measured_summary(rows)
        about_measurement(measurement)
        measured_table(rows)


def measured_summary(rows: list[MeasuredRow]) -> None:
    """The agreement in one line."""
    agreement = closeness(rows)
    if agreement is None:
        alert("info", "info", "Nothing was measured; the reasons are below.")
        return
    alert(
        "success",
        "balance",
        "Of {n:,} sizes, {exact:,} are computed to the byte; half lie within {half} of what was measured, all "
        "within {most}.",
        n=agreement.sizes,
        exact=agreement.exact,
        half=words.within(agreement.half),
        most=words.within(agreement.most),
    )


def about_measurement(measurement: Measurement) -> None:
    device = measurement.device
    caption(
        "{family} on {gpu}, {dtype}, torch {torch}, transformers {transformers}. Peaks: {peaks}.",
        family=measurement.config.get("model_type"),
        gpu=device.name,
        dtype=measurement.settings.dtype,
        torch=device.torch,
        transformers=device.transformers,
        peaks=measurement.settings.peaks,
    )


def measured_table(rows: list[MeasuredRow]) -> None:
    tables.draw(
        "measured_rows",
        say("Your own measurement"),
        [
            Column("Figure", lambda row: say(MEASURED[row.kind])),
            Column("Batch", "batch"),
            Column("Context", "context"),
            Column("Attention kernel", lambda row: chosen("attention", row.attention), "name"),
            Column("Logits", lambda row: chosen("logits", row.logits)),
            Column("Measured", "measured", "whole"),
            Column("Computed", "predicted", "whole"),
            Column("Difference", lambda row: row.share and hundredths(row.share), "error"),
            Column("Not measured because", lambda row: row.error or "", "name"),
        ],
        rows,
    )


def chosen(field: str, name: str | None) -> str:
    return choice(field, name) if name else ""
