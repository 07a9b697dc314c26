"""The numbers of a model: totals with their derivations, the exact count, words of verdicts; and the summary that stays
in sight on the views of a model."""

from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from typing import Literal

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.model.architecture import Parameters
from calc.model.paper import Anchor
from calc.serving import KVCache, Verdict
from calc.training import TrainingVerdict
from pages.parts import words
from pages.parts.inputs.lists import short_name
from pages.parts.outputs import paper
from pages.parts.outputs.bar import keys
from pages.parts.outputs.derivations import ModelDerivations, ServingDerivations, figures
from pages.parts.screen import alert, heading
from pages.parts.state.weighed import Answer, Weighed, weighed
from pages.parts.words import say
from presets import Preset


def totals(answer: Weighed) -> None:
    """The numbers first, each with its formula and values one click away."""
    report, focus = answer.report, answer.focus
    gpu = None if focus is None else find_gpu(focus.gpu)
    model, served = ModelDerivations(answer), ServingDerivations(answer, gpu)
    parameters, cache, memory = report.parameters, report.kv_cache, served.memory_used
    numbers: list[tuple[Anchor, str, str, Callable[[], None]]] = [
        ("parameters", say("Parameters"), words.count(parameters.total), model.parameters),
        ("active", say("Active parameters"), words.count(parameters.active), model.active),
        ("kv_cache_per_token", say("KV cache per token"), growing(cache), served.cache_per_token),
        ("kv_cache", say("KV cache, total"), words.size(cache.total), served.cache),
        ("weights", say("Weights per GPU"), words.size(memory.weights), served.weights),
        ("memory", say("Memory per GPU"), words.gib(memory.total), served.memory),
    ]

    def with_link(anchor: Anchor, draw: Callable[[], None]) -> None:
        draw()
        paper.link(answer, anchor)

    figures(
        "totals", [(anchor, label, value, partial(with_link, anchor, draw)) for anchor, label, value, draw in numbers]
    )


def growing(cache: KVCache) -> str:
    """Cache bytes of one more token; some models stop growing."""
    if cache.bytes_per_token:
        return words.size(cache.bytes_per_token)
    if cache.window_bytes:
        return say("window only")
    return say("state only") if cache.state_bytes else say("none")


def exact(answer: Weighed) -> None:
    """The count to the last one, what it leaves out, and the total that others published."""
    parameters = answer.report.parameters
    if parameters.active == parameters.total:
        lines = [say("Exactly **{total:,}** parameters, all active.", total=parameters.total)]
    else:
        total, active = parameters.total, parameters.active
        lines = [say("Exactly **{total:,}** parameters, **{active:,}** active.", total=total, active=active)]
    excluded = [say("{part} {n:,}", part=words.PARTS[name], n=n) for name, n in parameters.not_in_total.items() if n]
    if excluded:
        lines.append(say("Not in total: {parts}.", parts=words.listed(excluded)))
    published = published_total(answer)
    if published is not None:
        lines.append(published)
    st.caption("  \n".join(lines))


def published_total(answer: Answer) -> str | None:
    """Our total and the one that others published for this preset; None where there is none."""
    preset, total, difference = compared_total(answer)
    if preset is None or preset.published is None:
        return None
    published, auxiliary = preset.published, preset.auxiliary_parts()
    if not auxiliary and not difference:
        return say(
            "The published total is the same. Source: <{source}>, {date}", source=published.source, date=published.date
        )
    sum_of = f"{total:,}"
    for part, n in auxiliary.items():
        what = words.IN_FILES[part]
        if n < 0:
            sum_of = say("{sum} − {n:,} ({what})", sum=sum_of, n=-n, what=what)
        else:
            sum_of = say("{sum} + {n:,} ({what})", sum=sum_of, n=n, what=what)
    return say(
        "Published: {published:,} = {sum}, difference **{difference:,}**. Source: <{source}>, {date}",
        published=published.total,
        sum=sum_of,
        difference=difference,
        source=published.source,
        date=published.date,
    )


def compared_total(answer: Answer) -> tuple[Preset | None, int, int]:
    """The preset whose total others published, which is None where there is none; our total; and what theirs has
    more."""
    preset, total = answer.model.published.preset, answer.architecture.parameters().total
    if preset is None or preset.published is None or answer.scenario.overrides:
        return None, total, 0
    return preset, total, preset.published.total - total - sum(preset.auxiliary_parts().values())


