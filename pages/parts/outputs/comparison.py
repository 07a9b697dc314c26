"""Configurations side by side: who they are, their headline numbers against the first, charts on one scale, and their
config fields."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import streamlit as st

from calc import Memory
from calc.errors import Message
from calc.hardware import find_gpu
from calc.serving import Report, Verdict
from calc.serving.comparison import CONTEXTS, ComparedField, cache_growth, ratio
from calc.serving.comparison import settings as compared_settings
from calc.time import Reply, price_of, usd_per_million
from calc.units import GIB
from pages.parts import words
from pages.parts.inputs import added_models
from pages.parts.outputs import charts, plot, share
from pages.parts.outputs.cards import badge, growing
from pages.parts.outputs.charts import Figure, figure, hover, small
from pages.parts.screen import alert, caption, heading, small_table
from pages.parts.state.compared import LETTERS, Column, Compared
from pages.parts.state.scenario import MOST_OTHERS, configuration, places
from pages.parts.words import say

SUGGESTED = ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3")
LINES = (
    ("#0072B2", "solid", "circle"),
    ("#D55E00", "dash", "square"),
    ("#009E73", "dot", "diamond"),
    ("#CC79A7", "dashdot", "cross"),
    ("#E69F00", "longdash", "triangle-up"),
    ("#56B4E9", "longdashdot", "star"),
)
"""Colour, dash and mark of each letter."""


def configurations(answer: Compared) -> None:
    """Controls that add a configuration, a model by its name or the one on screen as it is now; and the configurations
    by letter, each with what it changes and a way out."""
    place = places(("comparison",))["with"]
    full = say("Six at most") if len(answer.columns) > MOST_OTHERS else None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        added_models.add_model(place, configuration, MOST_OTHERS, "add_model", full)
        share.keep(answer)
    suggested = [model for model in SUGGESTED if model != answer.scenario.source.model]
    added_models.suggest(place, configuration, MOST_OTHERS, suggested)
    entries = ((column.letter, column.answer.model.name, changes(column)) for column in answer.columns)
    added_models.side_by_side(place, entries, Message("The model on the sliders"), 130)
    if answer.scenario.comparison.others:
        caption("On the same GPUs, for the same users and lengths: those of the question.")
    added_models.refusals((column.letter, column.answer.error) for column in answer.columns)


def changes(column: Column) -> str | None:
    """Changes of a model, as a link has them; None where there are none to read."""
    configuration = column.configuration
    if configuration is None or configuration.source.pasted is not None or not configuration.changes():
        return None
    return " ".join(f"`{name}={value}`" for name, value in configuration.changes().items())


def numbers(answer: Compared) -> None:
    """The headline numbers, each of the others with its difference from the first."""
    columns = answer.columns

    def row(label: str, text: Callable[[Report], str]) -> list[str]:
        return [label, *(cell(column, text) for column in columns)]

    def amount(label: str, of: Callable[[Report], int], written: Callable[[int], str]) -> list[str]:
        return against(columns, label, of, lambda report: written(of(report)))

    head = [say("Difference from A"), *map(titled, columns)]
    rows = [
        row(words.field("weights"), lambda r: f"`{r.scenario.precision.weights}`"),
        row(words.field("kv"), lambda r: f"`{r.scenario.precision.kv}`"),
        amount(say("Parameters"), lambda r: r.parameters.total, words.count),
        amount(say("Active parameters"), lambda r: r.parameters.active, words.count),
        against(
            columns, say("KV cache per token"), lambda r: r.kv_cache.bytes_per_token, lambda r: growing(r.kv_cache)
        ),
        amount(say("KV cache, total"), lambda r: r.kv_cache.total, words.size),
        amount(say("Weights per GPU"), lambda r: r.memory.weights, words.size),
        amount(memory_on(answer), lambda r: answer.memory(r).total, words.gib),
    ]
    if any(c.answer.report.scenario.layout.gpus > 1 for c in answer.complete):
        rows.append(row(say("Layout"), lambda r: words.layout(r.scenario.layout) or say("One GPU")))
    for number, gpu in enumerate(answer.scenario.chosen_gpus()):
        judged = (c.answer for c in columns)
        rows.append([gpu.name, *("–" if of.error else verdict(of.report.verdicts[number]) for of in judged)])
    small_table(head, [*rows, *speeds(columns)], numbers=len(columns))
    for column in answer.complete:
        reach(column)
    caption(
        "Times are expected values with all sequences of the batch, on the smallest of these GPUs that fits; the "
        "price is the median of the GPU's list prices at this load. Plan has their ranges."
    )


def titled(column: Column) -> str:
    return say("{letter} · {name}", letter=column.letter, name=column.answer.model.name)


def memory_on(answer: Compared) -> str:
    return say("Memory per GPU, {gpu}", gpu=answer.gpu.name)


def reach(column: Column) -> None:
    """A context that a model was not made for, or can't read."""
    architecture, context = column.answer.architecture, column.answer.report.scenario.workload.context
    if context < column.answer.scenario.serving.workload.context:
        sentence = "**{letter}** at {n:,} tokens: its learned positions end there."
        alert("warning", "straighten", sentence, letter=column.letter, n=context)
    elif architecture.max_positions is not None and context > architecture.max_positions:
        sentence = "The model was made for {most:,} tokens; {context:,} go beyond that."
        why = say(sentence, most=architecture.max_positions, context=context)
        alert("warning", "straighten", "**{letter}**: {why}", letter=column.letter, why=why)


