"""One GPU as a bar: its parts against what it has. Drawn without a chart, so that it is there at once."""

from collections.abc import Iterable
from html import escape

import streamlit as st

from calc import Memory
from pages.parts import words
from pages.parts.words import say


def bar(memory: Memory, usable: int, parts: Iterable[str], *, labelled: bool = True) -> None:
    """The parts in their order, the range of the overhead hatched, and a line where the memory ends; below, what each
    colour is."""
    end = max(memory.high, usable)
    sizes = {name: size for name in parts if (size := getattr(memory, name))}
    cells = [cell(words.color(name), size / end) for name, size in sizes.items()]
    cells.append(cell(HATCHED, (memory.high - memory.total) / end))
    keys = [key(swatch(words.color(name)), words.part(name), size) for name, size in sizes.items()]
    keys.append(key("<b>|</b> ", say("Usable"), usable))
    ends = f'<i style="left:{100 * usable / end:.3f}%"></i>'
    draw([*cells, ends], alt_text(memory, usable), keys if labelled else ())


def draw(cells: Iterable[str], spoken: str, keys: Iterable[str]) -> None:
    """A bar of cells, with what a screen reader says of it; and its key below, where there is one."""
    named = "".join(keys)
    st.html(
        f'<div class="weighbridge-bar" role="img" aria-label="{escape(spoken, quote=True)}">{"".join(cells)}</div>'
        + (f'<div class="weighbridge-keys">{named}</div>' if named else "")
    )


HATCHED = "repeating-linear-gradient(45deg,#9EA3AC 0 2px,transparent 2px 6px)"


def cell(background: str, share: float) -> str:
    return f'<span style="width:{100 * share:.3f}%;background:{background}"></span>'


def key(mark: str, label: str, size: int) -> str:
    return f"<span>{mark}{escape(label)} <b>{words.gib(size)}</b></span>"


def swatch(color: str) -> str:
    return f'<em style="background:{color}"></em>'


def keys(entries: Iterable[tuple[str, str]]) -> str:
    """Colours with what they stand for."""
    cells = (f"<span>{swatch(color)}{escape(label)}</span>" for color, label in entries)
    return f'<div class="weighbridge-keys">{"".join(cells)}</div>'


def alt_text(memory: Memory, usable: int) -> str:
    """The bar for those who do not see it."""
    return say(
        "{total} needed on one GPU, at most {high}; {usable} are usable.",
        total=words.gib(memory.total),
        high=words.gib(memory.high),
        usable=words.gib(usable),
    )
