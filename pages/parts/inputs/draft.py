"""Which model guesses tokens for the one on screen."""

from functools import lru_cache

import streamlit as st

from calc.serving.engines import ENGINES
from pages.parts.inputs.control import default, faults, help_of
from pages.parts.state.published import of_preset
from pages.parts.state.scenario import Place
from pages.parts.state.url import bind
from pages.parts.state.weighed import Answer
from pages.parts.words import field
from presets import models
from presets.search import label


def draft_model(place: Place, answer: Answer) -> None:
    """Presets that may draft for it, and the one that is chosen."""
    architecture, chosen = answer.model.architecture, place.of(answer.scenario)
    engine = answer.scenario.serving.engine
    known = () if architecture is None else drafts(engine, architecture.vocab, architecture.parameters().total)
    st.selectbox(
        field(place.name),
        [*known, *([chosen] if chosen is not None and chosen not in known else [])],
        index=None,
        format_func=lambda name: label(name) if name in models() else name,
        placeholder=default(None),
        help=help_of(place.option),
        **bind(place, given=None),
    )
    faults(answer.error, place)


@lru_cache(maxsize=64)
def drafts(engine: str, vocab: int, parameters: int) -> tuple[str, ...]:
    """Presets that an engine takes as drafts for such a vocabulary, with at most half as many parameters; the smallest
    first."""
    sizes: dict[str, int] = {}
    for name in models():
        known = of_preset(name, None).architecture
        if known is not None and ENGINES[engine].may_draft(known, vocab):
            sizes[name] = known.parameters().total
    return tuple(sorted((name for name in sizes if 2 * sizes[name] <= parameters), key=sizes.__getitem__))