def speeds(columns: Sequence[Column]) -> Iterator[list[str]]:
    """Smallest GPU of each, its speed there, and its price."""
    served = [(column.reply, None if column.reply is None else column.answer.focus) for column in columns]

    def row(label: str, text: Callable[[Verdict, Reply], str]) -> list[str]:
        return [label, *("–" if focus is None or reply is None else text(focus, reply) for reply, focus in served)]

    def priced(focus: Verdict, reply: Reply) -> str:
        price = price_of(focus.gpu)
        return "–" if price is None else words.dollars(usd_per_million(reply.tokens_per_s.expected, focus.gpus, price))

    yield row(say("Smallest GPU that fits"), lambda focus, _: find_gpu(focus.gpu).name)
    yield row(say("Tokens/s per user"), lambda _, reply: words.figure(reply.tokens_per_s_per_user.expected))
    yield row(say("Time to first token (TTFT)"), lambda _, reply: words.duration(reply.ttft_ms.expected))
    yield row(say("US dollars per million output tokens"), priced)


def cell(column: Column, text: Callable[[Report], str]) -> str:
    return "–" if column.answer.error is not None else text(column.answer.report)


def against(
    columns: Sequence[Column], label: str, of: Callable[[Report], int], text: Callable[[Report], str]
) -> list[str]:
    """A row of texts, each of the others with the multiple of the first's value that it stands for."""
    first, *others = columns
    value = of(first.answer.report)
    marked = (cell(column, lambda report: f"{text(report)} {mark(of(report), value)}") for column in others)
    return [label, cell(first, text), *marked]


def mark(value: int, first: int) -> str:
    """Multiple of the first's value, marked."""
    times = ratio(value, first)
    return f":gray-badge[{words.times(times)}]" if times is not None and value else ""


def verdict(row: Verdict) -> str:
    """Whether it runs and fits, and by how much, on one line; Weigh names the flags that it may take."""
    if row.flags or row.verdict == "does not run":
        return badge(row.verdict)
    room = words.gib(abs(row.spare))
    rounded = say("{size} headroom", size=room) if row.spare >= 0 else say("short by {size}", size=room)
    return f"{badge(row.verdict)} {rounded}"


def bars(answer: Compared) -> None:
    """Memory and parameters on one scale each."""
    columns = answer.complete
    memories = [answer.memory(column.answer.report) for column in columns]
    memory = memory_bars(model_names(columns), memories, charts.served(memories))
    with st.grid(2, min_column_width=340):
        with st.container():
            plot.draw("memory_bars", memory_on(answer), memory, titled=True)
        with st.container():
            plot.draw("parameter_bars", say("Parameters"), parameter_bars(columns), titled=True)


def growth(answer: Compared) -> None:
    """Cache of the whole batch over the context."""
    plot.draw("growth", say("KV cache vs. context length"), growth_curves(answer.complete), titled=True)


