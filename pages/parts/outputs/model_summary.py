"""Summary that stays in sight on the views of a model: its total, where the parameters are, and the
verdict of each GPU."""

from collections.abc import Iterator
from html import escape

import streamlit as st

from calc.hardware import find_gpu
from calc.model.architecture import Parameters
from pages.parts import words
from pages.parts.inputs.lists import short_name
from pages.parts.outputs.bar import keys
from pages.parts.outputs.cards import BADGES, badge
from pages.parts.state.weighed import Answer, Weighed, weighed
from pages.parts.words import say

VISIBLE = 0.001
"""Share of the total below which a slice of the pie is not seen."""


def draw(answer: Answer) -> None:
    """Parameters and verdicts; of a model that no engine serves so, parameters alone."""
    served = answer if isinstance(answer, Weighed) else weighed(answer.scenario)
    with st.container(key="pinned", gap="xxsmall"):
        st.html(parameters(answer.architecture.parameters()))
        if served.error is None and served.report.verdicts:
            st.markdown("  \n".join(verdicts(served)))


def parameters(counted: Parameters) -> str:
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


def verdicts(answer: Weighed) -> Iterator[str]:
    """A line for each verdict there is, with the GPUs that it is about."""
    for verdict, (_, _, icon) in BADGES.items():
        names = [short_name(find_gpu(row.gpu)) for row in answer.report.verdicts if row.verdict == verdict]
        if names:
            yield f"{badge(verdict, f'{icon} ')} {', '.join(names)}"
