"""What benchmarks/measure.py measured on the reader's own GPU, beside the prediction."""

import streamlit as st

from calc import ConfigError
from calc.verify.measurement import Measurement, Row, beside, read_measurement

WHERE = "benchmarks/measure.py"
KINDS = {
    "parameters": "Parameters",
    "weights": "Weights",
    "context": "CUDA context",
    "cache": "KV cache",
    "prefill": "Prefill peak",
    "decode": "Decode peak",
    "train": "Training step peak",
}


def draw() -> None:
    st.markdown(
        f"`{WHERE}` builds any model with random weights on your own GPU, measures it and writes a file. "
        "It needs only torch and transformers:"
    )
    st.code("python measure.py Qwen/Qwen3-0.6B --batch 1 4 --context 512 4096 --out measured.json", language="bash")
    file = st.file_uploader("The file that it wrote", type="json", max_upload_size=1, key="measured_file")
    if file is None:
        return
    try:
        measurement = read_measurement(file.getvalue().decode())
        rows = beside(measurement)
    except UnicodeDecodeError:
        st.error("The file is not text; the script writes JSON in UTF-8.", icon=":material/error:")
    except ConfigError as problem:
        st.error(str(problem), icon=":material/error:")
    else:
        about(measurement)
        table(rows)


def about(measurement: Measurement) -> None:
    device = measurement.device
    st.caption(
        f"{measurement.config.get('model_type')} on {device.name}, {measurement.settings.dtype}, torch {device.torch}, "
        f"transformers {device.transformers}. Peaks: {measurement.settings.peaks}."
    )


def table(rows: list[Row]) -> None:
    st.dataframe(
        [
            {
                "What": KINDS[row.kind],
                "Batch": row.batch,
                "Context": row.context,
                "Attention": row.attention or "",
                "Logits": row.logits or "",
                "Measured": row.measured,
                "Predicted": row.predicted,
                "Difference": row.difference / row.measured if row.difference is not None and row.measured else None,
                "Not measured because": row.error or "",
            }
            for row in rows
        ],
        hide_index=True,
        key="measured_rows",
        column_config={
            **dict.fromkeys(("Measured", "Predicted"), st.column_config.NumberColumn(format="localized")),
            "Difference": st.column_config.NumberColumn(format="percent"),
        },
    )
