"""Drawings of attention: which layer has which kind, which query head reads which KV head, which tokens are seen.

SVG without text of its own: words stand beside it, so that they can be read on a telephone, and each drawing says in
its label what it shows. The colours are seen on light and on dark.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from calc.model.attention import GQA
from calc.model.attention_shapes import group
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
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
    if isinstance(mixer, Recurrent):
        return ""
    step = WIDE / mixer.n_q
    gap, width = min(4.0, step / 6), min(3.0, max(0.8, step / 12))
    if isinstance(mixer, GQA):
        wide = WIDE / mixer.n_kv
        colors = [hue(kv) for kv in range(mixer.n_kv)]
        shapes = []
        for head in range(mixer.n_q):
            kv = group(mixer, head)
            shapes.append(line((head + 0.5) * step, 36, (kv + 0.5) * wide, 124, colors[kv], width))
            shapes.append(box(head * step + gap / 2, 0, step - gap, 36, colors[kv]))
        margin = min(wide / 12, 8)
        for kv, color in enumerate(colors):
            shapes += [box(kv * wide + margin, y, wide - 2 * margin, 30, color) for y in (124, 158)]
        return drawn(shapes, 188, sentence(mixer))
    shapes = []
    for head in range(mixer.n_q):
        x = (head + 0.5) * step
        shapes.append(line(x, 36, 250 + x / 2, 124, hue(0), width))
        shapes.append(box(head * step + gap / 2, 0, step - gap, 36, hue(0)))
    if isinstance(mixer, LatentAttention):
        share = 600 * mixer.kv_rank / (mixer.kv_rank + mixer.d_rope)
        shapes.append(box(200, 124, share - 4, 64, hue(1)))
        if mixer.d_rope:
            shapes.append(box(200 + share, 124, 600 - share, 64, hue(2)))
    else:
        shapes.append(box(200, 124, 600, 64, hue(1)))
    return drawn(shapes, 188, sentence(mixer))


def sentence(mixer: Mixer) -> str:
    """Who reads what, in a sentence."""
    if isinstance(mixer, GQA):
        shared, last = mixer.n_q // mixer.n_kv, mixer.n_q // mixer.n_kv - 1
        if mixer.n_kv == 1:
            return say("All {n_q:,} query heads read the one KV head.", n_q=mixer.n_q)
        if shared == 1:
            return say("Each of the {n_q:,} query heads reads a KV head of its own.", n_q=mixer.n_q)
        return say(
            "{n_q:,} query heads read {n_kv:,} KV heads, {shared:,} each: query heads 0 to {last:,} read KV head 0, "
            "and so on.",
            n_q=mixer.n_q,
            n_kv=mixer.n_kv,
            shared=shared,
            last=last,
        )
    if isinstance(mixer, LatentAttention):
        return say(
            "All {n_q:,} query heads read one latent of {latent:,} channels and one rotary key of {rope:,}; each makes "
            "its own keys and values of the latent.",
            n_q=mixer.n_q,
            latent=mixer.kv_rank,
            rope=mixer.d_rope,
        )
    if isinstance(mixer, CompressedAttention):
        return say(
            "All {n_q:,} query heads read one vector of {width:,} channels, key and value at once.",
            n_q=mixer.n_q,
            width=mixer.d_head,
        )
    return say("No heads of keys and values: the layer keeps a state of fixed size.")


def seen(mixer: Mixer, length: int, label: str) -> str:
    """Which tokens a query sees: a row a query, a column a key, in as many cells as can be told apart."""
    if isinstance(mixer, Recurrent):
        return ""
    window = CELLS if mixer.window is None else max(1, round(CELLS * min(1.0, mixer.window / length)))
    cell = 10
    edge = '<rect x="0" y="0" width="240" height="240" fill="none" stroke="#808080" stroke-opacity="0.5"/>'
    shapes = [edge]
    for query in range(CELLS):
        for key in range(query + 1):
            if query - key < window:
                shapes.append(box(key * cell, query * cell, cell - 1, cell - 1, hue(0)))
            elif isinstance(mixer, CompressedAttention) and mixer.rate is not None and key % 2 == 0:
                shapes.append(box(key * cell, query * cell, cell - 1, cell - 1, hue(1)))
    return drawn(shapes, CELLS * cell, label, width=CELLS * cell, most=220)
