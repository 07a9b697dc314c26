"""Filters above a table or a map, which let everything pass until something is chosen."""

from collections.abc import Callable, Iterable

import streamlit as st

from calc import GPU
from pages.parts import words
from pages.parts.words import say


def several(label: str, key: str, options: Iterable[str], called: Callable[[str], str] = str) -> list[str]:
    return st.multiselect(label, options, format_func=called, key=key, placeholder=say("any"))


def vendor_and_form(gpus: Iterable[GPU], key: str) -> Callable[[GPU], bool]:
    """Filters by maker and form. Returns whether a GPU passes them."""
    known = list(gpus)
    vendors = several(say("Vendor"), f"{key}vendors", sorted({gpu.vendor for gpu in known}), words.vendor)
    forms = several(
        say("Form"), f"{key}forms", sorted({gpu.form for gpu in known}), lambda form: say(words.FORMS[form])
    )
    return lambda gpu: (not vendors or gpu.vendor in vendors) and (not forms or gpu.form in forms)
