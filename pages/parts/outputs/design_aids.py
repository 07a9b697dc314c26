"""Aids for those who design a model: checks of its sizes, published models like it, the size that meets a budget."""

from collections.abc import Callable, Sequence
from functools import cache
from math import ceil
from typing import Any

import streamlit as st

from calc import Architecture, ConfigError
from calc.design import Measure, Proportions, checks, proportions, scaled, token_flops
from calc.families import with_experts
from calc.hardware import find_gpu
from calc.serving import Serving
from calc.units import GIB
from pages.parts import words
from pages.parts.inputs.fields import Control, controlled
from pages.parts.inputs.sidebar import put
from pages.parts.outputs import charts, plot
from pages.parts.outputs.charts import PLAIN, Figure
from pages.parts.screen import button, caption, heading, offer
from pages.parts.state.scenario import Source
from pages.parts.state.url import change
from pages.parts.state.weighed import Weighed
from pages.parts.words import say
from presets import models

TOKENS_PER_PARAMETER = 20
"""Training tokens for each parameter where a given compute trains the best model: Hoffmann et al., arXiv:2203.15556."""
EXPERTS, CHOSEN = 8, 2
"""A mixture to begin with, as of Mixtral: Jiang et al., arXiv:2401.04088."""
FLOPS_PER_TOKEN = 6
"""FLOPs of a training token for each active parameter: Kaplan et al., arXiv:2001.08361 section 2.1."""


@cache
def published() -> tuple[Proportions, ...]:
    """The presets by their proportions."""
    return tuple(proportions(preset.name, Architecture.from_config(preset.config)) for preset in models().values())


def lint(answer: Weighed) -> None:
    """Checks of its sizes against hardware, formats and engines."""
    heading("Checks of the design")
    layout = answer.report.scenario.layout
    caption("For the chosen layout: TP {tp}.", tp=layout.tp)
    own = proportions(answer.model.name, answer.architecture)
    for check in checks(answer.architecture, layout, published(), own):
        icon = ":green[:material/check_circle:]" if check.good else ":orange[:material/info:]"
        with st.container(gap="xxsmall"):
            st.markdown(f"{icon} {words.capitalized(say(check.what))}")
            caption("{why} [Source]({source})", why=check.why, source=check.source)


def experts(answer: Weighed) -> None:
    """The way to a mixture of experts, where its family has one of the same layers; of a dense model, why not."""
    if answer.report.parameters.components.get("experts_routed"):
        return
    try:
        config = with_experts(answer.model.config or {}, EXPERTS, CHOSEN)
    except ConfigError:
        return
    heading("As a mixture of experts")
    if config is None:
        caption(
            "No known family has the layers of this model with experts in the place of the feed-forward, so that "
            "no config means it."
        )
        return
    count = Architecture.from_config(config).parameters()
    caption(
        "{n} experts in each layer, {chosen} of them for each token; those {chosen}, with a shared expert where the "
        "family has one, are together as wide as the feed-forward is now. That is {total} parameters, {active} of them "
        "active, instead of {before}. The attention stays as it is.",
        n=EXPERTS,
        chosen=CHOSEN,
        total=words.count(count.total),
        active=words.count(count.active),
        before=words.count(answer.report.parameters.total),
    )
    button(say("Make it experts"), "make_experts", "hub", lambda: change(source=Source(pasted=config), overrides={}))


def standing(answer: Weighed) -> None:
    """Width and depth among published models."""
    title = say("Width and depth among {n} published models", n=len(published()))
    own = proportions(answer.model.name, answer.architecture)
    plot.draw("standing", title, scatter(own, published()), titled=True)


def scatter(own: Proportions, others: Sequence[Proportions]) -> Figure:
    """A mark a model: layers and hidden size, both in doublings; this model stands out."""
    template = say(
        "{name}<br>{layers} layers, {hidden} wide<br>{parameters} parameters",
        name="%{customdata[0]}",
        layers="%{x}",
        hidden="%{y:,}",
        parameters="%{customdata[1]}",
    )

    def marks(name: str, rows: Sequence[Proportions], **marker: Any) -> dict[str, Any]:
        return charts.points(
            [row.layers for row in rows],
            [row.hidden for row in rows],
            name=name,
            customdata=[[row.name, words.count(row.parameters)] for row in rows],
            marker=marker,
            hovertemplate=template + PLAIN,
        )

    dense = [row for row in others if row.active == row.parameters]
    sparse = [row for row in others if row.active != row.parameters]
    axis, edge = {"type": "log", "tickformat": ",d"}, {"width": 1.5, "color": charts.theme().text}
    return charts.figure(
        [
            marks(say("dense"), dense, color="#0072B2", size=7, opacity=0.8),
            marks(say("mixture of experts"), sparse, color="#E69F00", size=8, opacity=0.8, symbol="square"),
            marks(say("this model"), [own], color="#D55E00", size=15, symbol="star", line=edge),
        ],
        height=380,
        margin={"l": 8, "r": 8, "t": 40, "b": 48},
        **charts.KEY_ABOVE,
        hovermode="closest",
        xaxis=axis | {"title": charts.small(say("Layers")), "tickvals": [8, 16, 32, 64, 128]},
        yaxis=axis | {"title": charts.small(say("Hidden size")), "tickvals": [512, 1024, 2048, 4096, 8192, 16384]},
    )


