"""A model on a Mac under MLX: which format to download, whether it fits, its speed, and the commands."""

import streamlit as st

from calc import Precision
from calc.serving.engines.mlx.launch import command, conversion, repository
from calc.serving.engines.mlx.options import MLXOptions
from calc.units import GIB
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.local import DECISIVE, longest, speed_columns
from pages.parts.outputs.tables import Column, identifier
from pages.parts.state.local import LocalAnswer
from pages.parts.words import say

OPTIONS = MLXOptions()


def folders(answer: LocalAnswer) -> None:
    """The formats of MLX, the largest first, and the commands of the best that fits; nothing where there is no Mac."""
    runs = answer.mlx
    if not runs:
        return
    st.header(say("With MLX"), anchor=False)
    best = next((run for run in runs if run.fits), None)
    name = answer.model.name
    if best is None:
        st.markdown(say("No format of MLX has room at {context:,} tokens.", context=answer.workload.context))
    else:
        source = repository(name, Precision(weights=best.weights))
        st.markdown(say("**Take {repository}** ({size}).", repository=source, size=words.gib(best.bytes)))
    most = tables.in_sight("mlx_columns", DECISIVE)
    tables.draw(
        "local_mlx", say("With MLX"), folder_columns(name), runs, id=lambda run: identifier(run.weights), most=most
    )
    st.caption(
        say(
            "Speeds by the chip's bandwidth and the shares of it that llama.cpp reaches there. What a pass holds was "
            "measured on MLX's CPU build; on Metal, where attention is one kernel, it is computed."
        )
    )
    if best is not None:
        commands(name, Precision(weights=best.weights))


def folder_columns(name: str) -> list[Column]:
    """Columns of a model's formats, each by the name that mlx-community's repositories have."""
    rate, prompt, span = speed_columns(lambda run: run)
    return [
        Column(say("Folder"), lambda run: repository(name, Precision(weights=run.weights)).rpartition("/")[2]),
        Column(say("Size, GiB"), lambda run: run.bytes / GIB, "two"),
        Column(say("Verdict"), lambda run: say("fits") if run.fits else say("does not fit")),
        rate,
        prompt,
        longest("longest"),
        span,
        Column(
            say("Required, GiB"), lambda run: run.required / GIB, "two", say("Weights, cache and the largest pass.")
        ),
        Column(say("Bits per weight"), "bits_per_weight", "two"),
    ]


def commands(name: str, precision: Precision) -> None:
    """Command for a format."""
    server, convert = command(name, precision, OPTIONS), conversion(name, precision, OPTIONS)
    source = repository(name, precision)
    first, second, third = st.tabs(["mlx_lm.server", "mlx_lm.generate", "mlx_lm.convert"])
    with first:
        st.code(server.text, language="bash", wrap_lines=True)
    with second:
        st.code(f"mlx_lm.generate --model {source} --prompt -", language="bash", wrap_lines=True)
    with third:
        st.caption(say("Where nobody has published it: makes a folder mlx_model of the model's own repository."))
        st.code(convert.text, language="bash", wrap_lines=True)
