"""Drawings of attention: which layer has which kind, which query head reads which KV head, which tokens are seen.

SVG without text of its own: words stand next to it, so that they can be read on a telephone, and each drawing says in
its label what it shows. The colours are seen on light and on dark.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape

from calc.model.attention_shapes import group
from calc.model.mixers import Mixer
from pages.parts.words import say

HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#6F63C0", "#A9B93B")
"""Hues of groups of heads and of kinds of layers, in turn."""
WIDE = 1000
CELLS = 24  # tokens of the drawing of what is seen


def hue(number: int) -> str:
    return HUES[number % len(HUES)]


def drawn(shapes: Sequence[str], height: float, label: str, width: float = WIDE, most: int = 1000) -> str:
    """An SVG as wide as its place, as an image: a page lets no SVG through among its HTML."""
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">{"".join(shapes)}</svg>'
    return (
        f'<img src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}" alt="{escape(label, quote=True)}" '
        f'style="display:block;width:100%;max-width:{most}px;height:auto">'
    )


def box(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" rx="3" fill="{fill}" {more}/>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, width: float) -> str:
    return (
        f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{stroke}" '
        f'stroke-width="{width:g}" stroke-opacity="0.75"/>'
    )


def layers(kinds: dict[Mixer, tuple[int, ...]], number: int, label: str) -> str:
    """One column a layer, in the colours of its mixers."""
    step = WIDE / number
    gap = min(3.0, step / 6)
    shapes = []
    for layer in range(number):
        own = [hue(i) for i, where in enumerate(kinds.values()) if layer in where]
        for part, color in enumerate(own):
            shapes.append(box(layer * step, 40 * part / len(own), step - gap, 40 / len(own) - (len(own) > 1), color))
    return drawn(shapes, 40, label)


def heads(mixer: Mixer) -> str:
    """Query heads above, what they read below, and who reads what."""
    step = WIDE / mixer.score_heads
    gap, width = min(4.0, step / 6), min(3.0, max(0.8, step / 12))
    wide = WIDE / mixer.cached_heads
    shapes = []
    for head in range(mixer.score_heads):
        x, kv = (head + 0.5) * step, group(mixer, head)
        read = 250 + x / 2 if mixer.shared_parts else (kv + 0.5) * wide
        shapes.append(line(x, 36, read, 124, hue(kv), width))
        shapes.append(box(head * step + gap / 2, 0, step - gap, 36, hue(kv)))
    return drawn([*shapes, *cached(mixer, wide)], 188, say(mixer.readers()))


def cached(mixer: Mixer, wide: float) -> Iterator[str]:
    """The parts of one vector that all heads read, or a key and a value for each KV head."""
    parts = mixer.shared_parts
    for part in range(len(parts)):
        x, width = 600 * sum(parts[:part]) / sum(parts), 600 * parts[part] / sum(parts)
        yield box(200 + x, 124, width - 4 * (part < len(parts) - 1), 64, hue(part + 1))
    margin = min(wide / 12, 8)
    for kv in range(0 if parts else mixer.cached_heads):
        for y in (124, 158):
            yield box(kv * wide + margin, y, wide - 2 * margin, 30, hue(kv))


def seen(mixer: Mixer, length: int, label: str) -> str:
    """Tokens that a query sees: a row a query, a column a key, in as many cells as can be told apart."""
    reach = mixer.window if mixer.window is None or not mixer.sees_ahead else mixer.window // 2  # on each side
    window = CELLS if reach is None else max(1, round(CELLS * min(1.0, reach / length)))
    cell = 10
    edge = '<rect x="0" y="0" width="240" height="240" fill="none" stroke="#808080" stroke-opacity="0.5"/>'
    shapes = [edge]
    for query in range(CELLS):
        for key in range(CELLS if mixer.sees_ahead else query + 1):
            if abs(query - key) < window:
                shapes.append(box(key * cell, query * cell, cell - 1, cell - 1, hue(0)))
            elif mixer.compressed_elements() and key % 2 == 0:
                shapes.append(box(key * cell, query * cell, cell - 1, cell - 1, hue(1)))
    return drawn(shapes, CELLS * cell, label, width=CELLS * cell, most=220)