def measures(answer: Weighed) -> dict[str, tuple[str, Measure, float, Callable[[int], str]]]:
    """Quantities that may have a budget: label, how a design is measured, unit, and an amount as text."""
    serving, gpu = answer.serving, find_gpu(answer.focus.gpu) if answer.focus else answer.scenario.first_gpu()
    workload = answer.report.scenario.workload

    def memory(architecture: Architecture) -> int:
        laid_out = Serving.of(architecture, serving.engine, serving.precision, serving.layout, serving.overhead)
        return laid_out.on(gpu, workload).memory.total

    def flops(architecture: Architecture) -> int:
        return token_flops(architecture, workload.context)

    def billions(n: int) -> str:
        return say("{n} GFLOPs", n=words.figure(n / 1e9))

    return {
        "parameters": (say("Parameters (B)"), lambda design: design.parameters().total, 1e9, words.count),
        "memory": (say("Memory per GPU (GiB)"), memory, GIB, words.size),
        "flops": (say("FLOPs per token (G)"), flops, 1e9, billions),
    }


def scale_to(answer: Weighed) -> None:
    """The value of one field that meets a budget."""
    settings, known = answer.model.settings or {}, measures(answer)
    fields = {name: control for name, control in controlled(settings).items() if isinstance(control, Control)}
    if not fields:
        return
    heading("Scale to a budget")
    with st.grid(3, min_column_width=130, gap="small"):
        kind = st.selectbox(say("Budget of"), list(known), format_func=lambda name: known[name][0], key="scale_kind")
        _, measure, unit, written = known[kind]
        now = measure(answer.architecture)
        budget = st.number_input(
            say("Budget"),
            min_value=0.001,
            value=ceil(1000 * now / unit) / 1000,
            format="%g",
            key=f"scale_{kind}_{answer.model.name}",
        )
        name = st.selectbox(
            say("Field to solve for"), list(fields), format_func=lambda name: say(fields[name].label), key="scale_field"
        )
    control = fields[name]
    values = range(-(-control.least // control.step) * control.step, control.most + 1, control.step)
    scaling = scaled(answer.model.config or {}, name, values, measure, int(budget * unit))
    caption("All other fields stay as they are; now {value:,}.", value=settings[name])
    original = (answer.model.published.settings or {})[name]
    rows = ((scaling.below, say("within the budget")), (scaling.above, say("the next one, beyond it")))
    for design, what in rows:
        if design is not None:
            sentence = "`{field}` = **{value:,}**: {amount}, {what}"
            text = say(sentence, field=name, value=design.value, amount=written(design.amount), what=what)
            label = say("Use {value}", value=f"{design.value:,}")
            offer(text, label, f"scale_use_{design.value}", put, design.value, name, original)
    if scaling.below is None:
        caption("No smaller value makes a valid model within this budget.")


def notes(answer: Weighed) -> None:
    """Training tokens and sparsity, by the papers."""
    heading("By the papers")
    own, count = proportions(answer.model.name, answer.architecture), answer.architecture.parameters()
    tokens = TOKENS_PER_PARAMETER * count.active
    lines = [
        say(
            "**Compute-optimal training** takes about {each} tokens for each parameter "
            "([Chinchilla](https://arxiv.org/abs/2203.15556)): {tokens} tokens here, {flops} FLOPs by 6·N·D "
            "([Kaplan et al.](https://arxiv.org/abs/2001.08361)). Models that many will use are trained far longer: "
            "Llama 3 8B on 15 T tokens, about 1,900 for each parameter ([Llama 3](https://arxiv.org/abs/2407.21783)).",
            each=TOKENS_PER_PARAMETER,
            tokens=words.count(tokens),
            flops=words.scientific(FLOPS_PER_TOKEN * count.active * tokens),
        )
    ]
    if count.active < count.total:
        lines.append(
            say(
                "**Sparsity**: {ratio:.1f} parameters for each active one. The law above is of dense models; here N is "
                "the active parameters, and a mixture of experts of the same compute is better than the dense model "
                "([routed scaling laws](https://arxiv.org/abs/2202.01169)). Smaller and more experts help further "
                "([DeepSeekMoE](https://arxiv.org/abs/2401.06066), [granularity](https://arxiv.org/abs/2402.07871)).",
                ratio=own.sparsity,
            )
        )
    st.markdown("\n\n".join(lines))
