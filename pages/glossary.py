"""Every word of the pages with what it means: the texts are those of the controls, the drawings and the derivations."""

from collections.abc import Iterable
from typing import get_args

import streamlit as st

from calc.model.counting import WHAT
from calc.model.derivation import SYMBOLS
from calc.model.mixers import Mixer
from pages.parts import words
from pages.parts.inputs.fields import CONTROLS
from pages.parts.outputs import frame
from pages.parts.screen import small_table
from pages.parts.state.query import GLOSSARY
from pages.parts.state.scenario import places
from pages.parts.words import say

Row = tuple[str, str]


def mixers() -> Iterable[Row]:
    """Their texts begin with the word."""
    for text in (text for kind in get_args(Mixer) for text in kind.terms()):
        _, word, rest = say(text).split("**", 2)
        yield f"**{word}**", words.capitalized(rest.strip(" ,，:：\n"))


def options(part: str) -> Iterable[Row]:
    """Fields that controls and links set."""
    for name, place in places((part,)).items():
        if place.option.description is not None:
            yield f"**{words.field(name)}**", say(place.option.description)


def symbols() -> Iterable[Row]:
    for symbol, meaning in SYMBOLS.values():
        yield f"`{symbol}`", f"`{meaning}`" if "_" in meaning else say(meaning)


frame.without_model(GLOSSARY)
sought = st.text_input(
    say("Find a word"), placeholder=say("KV heads, MLA, ZeRO"), icon=":material/search:", key="sought"
).casefold()
sections: dict[str, Iterable[Row]] = {
    say("Sizes of a model"): ((f"**{say(control.label)}**", say(control.help)) for control in CONTROLS.values()),
    say("Parts of a model"): ((f"**{words.part(name)}**", say(text)) for name, text in WHAT.items()),
    say("Kinds of attention and what replaces it"): mixers(),
    say("Serving"): options("serving"),
    say("Training"): options("training"),
    say("Planning"): options("planning"),
    say("Symbols of the derivations"): symbols(),
}
with st.container(key="glossary"):
    for title, rows in sections.items():
        each_once = dict.fromkeys(rows)  # configs and formulas have several names for one
        if matching := [row for row in each_once if sought in " ".join(row).casefold()]:
            st.header(title, anchor=False)
            small_table([say("Word"), say("Meaning")], matching, numbers=0)
