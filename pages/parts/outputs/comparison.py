"""Configurations side by side: who they are, their headline numbers against the first, and their config fields."""

from collections.abc import Callable, Iterator, Sequence

import streamlit as st

from calc.hardware import find_gpu
from calc.serving import Report, Verdict
from calc.serving.comparison import ComparedField, ratio
from calc.serving.comparison import settings as compared_settings
from calc.time import Reply, price_of, usd_per_million
from pages.parts import words
from pages.parts.outputs import charts, comparison_charts, pin, plot
from pages.parts.outputs.bar import keys
from pages.parts.outputs.cards import BADGES, growing
from pages.parts.state.compared import Column, Compared, add, remove
from pages.parts.state.scenario import MOST_OTHERS
from pages.parts.state.weighed import Weighed
from pages.parts.words import say
from presets import models

NO_BREAK = "\N{NO-BREAK SPACE}"
SUGGESTED = ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3")


def choose(answer: Compared) -> None:
    """Controls that add a configuration: a model by its name, or the one on screen as it is now."""
    others, full = answer.scenario.comparison.others, len(answer.columns) > MOST_OTHERS
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            say("Add a model"),
            list(models()),
            index=None,
            format_func=lambda name: models()[name].name if name in models() else name,
            placeholder=say("Six at most") if full else say("A preset, or organisation/name on the Hub"),
            accept_new_options=True,
            disabled=full,
            key="add_model",
            on_change=_take_model,
            width=420,
        )
        pin.keep(answer)
    if (name := st.session_state.pop("not_added", None)) is not None:
        st.warning(say("“{name}” is no model's name: organisation/name is.", name=name), icon=":material/help:")
    shown = {answer.scenario.source.model, *(other.source.model for other in others)}
    if not others:
        with st.container(horizontal=True, gap="xsmall"):
            for model in SUGGESTED:
                if model not in shown:
                    label = models()[model].name
                    st.button(
                        label, icon=":material/add:", key=f"add_{model}", on_click=_take_suggestion, args=(model,)
                    )


def _take_model() -> None:
    state = st.session_state
    if state.add_model and not add(state.add_model.strip()):
        state.not_added = state.add_model[:60]
    state.add_model = None


def _take_suggestion(model: str) -> None:
    add(model)


def headings(answer: Compared) -> None:
    """The configurations by letter, each with what it changes and a way out."""
    with st.grid(6, min_column_width=130, gap="xsmall"):
        for number, column in enumerate(answer.columns):
            with st.container(gap="xxsmall"):
                st.markdown(say("**{letter}** · {name}", letter=column.letter, name=column.answer.model.name))
                if column.configuration is None:
                    st.caption(say("The model on the sliders"))
                else:
                    changes = column.configuration.changes()
                    if changes and column.configuration.source.pasted is None:
                        st.caption(" ".join(f"`{name}={value}`" for name, value in changes.items()))
                    st.button(
                        say("Remove"),
                        type="tertiary",
                        icon=":material/close:",
                        key=f"remove_{column.letter}",
                        on_click=remove,
                        args=(number - 1,),
                    )
    if answer.scenario.comparison.others:
        st.caption(say("On the same GPUs, for the same users and lengths: those of the question."))
    for column in answer.columns:
        if column.answer.error is not None:
            why = say(column.answer.error.message)
            st.error(say("**{letter}**: {why}", letter=column.letter, why=why), icon=":material/error:")


