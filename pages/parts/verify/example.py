"""One of each kind of input, as its program wrote it, for readers who have none at hand."""

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from calc.errors import Message
from pages.parts.screen import caption, quiet_button
from pages.parts.state.url import choose
from pages.parts.words import say

FOLDER = Path(__file__).with_name("examples")


@dataclass(frozen=True)
class Example:
    """A file of `examples/`, the model that it is of, and where it is from."""

    file: str
    model: str | None
    label: Message
    source: Message

    def text(self) -> str:
        return (FOLDER / self.file).read_text(encoding="utf-8")


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "printed": (
        Example(
            "printed.txt",
            "Qwen/Qwen2.5-0.5B",
            Message("Try a print-out"),
            Message("{model}, printed by transformers 5", model="Qwen2.5-0.5B"),
        ),
    ),
    "table_file": (
        Example(
            "model.safetensors.index.json",
            "google/gemma-2b",
            Message("Try a file"),
            Message("{model}: the index that transformers wrote, head included", model="gemma-2b"),
        ),
    ),
    "log": (
        Example(
            "startup.log",
            "meta-llama/Llama-3.1-8B",
            Message("Try a log"),
            Message("Llama-3.1-8B on an RTX 3090: {link}", link="https://github.com/vllm-project/vllm/issues/10517"),
        ),
        Example(
            "out_of_memory.log",
            "openai/gpt-oss-120b",
            Message("Try an out-of-memory message"),
            Message("gpt-oss-120b on an H100: {link}", link="https://github.com/vllm-project/vllm/issues/27508"),
        ),
    ),
    "measured_file": (
        Example(
            "measurement.json",
            None,
            Message("Try a measurement"),
            Message("A small Qwen3 on a CPU, by {script}", script="`benchmarks/measure.py`"),
        ),
    ),
}
"""Examples by the key of the widget that takes the reader's own."""


def buttons(key: str) -> None:
    """Examples of what a widget takes, each with its model."""
    with st.container(horizontal=True, gap="small"):
        for example in EXAMPLES[key]:
            quiet_button(
                say(example.label), f"try_{example.file}", "science", _take, key, example, help=say(example.source)
            )


def pasted(key: str, label: str, placeholder: str) -> str:
    """The text that a reader pastes into a field with its examples, "" where it is empty."""
    text = st.text_area(label, key=key, height=200, persist_state="session", placeholder=placeholder)
    buttons(key)
    return text.strip() and text


def uploaded(key: str, model: str) -> bytes | None:
    """The file that a reader gave, or the example that is tried in its place, while its model is on screen."""
    if st.session_state[key] is not None:
        data: bytes = st.session_state[key].getvalue()
        return data
    example: Example | None = st.session_state.get(f"{key}_example")
    if example is None or example.model not in (None, model):
        return None
    caption(example.source)
    return example.text().encode()


def _take(key: str, example: Example) -> None:
    if example.model is not None:
        choose(example.model)
    if key in ("printed", "log"):
        st.session_state[key] = example.text()
    else:
        st.session_state[f"{key}_example"] = example