def settings(answer: Compared) -> None:
    """Config fields, those that differ first."""
    columns = [column for column in answer.columns if column.answer.model.settings]
    rows = compared_settings([column.answer.model.settings or {} for column in columns])
    differing, equal = [row for row in rows if row.differs], [row for row in rows if not row.differs]
    head = [say("Field"), *(column.letter for column in columns)]
    heading("Config fields that differ")
    if len(columns) == 1:
        caption("Add a configuration to see what differs.")
    elif differing:
        small_table(head, map(line, differing), numbers=len(columns))
    else:
        caption("None: the same architecture.")
    if equal:
        with st.expander(say("Fields that are the same")):
            small_table(head, map(line, equal), numbers=len(columns))


def line(row: ComparedField) -> list[str]:
    """A field and its values, those that differ from the first in bold."""
    first = row.values[0]
    return [f"`{row.name}`", *(written(value, differs=value != first) for value in row.values)]


def written(value: object, *, differs: bool) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool | int | float):
        text = words.value(value)
    else:
        text = f"`{value}`" if len(str(value)) <= 40 else f"`{str(value)[:40]}…`"
    return f"**{text}**" if differs else text


def model_names(columns: Sequence[Column]) -> dict[str, str]:
    """The model of each letter."""
    return {column.letter: column.answer.model.name for column in columns}


def memory_bars(names: Mapping[str, str], memories: Sequence[Memory], parts: Sequence[str]) -> Figure:
    """Memory of one GPU by part."""
    return charts.memory_rows(list(names), labels_of(names), memories, parts)


def parameter_bars(columns: Sequence[Column]) -> Figure:
    """The parameters of each, component by component."""
    counts: list[Mapping[Any, int]] = [column.answer.report.parameters.components for column in columns]
    names, parts = model_names(columns), [part for part in words.COLORS if any(part in count for count in counts)]
    bars: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words.part(part),
            "x": [count.get(part, 0) / 10**9 for count in counts],
            "y": list(names),
            "marker": {"color": words.color(part)},
            "hovertemplate": hover("{part}: {n} B", part=words.part(part), n="%{x:,.3f}"),
        }
        for part in parts
    ]
    return charts.bars_in_rows(list(names), labels_of(names), bars, parts, say("Billions of parameters"), "B")


def labels_of(names: Mapping[str, str]) -> list[str]:
    """Labels of rows: each letter with its name."""
    return [f"<b>{letter}</b> {'<br>'.join(wrap(name, 18))}" for letter, name in names.items()]


def growth_curves(columns: Sequence[Column]) -> Figure:
    """KV cache and states of the whole batch over the context."""
    lines: list[dict[str, Any]] = []
    grown: dict[str, dict[int, int]] = {}
    for column in columns:
        scenario, engine = column.answer.report.scenario, column.answer.scenario.serving.started()
        batch = scenario.workload.batch
        grown[column.letter] = cache_growth(column.answer.architecture, engine, scenario.precision.kv, batch)
    ends = {letter: list(sizes.items())[-1] for letter, sizes in grown.items()}
    for letter, sizes in grown.items():
        color, dash, symbol = style(letter)
        together = [other for other, end in ends.items() if end == ends[letter]]
        label = f"<b>{', '.join(together)}</b>" if letter == together[-1] else ""  # not one above the other
        lines.append(
            charts.points(
                list(sizes),
                [size / GIB for size in sizes.values()],
                "lines+markers+text",
                name=letter,
                text=[*[""] * (len(sizes) - 1), label],
                textposition="middle right",
                cliponaxis=False,
                line={"color": color, "dash": dash, "width": 2.5},
                marker={"color": color, "symbol": symbol, "size": 7},
                hovertemplate=hover("{letter}: {size} GiB", letter=letter, size="%{y:,.3f}"),
            )
        )
    return figure(
        lines,
        [(style(column.letter)[0], titled(column)) for column in columns],
        height=340,
        margin={"l": 8, "r": 30, "t": 10, "b": 52},
        hovermode="x unified",
        xaxis={
            "title": small(say("Context length, tokens")),
            "type": "log",
            "tickmode": "array",
            "tickvals": CONTEXTS,
            "ticktext": [words.tokens(context) for context in CONTEXTS],
        },
        yaxis={"title": small(say("KV cache, total, GiB")), "type": "log", "tickformat": ",~g", "dtick": 1},
    )


def style(letter: str) -> tuple[str, str, str]:
    return LINES[LETTERS.index(letter)]