def numbers(answer: Compared) -> None:
    """The headline numbers, each of the others with its difference from the first."""
    columns = answer.columns
    names = (say("{letter} · {name}", letter=c.letter, name=c.answer.model.name) for c in columns)
    head = [say("Difference from A"), *names]
    rows = [
        [words.field("weights"), *(cell(column, lambda r: f"`{r.scenario.precision.weights}`") for column in columns)],
        [words.field("kv"), *(cell(column, lambda r: f"`{r.scenario.precision.kv}`") for column in columns)],
        against(columns, say("Parameters"), lambda r: r.parameters.total, words.count),
        against(columns, say("Active parameters"), lambda r: r.parameters.active, words.count),
        per_token(columns),
        against(columns, say("KV cache, total"), lambda r: r.kv_cache.total, words.size),
        against(columns, say("Weights per GPU"), lambda r: r.memory.weights, words.size),
        against(columns, memory_on(answer), lambda r: answer.memory(r).total, words.gib),
    ]
    if any(c.answer.report.scenario.layout.gpus > 1 for c in answer.complete):
        rows.append([say("Layout"), *(cell(column, layout) for column in columns)])
    rows += [verdicts(columns, number, gpu.name) for number, gpu in enumerate(answer.scenario.chosen_gpus())]
    st.markdown(words.table(head, [*rows, *speeds(columns)], numbers=len(columns)))
    for column in answer.complete:
        reach(column)
    st.caption(
        say(
            "Times are expected values with all sequences of the batch, on the smallest of these GPUs that fits; the "
            "price is the median of the GPU's list prices, kept busy so. Plan has their ranges."
        )
    )


def memory_on(answer: Compared) -> str:
    return say("Memory per GPU, {gpu}", gpu=answer.gpu.name)


def reach(column: Column) -> None:
    """A context that a model was not made for, or can't read."""
    architecture, context = column.answer.architecture, column.answer.report.scenario.workload.context
    letter, icon = column.letter, ":material/straighten:"
    if context < column.answer.scenario.serving.workload.context:
        st.warning(
            say("**{letter}** at {n:,} tokens: its learned positions end there.", letter=letter, n=context), icon=icon
        )
    elif architecture.max_positions is not None and context > architecture.max_positions:
        why = say(
            "The model was made for {most:,} tokens; {context:,} go beyond that.",
            most=architecture.max_positions,
            context=context,
        )
        st.warning(say("**{letter}**: {why}", letter=letter, why=why), icon=icon)


def speeds(columns: Sequence[Column]) -> Iterator[list[str]]:
    """Smallest GPU of each, its speed there, and its price."""
    replies = [column.reply for column in columns]
    focuses = [None if column.reply is None else column.answer.focus for column in columns]
    names = [None if focus is None else find_gpu(focus.gpu).name for focus in focuses]
    yield [
        say("Smallest GPU that fits"),
        *(name if present and name else "–" for name, present in zip(names, replies, strict=True)),
    ]
    yield [
        say("Tokens/s per user"),
        *("–" if reply is None else words.figure(reply.tokens_per_s_per_user.expected) for reply in replies),
    ]
    yield [
        say("Time to first token (TTFT)"),
        *("–" if reply is None else words.duration(reply.ttft_ms.expected) for reply in replies),
    ]
    yield [
        say("US dollars per million output tokens"),
        *(
            "–" if reply is None else priced(column.answer, reply)
            for column, reply in zip(columns, replies, strict=True)
        ),
    ]


def priced(answer: Weighed, reply: Reply) -> str:
    price = None if answer.focus is None else price_of(answer.focus.gpu)
    if price is None or answer.focus is None:
        return "–"
    return words.dollars(usd_per_million(reply.tokens_per_s.expected, answer.focus.gpus, price))


def cell(column: Column, text: Callable[[Report], str]) -> str:
    return "–" if column.answer.error is not None else text(column.answer.report)


def against(
    columns: Sequence[Column], label: str, of: Callable[[Report], int], written: Callable[[int], str]
) -> list[str]:
    """A row: the value, and how much more or less than the first's."""
    first = of(columns[0].answer.report)

    def versus_first(report: Report) -> str:
        return f"{written(of(report))} {mark(of(report), first)}"

    return [label, cell(columns[0], lambda report: written(first)), *(cell(c, versus_first) for c in columns[1:])]


