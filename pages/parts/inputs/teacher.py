"""Whose distribution is learned in distillation."""

from functools import lru_cache

import streamlit as st

from pages.parts.inputs.control import faults, help_of
from pages.parts.state.published import of_preset
from pages.parts.state.scenario import Place
from pages.parts.state.url import bind
from pages.parts.state.weighed import Trained
from pages.parts.words import field, say
from presets import models
from presets.search import label


def teacher_model(place: Place, answer: Trained) -> None:
    """Presets of the model's vocabulary, and the one that is chosen."""
    architecture, chosen = answer.model.architecture, place.of(answer.scenario)
    known = () if architecture is None else teachers(architecture.vocab)
    st.selectbox(
        field(place.name),
        [*known, *([chosen] if chosen is not None and chosen not in known else [])],
        index=None,
        format_func=lambda name: label(name) if name in models() else name,
        placeholder=say("the model itself"),
        help=help_of(place.option),
        **bind(place, given=None),
    )
    faults(answer.error, place)


@lru_cache(maxsize=64)
def teachers(vocab: int) -> tuple[str, ...]:
    """Presets of such a vocabulary, the largest first."""
    sizes: dict[str, int] = {}
    for name in models():
        known = of_preset(name, None).architecture
        if known is not None and known.vocab == vocab:
            sizes[name] = known.parameters().total
    return tuple(sorted(sizes, key=sizes.__getitem__, reverse=True))
