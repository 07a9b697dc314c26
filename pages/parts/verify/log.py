"""A pasted start-up log or out-of-memory message beside what we compute for the model on screen."""

import streamlit as st

from calc import Architecture, ConfigError
from calc.verify.logs import Difference, Log, differences, largest, read_log, weigh_as
from pages.parts import words
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import choose
from presets import gpus, models

NAMES = {
    "weights": "Weights",
    "bytes per token": "KV cache a token",
    "tokens": "Tokens in the cache",
    "one request": "Cache of one request",
    "concurrency": "Concurrency × length",
    "activations": "Peak of the profile run",
    "cuda_graphs": "CUDA graphs",
    "libraries": "Outside PyTorch",
    "KV budget": "Left for the cache",
    "memory": "Memory in use",
}
FOUND = {
    "weights": "weights",
    "kv_bytes": "KV cache",
    "activations": "activation peak",
    "non_torch": "outside PyTorch",
    "cuda_graphs": "CUDA graphs",
    "total": "memory of the GPU",
    "free": "free at the start",
}


def draw(scenario: Scenario, architecture: Architecture) -> None:
    text = st.text_area(
        "Paste a start-up log of vLLM or SGLang, or a CUDA out-of-memory message",
        key="log",
        height=200,
        persist_state="session",
        placeholder="Model loading took 14.99 GiB ...\nAvailable KV cache memory: 50.13 GiB\nGPU KV cache size: ...",
    )
    if not text.strip():
        return
    try:
        log = read_log(text)
        rows = differences(log, architecture, weigh_as(log, scenario.config(), gpus().values()))
    except ConfigError as problem:
        st.error(str(problem), icon=":material/error:")
        return
    which_model(scenario, log)
    verdict(rows)
    if rows:
        table(rows)
    stated(log)


def which_model(scenario: Scenario, log: Log) -> None:
    """The log is weighed as the model on screen; it may name another."""
    named = log.settings.model
    if named is not None and named.rstrip("/").split("/")[-1].lower() != scenario.model.split("/")[-1].lower():
        st.warning(
            f"The log is of {named[:100]}; it is weighed here as {scenario.name()}. Choose its model in the sidebar.",
            icon=":material/help:",
        )
        if named in models():
            st.button(f"Weigh it as {named}", key="log_model", on_click=choose, args=(named,))


def verdict(rows: tuple[Difference, ...]) -> None:
    worst = largest(rows)
    if not rows:
        st.info("The log states nothing that is computed here.", icon=":material/info:")
    elif worst is None:
        st.success("Every figure that the log states agrees with ours.", icon=":material/check_circle:")
    else:
        st.warning(f"What differs most: **{NAMES[worst.term]}**. {worst.sentence}", icon=":material/balance:")


def table(rows: tuple[Difference, ...]) -> None:
    lines = [f"| {NAMES[row.term]} | {amount(row, row.log)} | {our_amount(row)} | {share(row)} |" for row in rows]
    st.markdown("\n".join(["| Term | In the log | Ours | Difference |", "| --- | ---: | ---: | ---: |", *lines]))
    st.markdown("\n".join(f"- {row.sentence}" for row in rows))


def amount(row: Difference, value: int) -> str:
    return words.size(value) if row.unit == "bytes" else f"{value:,}"


def our_amount(row: Difference) -> str:
    if row.low is None or row.high is None:
        return amount(row, row.ours)
    return f"{amount(row, row.low)} to {amount(row, row.high)}"


def share(row: Difference) -> str:
    """Of ours; where ours is a range, whether the log's lies within."""
    if row.low is None:
        return f"{row.share:+.2%}"
    return "within" if row.agrees else "outside"


def stated(log: Log) -> None:
    """What was read, so that the reader sees what was not."""
    sizes = {words: getattr(log, name) for name, words in FOUND.items()}
    found = [f"{words} {words.size(value)}" for words, value in sizes.items() if value is not None]
    asked = [f"{name} {value}" for name, value in log.settings if value is not None and name != "model"]
    engine = f"{log.engine}{' ' + log.version if log.version else ''}"
    st.caption(f"Read from the log: {'; '.join([engine, *found, *asked])}.")
    for note in log.notes:
        st.caption(note)
