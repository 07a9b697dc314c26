"""The picture of an answer: a weighbridge with the memory that one GPU must hold on one side, and the GPU on the other.
It tips to the heavier."""

from calc.hardware import find_gpu
from pages.parts import words
from pages.parts.inputs.lists import short_name
from pages.parts.outputs import scripts
from pages.parts.outputs.bar import alt_text
from pages.parts.outputs.cards import BADGES
from pages.parts.outputs.findings import Load
from pages.parts.words import say

SCALE = scripts.element("weighbridge_scale", "scale.js")


def draw(weight: Load) -> None:
    """Parts as shares of the heavier side, in the order and the colours of the bar."""
    memory, focus = weight.memory, weight.focus
    heavier = max(memory.total, focus.usable)
    _, color, _ = BADGES[focus.verdict]
    SCALE(
        key="scale",
        data={
            "label": alt_text(memory, focus.usable),
            "parts": [
                [words.color(part), round(size / heavier, 4)]
                for part in weight.parts
                if (size := getattr(memory, part))
            ],
            "gpu": round(focus.usable / heavier, 4),
            "needed": words.gib(memory.total),
            "usable": words.gib(focus.usable),
            "left": say("needed per GPU"),
            "right": short_name(find_gpu(focus.gpu)),
            "color": color,
        },
        width=320,
    )
