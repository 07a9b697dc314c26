"""Models on the reader's own machine: the answer, the files of the model, commands, MLX's folders, and the presets."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import streamlit as st

from calc import Layout, Precision
from calc.errors import Message
from calc.serving.engines.llamacpp.launch import GGUFSource, ModelStart
from calc.serving.engines.mlx.engine import command, conversion, repository
from calc.serving.engines.mlx.options import MLXOptions
from calc.time import Estimate
from calc.time.local import LocalRun, MLXRun, WhereRun
from calc.units import GIB
from pages.parts import words
from pages.parts.inputs.control import drawer
from pages.parts.outputs import plot, tables
from pages.parts.outputs.cards import limit
from pages.parts.outputs.charts import heat_map
from pages.parts.outputs.tables import Column, identifier
from pages.parts.screen import alert, button, caption, heading, leading_button, paragraph, small_table
from pages.parts.state.local import FEW, FileRow, LocalAnswer, candidates, of_preset_on
from pages.parts.state.published import of_preset
from pages.parts.state.query import WEIGH
from pages.parts.state.scenario import ServingChoice
from pages.parts.state.url import change, choose
from pages.parts.words import say

HEAT_CONTEXTS = (4096, 16_384, 32_768, 131_072)
HEAT = 10
"""Presets of the heat map."""
DECISIVE = 6
"""Columns of a table in sight without a click."""
OPTIONS = MLXOptions()


def place(run: LocalRun, layers: int) -> str:
    """Placement of weights and cache on GPU and host."""
    options = run.options
    kinds: dict[WhereRun, str] = {
        "gpu": say("all on the GPU"),
        "host": say("all on the host"),
        "nowhere": say("does not fit"),
    }
    if options is None or run.where in kinds:
        return kinds[run.where if options is not None else "nowhere"]
    if run.where == "experts":
        return say("experts of {n} of {all} layers on the host", n=options.n_cpu_moe, all=layers)
    count = options.n_gpu_layers if isinstance(options.n_gpu_layers, int) else layers + 1
    return say("{n} of {all} layers on the GPU", n=min(count, layers), all=layers)


def best(answer: LocalAnswer) -> None:
    """The file to take, and what lies where."""
    run, context = answer.best, answer.workload.context
    values: dict[str, Any] = {
        "model": answer.model.name,
        "file": run.file.weights,
        "size": words.gib(run.file.bytes),
        "context": context,
    }
    if run.tokens_per_s is None:
        alert(
            "error",
            "cancel",
            "**Not on this machine.** Even {file} ({size}) has no room at {context:,} tokens.",
            **values,
        )
        return
    paragraph("**Use {file}**: {where}.", **values, where=place(run, answer.architecture.num_layers))
    if run.origin is not None:
        caption(run.origin.sentence)


def files(answer: LocalAnswer) -> None:
    """Every file, the largest first; a click on a row is what the commands below are for."""
    repository = answer.model.published.hub is not None and bool(answer.model.published.hub.gguf_files)
    caption(
        "The files of the repository at {context:,} tokens of context, {kv} cache. Click a row for its commands."
        if repository
        else "Files that llama.cpp makes of this model, at {context:,} tokens of context, {kv} cache. Click a row for "
        "its commands.",
        context=answer.workload.context,
        kv="f16" if answer.kv == "bf16" else answer.kv,
    )
    most = tables.in_sight("local_columns", DECISIVE)
    lines, id = answer.files, lambda row: identifier(row.name)
    tables.pick("local_files", say("Which file to download"), file_columns(answer), lines, id=id, most=most)
    if any(not row.is_exact for row in answer.files):
        caption(
            "≈ A mix of the publisher's own, such as UD-Q4_K_XL, or one of llama.cpp's in name but not in size: "
            "types, memory and speed are those of the mix of that name, else of the nearest in size."
        )


def file_columns(answer: LocalAnswer) -> list[Column]:
    """Columns of the files, `DECISIVE` of them first."""
    tags = Counter(row.tag for row in answer.files)
    rate, prompt, span = speed_columns(lambda row: row.run)

    def called(row: FileRow) -> str:
        """A file by its types, where no other has them; else by its name."""
        named = row.tag if row.tag and tags[row.tag] == 1 else row.name
        return named if row.is_exact else f"≈ {named}"

    def types(row: FileRow) -> str:
        shares = row.run.file.types.items()
        return ", ".join(f"{kind.upper()} {share:.0%}" for kind, share in shares if share >= 0.01)

    return [
        Column("File", called),
        Column("Size, GiB", lambda row: row.bytes / GIB, "two"),
        Column("Placement", lambda row: place(row.run, answer.architecture.num_layers)),
        rate,
        prompt,
        longest(lambda row: row.run.longest),
        span,
        Column(
            "On GPUs, GiB",
            lambda row: row.run.on_gpus / GIB if row.run.options is not None else None,
            "two",
            "Weights, cache and the largest pass.",
        ),
        Column("On the host, GiB", lambda row: row.run.on_host / GIB if row.run.options is not None else None, "two"),
        Column("Bits per weight", lambda row: row.run.file.bits_per_weight, "two"),
        Column("Types", types),
    ]


def speed_columns(run_of: Callable[[Any], LocalRun | MLXRun]) -> tuple[Column, Column, Column]:
    """Tokens a second of answers and of prompts, and the range of the first. `run_of` is the run that a line is of."""
    help_text = Message("Expected, of all sequences, half way through.")
    return (
        Column("Tokens/s", lambda line: expected(run_of(line).tokens_per_s), "one", help_text),
        Column("Prompt tokens/s", lambda line: expected(run_of(line).prompt_tokens_per_s), "rate"),
        Column("from–to", lambda line: (rate := run_of(line).tokens_per_s) and words.span(rate)),
    )


def expected(rate: Estimate | None) -> float | None:
    return None if rate is None else rate.expected


def longest(tokens: Callable[[Any], int | None]) -> Column:
    """The longest sequence of a line; empty where it does not fit."""
    return Column(
        "Max context length", lambda line: limit(tokens(line)) or None, "whole", "With the placement as it is."
    )


def chosen(answer: LocalAnswer) -> FileRow | None:
    """The file whose row was clicked; else the best one."""
    open_rows = tables.opened("local_files")
    for row in answer.files:
        if identifier(row.name) in open_rows:
            return row
    return next((row for row in answer.files if row.run.file.weights == answer.best.file.weights), None)


def commands(answer: LocalAnswer) -> None:
    """Command for a file."""
    row = chosen(answer)
    if row is None or row.run.options is None:
        return
    options, layers, length = row.run.options, answer.architecture.num_layers, answer.workload.context
    types, count = options.cache_types(answer.kv), options.slots(answer.workload.batch)
    start = ModelStart(source_of(answer, row), options, length, count, types)
    key, help_text = f"card_{identifier(row.name)}", say("Opens Weigh with llama.cpp, this format and these flags.")
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key=key):
        paragraph("**What to type for {file}**", file=row.name)
        leading_button(WEIGH, say("Weigh it"), "local_weigh", weigh, answer, row, help=help_text)
    first, second, third, fourth = st.tabs(["llama-server", "llama-cli", "Ollama", "LM Studio"])
    with first:
        typed(start.server().text)
    with second:
        typed(start.cli().text)
    with third:
        setup = start.ollama(layers)
        environment = " ".join(f"{name}={value}" for name, value in setup.environment.items())
        st.code(setup.modelfile, language="dockerfile", wrap_lines=True)
        name = answer.model.name.rpartition("/")[2].lower()
        if environment:
            typed(f"{environment} ollama serve")
        typed(f"ollama create {name} -f Modelfile && ollama run {name}")
        for note in setup.notes:
            caption(note)
    with fourth:
        fields = start.lm_studio(layers)
        small_table([say("Field"), say("Value")], [[name, words.value(it)] for name, it in fields.items()])


def typed(command: str) -> None:
    st.code(command, language="bash", wrap_lines=True)


def source_of(answer: LocalAnswer, row: FileRow) -> GGUFSource:
    """Repository where there is one; else a file at hand."""
    hub = answer.model.published.hub
    if hub is not None and hub.gguf_files and row.tag:
        return GGUFSource(repository=hub.id, tag=row.tag)
    return GGUFSource(file=row.name.rpartition("/")[2])


def weigh(answer: LocalAnswer, row: FileRow) -> None:
    """Weigh with this file; for callbacks."""
    choice, options = answer.scenario.serving, row.run.options
    serving = ServingChoice(workload=choice.workload, weights=row.run.file.weights, kv=choice.kv)
    settings = {} if options is None else {name: value for name, value in options if name not in ("device",)}
    serving = serving.with_engine("llamacpp")
    serving = serving.model_copy(update={"options": serving.options.model_copy(update=settings)})
    cards = answer.computer.my_gpus
    if len(set(cards)) == 1:
        serving = serving.model_copy(update={"layout": Layout(pp=len(cards))})
    changes: dict[str, Any] = {"serving": serving} | ({"gpu": cards[:1]} if cards else {})
    change(**changes)


def presets(answer: LocalAnswer) -> None:
    """Presets on this machine, each in the best file; and over contexts."""
    computer, workload, kv = answer.computer, answer.workload, answer.kv
    names = candidates(computer, FEW)
    caption(
        "The largest presets that fit and answer fast enough to read along, at {context:,} tokens: each in the best "
        "file that fits on the GPU whole, or else the best one that is fast enough. Click a row to see its files.",
        context=workload.context,
    )
    most, named = tables.in_sight("preset_columns", DECISIVE), lambda line: identifier(line[0])
    runs = [(name, of_preset_on(name, computer, workload, kv)) for name in names]
    picked = tables.pick("local_presets", say("What runs on it"), preset_columns(), runs, id=named, most=most)
    for id, (name, _) in picked.items():
        button(say("Files of {model}", model=name), f"card_{id}", "arrow_upward", choose, name)
    with drawer(say("Speed over contexts"), "local_heat_drawer", icon=":material/grid_on:") as is_open:
        if is_open:
            heat(answer, names[:HEAT])


def preset_columns() -> list[Column]:
    """Columns of names of presets with their runs, `DECISIVE` of them first."""
    rate, prompt, span = speed_columns(lambda line: line[1])

    def where(line: tuple[str, LocalRun]) -> str:
        architecture = of_preset(line[0], None).architecture
        return place(line[1], architecture.num_layers if architecture is not None else 0)

    return [
        Column("Model", lambda line: line[0]),
        Column("File", lambda line: line[1].file.weights),
        Column("Size, GiB", lambda line: line[1].file.bytes / GIB, "two"),
        Column("Placement", where),
        rate,
        longest(lambda line: line[1].longest),
        span,
        prompt,
    ]


def heat(answer: LocalAnswer, names: list[str]) -> None:
    """Tokens a second by model and context, each in its best file there."""

    def rate(name: str, context: int) -> float:
        workload = answer.workload.model_copy(update={"context": context})
        run = of_preset_on(name, answer.computer, workload, answer.kv, longest=False)
        return 0.0 if run.tokens_per_s is None else run.tokens_per_s.expected

    rates = np.array([[rate(name, context) for context in HEAT_CONTEXTS] for name in names])
    if rates.any():
        labels = [name.rpartition("/")[2] for name in names]
        contexts = [words.tokens(context) for context in HEAT_CONTEXTS]
        shown = heat_map(labels, contexts, rates, words.figure)
        caption("Tokens/s by context length, each model in its best file there.")
        plot.draw("local_heat", say("Speed over contexts"), shown)


def traps() -> None:
    heading("What is easily overlooked")
    sentences = (
        say(
            "llama-server plans logits for its slots, one row each, and not for every token of a pass: llama-bench, "
            "llama-completion and older versions plan for all of them, hundreds of MiB more with a large vocabulary."
        ),
        say(
            "With CUDA a quantized cache pays for a 16-bit copy of one layer's keys and values beside it: with few "
            "layers that keep the whole context it gives back part of what it saves."
        ),
        say(
            "Tied embeddings exist twice: the host keeps the table that is looked up, and the GPU a copy that is the "
            "output."
        ),
        say(
            "llama.cpp ignores the windows of some families, Mistral 7B v0.1 and Phi-3 among them: all their layers "
            "keep the whole context."
        ),
        say(
            "Layers are counted from the end: --n-gpu-layers 20 are the last 19 and the output, and what stays on the "
            "host are the first ones."
        ),
        say(
            "Where part of the weights is on the host, the first GPU still computes long prompts: it keeps room for a "
            "copy of the largest matrix, and reads all of them over the bus in every pass."
        ),
    )
    st.markdown("\n".join(f"- {sentence}" for sentence in sentences))


def folders(answer: LocalAnswer) -> None:
    """The formats of MLX, the largest first, and the commands of the best that fits; nothing where there is no Mac."""
    runs = answer.mlx
    if not runs:
        return
    heading("With MLX")
    best = next((run for run in runs if run.fits), None)
    name = answer.model.name
    if best is None:
        paragraph("No format of MLX has room at {context:,} tokens.", context=answer.workload.context)
    else:
        source = repository(name, Precision(weights=best.weights))
        paragraph("**Use {repository}** ({size}).", repository=source, size=words.gib(best.bytes))
    most = tables.in_sight("mlx_columns", DECISIVE)
    tables.draw(
        "local_mlx", say("With MLX"), folder_columns(name), runs, id=lambda run: identifier(run.weights), most=most
    )
    caption(
        "Speeds by the chip's bandwidth and the shares of it that llama.cpp reaches there. What a pass holds was "
        "measured on MLX's CPU build; on Metal, where attention is one kernel, it is computed."
    )
    if best is not None:
        mlx_commands(name, Precision(weights=best.weights))


def folder_columns(name: str) -> list[Column]:
    """Columns of a model's formats, each by the name that mlx-community's repositories have."""
    rate, prompt, span = speed_columns(lambda run: run)
    return [
        Column("Folder", lambda run: repository(name, Precision(weights=run.weights)).rpartition("/")[2]),
        Column("Size, GiB", lambda run: run.bytes / GIB, "two"),
        Column("Verdict", lambda run: say("fits") if run.fits else say("does not fit")),
        rate,
        prompt,
        longest(lambda run: run.longest),
        span,
        Column("Required, GiB", lambda run: run.required / GIB, "two", "Weights, cache and the largest pass."),
        Column("Bits per weight", "bits_per_weight", "two"),
    ]


def mlx_commands(name: str, precision: Precision) -> None:
    """Command for a format."""
    server, convert = command(name, precision, OPTIONS), conversion(name, precision, OPTIONS)
    source = repository(name, precision)
    first, second, third = st.tabs(["mlx_lm.server", "mlx_lm.generate", "mlx_lm.convert"])
    with first:
        typed(server.text)
    with second:
        typed(f"mlx_lm.generate --model {source} --prompt -")
    with third:
        caption("Where nobody has published it: makes a folder mlx_model from the model's own repository.")
        typed(convert.text)
