"""Our list beside a real checkpoint: where it comes from, and how the two compare."""

import streamlit as st

from calc import Architecture, ConfigError
from calc.verify.checkpoint import Checkpoint, Stored, read_safetensors
from calc.verify.compare import Comparison, compare
from calc.verify.gguf import read_gguf
from calc.verify.printed import read_printed
from pages.parts import words
from pages.parts.outputs.cards import PARTS, difference_to
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import checkpoint as of_the_hub
from pages.parts.state.url import fetch
from presets import models

SOURCES = {
    "hub": "Checkpoint on the Hub",
    "printed": "print(model)",
    "file": "File",
    "log": "Start-up log",
    "measured": "Own measurement",
    "presets": "All presets",
}
MAX_FILE_MB = 100


def published(scenario: Scenario, architecture: Architecture) -> None:
    """The total that others published for a preset, and how far ours is from it."""
    preset = scenario.preset()
    if preset is not None and preset.published is not None and not scenario.overrides:
        st.markdown(difference_to(architecture.parameters().total, preset, preset.published))


def checkpoint(choice: str, scenario: Scenario) -> Checkpoint | None:
    """The other list, or None with a word about what to do."""
    try:
        return {"hub": _from_hub, "printed": _from_print_out, "file": _from_file}[choice](scenario)
    except ConfigError as problem:
        st.error(str(problem), icon=":material/error:")
        return None


def _from_hub(scenario: Scenario) -> Checkpoint | None:
    if scenario.pasted is not None:
        st.info("A pasted config names no checkpoint. Choose a model in the sidebar, or give a file.")
        return None
    asked = st.button(
        f"Read the headers of {scenario.model}",
        key="read_headers",
        icon=":material/cloud_download:",
        help="Only the tables of names, shapes and types are read, not the weights.",
    )
    known = (scenario.model, scenario.revision, scenario.file)
    if asked:
        st.session_state.headers_of = known
    if st.session_state.get("headers_of") != known:
        return None
    with st.spinner(f"Reading the headers of {scenario.model}"):
        return of_the_hub(scenario.hub or fetch(*known), scenario.file)


def _from_print_out(_: Scenario) -> Checkpoint | None:
    text = st.text_area(
        "Paste what print(model) shows",
        key="printed",
        height=200,
        persist_state="session",
        placeholder="Qwen2ForCausalLM(\n  (model): Qwen2Model(\n    (embed_tokens): Embedding(151936, 896)\n    ...",
    )
    if not text.strip():
        return None
    printed = read_printed(text)
    shapes = {name: Stored(None, shape, None) for name, shape in printed.shapes().items()}
    return Checkpoint(tensors=shapes, unseen=printed.unseen)


def _from_file(_: Scenario) -> Checkpoint | None:
    file = st.file_uploader(
        "A safetensors file or its header, model.safetensors.index.json, or a GGUF file",
        key="table_file",
        max_upload_size=MAX_FILE_MB,
        help=f"The beginning is enough for a large one: head -c {MAX_FILE_MB}M model.safetensors > header.safetensors",
    )
    if file is None:
        return None
    data = file.getvalue()
    return read_gguf(data).checkpoint if data[:4] == b"GGUF" else read_safetensors(data)


def comparison(architecture: Architecture, checkpoint: Checkpoint) -> None:
    found = compare(architecture, checkpoint)
    if found.matched == 0:
        st.warning(
            "No tensor has one of our names: this is another model, or a file that names its tensors otherwise, as "
            "GGUF does. The sums below stand.",
            icon=":material/help:",
        )
    elif not found.differences:
        st.success(f"All {found.matched:,} tensors agree in name and shape.", icon=":material/check_circle:")
    with st.grid(5, min_column_width=150, gap="xsmall"):
        st.metric("Ours, parameters", f"{found.ours:,}", border=True)
        st.metric("Theirs", f"{found.theirs:,}" if checkpoint.elements else "not shown", border=True)
        st.metric("Difference", f"{found.difference:+,}" if found.difference else "0", border=True)
        st.metric("Tensors that agree", f"{found.matched:,}", border=True)
        st.metric("Stored", "not shown" if checkpoint.bytes is None else words.size(checkpoint.bytes), border=True)
    st.caption(_aside(found))
    if checkpoint.unseen:
        st.info("\n".join(f"- {sentence}" for sentence in checkpoint.unseen), icon=":material/visibility_off:")
    _storage(checkpoint)
    if found.differences:
        st.subheader("What differs", anchor=False)
        st.dataframe(
            [
                {
                    "Tensor": row.name,
                    "Is": row.status,
                    "Ours": _shape(row.ours),
                    "Theirs": _shape(row.theirs),
                    "How many": row.count,
                    "Parameters": row.parameters,
                }
                for row in found.differences
            ],
            hide_index=True,
            key="differences",
            column_config={
                "How many": st.column_config.NumberColumn(format="localized"),
                "Parameters": st.column_config.NumberColumn(format="localized"),
            },
        )


def _aside(found: Comparison) -> str:
    """What stands in the checkpoint and is no difference."""
    parts = {
        f"{found.packed:,} weights are packed, as their format does": found.packed,
        f"{found.beside:,} tensors are scales, zeros and the like of a quantised format": found.beside,
        f"{found.derived:,} are buffers that the class computes by itself": found.derived,
        "the head is a copy of the embedding and counts once": found.tied,
    }
    said = "; ".join(sentence for sentence, number in parts.items() if number)
    return f"Image tower and further-token layers are compared too. {said[:1].upper()}{said[1:]}{'.' if said else ''}"


def _storage(checkpoint: Checkpoint) -> None:
    sums = checkpoint.bytes_by_dtype()
    if sums:
        total = sum(sums.values())
        rows = [f"| {dtype} | {size:,} | {words.size(size)} | {size / total:.2%} |" for dtype, size in sums.items()]
        st.subheader("Storage by type", anchor=False)
        st.markdown("\n".join(["| Type | Bytes | | Share |", "| --- | ---: | ---: | ---: |", *rows]))


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else " × ".join(f"{side:,}" for side in shape) or "scalar"


def presets() -> None:
    """Every preset: our count beside the published one."""
    rows = published_totals()
    st.metric("Presets whose published total we meet to the last parameter", f"{_agreeing(rows)} of {len(rows)}")
    st.dataframe(
        rows,
        hide_index=True,
        key="preset_totals",
        height=600,
        column_config={
            **dict.fromkeys(
                ("Ours", "Beside it in the file", "Published", "Difference"),
                st.column_config.NumberColumn(format="localized"),
            ),
        },
    )


def _agreeing(rows: list[dict[str, str | int]]) -> int:
    return sum(row["Difference"] == 0 for row in rows)


@st.cache_data
def published_totals() -> list[dict[str, str | int]]:
    rows: list[dict[str, str | int]] = []
    for preset in models().values():
        if preset.published is None:
            continue
        ours, beside = Architecture.from_config(preset.config).parameters().total, preset.beside()
        plus = sum(beside.values())
        rows.append(
            {
                "Model": preset.id,
                "Ours": ours,
                "Beside it in the file": plus,
                "What": "; ".join(PARTS[part] for part in beside),
                "Published": preset.published.total,
                "Difference": preset.published.total - ours - plus,
                "Source": preset.published.source,
                "Date": preset.published.date,
            }
        )
    return rows