Color = Literal["green", "orange", "red"]
BADGES: dict[str, tuple[Message, Color, str]] = {
    "fits": (Message("Fits"), "green", ":material/check_circle:"),
    "fits with": (Message("Fits with flags"), "orange", ":material/tune:"),
    "tight": (Message("Tight"), "orange", ":material/balance:"),
    "does not fit": (Message("Does not fit"), "red", ":material/cancel:"),
    "does not run": (Message("Does not run"), "red", ":material/block:"),
}


def badge(verdict: str, icon: str = "") -> str:
    """The word of a verdict in its colour."""
    word, color, _ = BADGES[verdict]
    return f":{color}-badge[{icon}{say(word)}]"


def head(verdict: Verdict | TrainingVerdict) -> None:
    """The GPUs of a card, and whether it fits."""
    word, color, icon = BADGES[verdict.verdict]
    st.markdown(f"**{words.on_gpus(verdict.gpu, verdict.gpus)}**")
    st.badge(say(word), color=color, icon=icon)


def notes(sentences: Iterable[Message]) -> None:
    """Limits of a card."""
    for sentence in sentences:
        st.caption(f":material/info: {words.capitalized(say(sentence))}")


def no_gpu() -> None:
    """A box in place of an answer about a GPU."""
    alert("info", "memory", "No GPU is chosen: choose one above to see whether it fits.")


def headroom(verdict: Verdict | TrainingVerdict) -> str:
    """Headroom on the GPU, or the bytes that are missing."""
    size, usable = words.gib(abs(verdict.spare)), words.gib(verdict.usable)
    if verdict.spare >= 0:
        return say("{size} headroom of {usable}", size=size, usable=usable)
    return say("**Short by** {size} of {usable}", size=size, usable=usable)


def most(n: int | None) -> str:
    """The largest context or batch that surely fits."""
    limit_there = limit(n)
    return limit_there if isinstance(limit_there, str) else f"{limit_there:,}" if limit_there else say("none")


def limit(n: int | None) -> int | str:
    """The figure in a table, whose columns write numbers."""
    return say("no limit") if n is None else n


def overtaking(answer: Weighed) -> None:
    """Context from which the cache outweighs the weights, as a heading of its chart."""
    heading("Memory vs. context length")
    report = answer.report
    n, first = report.scenario.workload.batch, report.overtaken_at
    if first is not None:
        sentence = say(
            "With one sequence, the KV cache outweighs the weights from {tokens} tokens on.",
            plural="With {n:,} sequences, the KV cache outweighs the weights from {tokens} tokens on.",
            n=n,
            tokens=words.tokens(first),
        )
    else:
        sentence = say(
            "With one sequence, the weights outweigh the KV cache up to {tokens} tokens.",
            plural="With {n:,} sequences, the weights outweigh the KV cache up to {tokens} tokens.",
            n=n,
            tokens=words.tokens(max(report.by_context)),
        )
    st.caption(sentence)


VISIBLE = 0.001
"""Share of the total below which a slice of the pie is not seen."""


def summary(answer: Answer) -> None:
    """Parameters, and a line for each verdict with its GPUs; of a model that no engine serves so, parameters alone."""
    served = answer if isinstance(answer, Weighed) else weighed(answer.scenario)
    with st.container(key="pinned", gap="xxsmall"):
        st.html(pie_of_parameters(answer.architecture.parameters()))
        if served.error is None and served.report.verdicts:
            lines = []
            for verdict, (_, _, icon) in BADGES.items():
                names = [short_name(find_gpu(row.gpu)) for row in served.report.verdicts if row.verdict == verdict]
                if names:
                    lines.append(f"{badge(verdict, f'{icon} ')} {', '.join(names)}")
            st.markdown("  \n".join(lines))


def pie_of_parameters(counted: Parameters) -> str:
    """The total, all digits, and a pie of the components with its key."""
    components = sorted(counted.components.items(), key=lambda part: -part[1])
    parts = [(name, n) for name, n in components if n >= VISIBLE * counted.total]
    end, stops = 0.0, []
    for name, n in parts:
        start, end = end, end + 100 * n / counted.total
        stops.append(f"{words.color(name)} {start:.3f}% {end:.3f}%")
    labels = [f"{words.part(name)} {words.percent(n / counted.total)}" for name, n in parts]
    spoken = escape(say("Parameter breakdown: {parts}.", parts=words.listed(labels)), quote=True)
    return (
        f'<div class="weighbridge-pinned"><i role="img" aria-label="{spoken}" '
        f'style="background:conic-gradient({",".join(stops)})"></i>'
        f"<div><b>{words.count(counted.total)}</b><span>{escape(say('Parameters'))}</span>"
        f"<small>{counted.total:,}</small></div>"
        f"{keys((words.color(name), label) for (name, _), label in zip(parts, labels, strict=True))}</div>"
    )