def per_token(columns: Sequence[Column]) -> list[str]:
    """Bytes that one more token adds, which some models stop doing."""
    first = columns[0].answer.report.kv_cache

    def versus_first(report: Report) -> str:
        return f"{growing(report.kv_cache)} {mark(report.kv_cache.bytes_per_token, first.bytes_per_token)}"

    return [say("KV cache per token"), growing(first), *(cell(column, versus_first) for column in columns[1:])]


def mark(value: int, first: int) -> str:
    """Multiple of the first's value, marked."""
    times = ratio(value, first)
    return f":gray-badge[{words.times(times)}]" if times is not None and value else ""


def layout(report: Report) -> str:
    return words.layout(report.scenario.layout) or say("One GPU")


def verdicts(columns: Sequence[Column], number: int, gpu: str) -> list[str]:
    """A row: one kind of GPU."""
    return [gpu, *(cell(column, lambda report: verdict(report.verdicts[number])) for column in columns)]


def verdict(row: Verdict) -> str:
    """Whether it fits, and by how much, on one line; Weigh names the flags that it may take."""
    word, color, _ = BADGES[row.verdict]
    if row.flags:
        return f":{color}-badge[{say(word)}]"
    room = words.gib(abs(row.spare)).replace(" ", NO_BREAK)
    rounded = say("{size} headroom", size=room) if row.spare >= 0 else say("short by {size}", size=room)
    return f":{color}-badge[{say(word)}] {rounded}"


def bars(answer: Compared) -> None:
    """Memory and parameters on one scale each."""
    columns, theme = answer.complete, charts.theme()
    with st.grid(2, min_column_width=340):
        with st.container():
            st.header(memory_on(answer), anchor=False)
            memories = [answer.memory(column.answer.report) for column in columns]
            parts, names = charts.served(memories), comparison_charts.names(columns)
            st.html(keys((words.color(part), words.part(part)) for part in parts))
            plot.draw("memory_bars", memory_on(answer), comparison_charts.memory_bars(names, memories, parts, theme))
        with st.container():
            st.header(say("Parameters"), anchor=False)
            st.html(keys((words.color(part), words.part(part)) for part in comparison_charts.components(columns)))
            plot.draw("parameter_bars", say("Parameters"), comparison_charts.parameter_bars(columns, theme))


def growth(answer: Compared) -> None:
    """Cache of the whole batch over the context."""
    st.header(say("KV cache vs. context length"), anchor=False)
    names = (
        (
            comparison_charts.style(column.letter)[0],
            say("{letter} · {name}", letter=column.letter, name=column.answer.model.name),
        )
        for column in answer.complete
    )
    st.html(keys(names))
    curves = comparison_charts.growth_curves(answer.complete, charts.theme())
    plot.draw("growth", say("KV cache vs. context length"), curves)


def settings(answer: Compared) -> None:
    """Config fields, those that differ first."""
    columns = [column for column in answer.columns if column.answer.model.settings]
    rows = compared_settings([column.answer.model.settings or {} for column in columns])
    differing, equal = [row for row in rows if row.differs], [row for row in rows if not row.differs]
    head = [say("Field"), *(column.letter for column in columns)]
    st.header(say("Config fields that differ"), anchor=False)
    if len(columns) == 1:
        st.caption(say("Add a configuration to see what differs."))
    elif differing:
        st.markdown(words.table(head, map(line, differing), numbers=len(columns)))
    else:
        st.caption(say("None: the same architecture."))
    if equal:
        with st.expander(say("Fields that are the same")):
            st.markdown(words.table(head, map(line, equal), numbers=len(columns)))


def line(row: ComparedField) -> list[str]:
    """A field and its values, those that differ from the first in bold."""
    first = row.values[0]
    return [f"`{row.name}`", *(written(value, differs=value != first) for value in row.values)]


def written(value: object, *, differs: bool) -> str:
    if value is None:
        return "–"
    text = words.value(value) if isinstance(value, bool | int | float) else f"`{shortened(str(value))}`"
    return f"**{text}**" if differs else text


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
