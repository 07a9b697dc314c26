"""Measurements of benchmarks/measure.py on the reader's own GPU, next to the prediction."""

import streamlit as st

from calc import ConfigError
from calc.errors import Message
from calc.units import hundredths
from calc.verify import MeasuredRow, Measurement, closeness, read_measurement, with_predictions
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import alert, caption, paragraph
from pages.parts.verify import example
from pages.parts.words import choice, say

KINDS = {
    "parameters": Message("Parameters"),
    "weights": Message("Weights"),
    "context": Message("CUDA context"),
    "cache": Message("KV cache"),
    "prefill": Message("Prefill peak"),
    "decode": Message("Decode peak"),
    "train": Message("Training step peak"),
}


def draw() -> None:
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
        summary(rows)
        about(measurement)
        table(rows)


def summary(rows: list[MeasuredRow]) -> None:
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


def about(measurement: Measurement) -> None:
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


def table(rows: list[MeasuredRow]) -> None:
    tables.draw(
        "measured_rows",
        say("Own measurement"),
        [
            Column(say("Figure"), lambda row: say(KINDS[row.kind])),
            Column(say("Batch"), "batch"),
            Column(say("Context"), "context"),
            Column(say("Attention kernel"), lambda row: chosen("attention", row.attention), "name"),
            Column(say("Logits"), lambda row: chosen("logits", row.logits)),
            Column(say("Measured"), "measured", "whole"),
            Column(say("Computed"), "predicted", "whole"),
            Column(say("Difference"), lambda row: row.share and hundredths(row.share), "error"),
            Column(say("Not measured because"), lambda row: row.error or "", "name"),
        ],
        rows,
    )


def chosen(field: str, name: str | None) -> str:
    return choice(field, name) if name else ""
