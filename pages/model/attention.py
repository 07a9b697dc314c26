"""Attention of a model: its layers, who reads what, the tensors with their shapes, and what other kinds would cost."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import streamlit as st

from calc import Architecture, ConfigError, Layout, Overhead
from calc.hardware import GPU, find_gpu, runs
from calc.model.attention_shapes import group, kinds, made
from calc.model.mixers import Mixer
from calc.serving import Serving
from calc.serving.comparison import scores as bytes_of_scores
from calc.serving.comparison import variants as with_other_kinds
from calc.serving.engines import ENGINES
from calc.time import user_rate
from pages.parts import words
from pages.parts.inputs import serving
from pages.parts.outputs import cards, frame, paper
from pages.parts.outputs.bar import keys
from pages.parts.screen import caption, heading, paragraph, small_table
from pages.parts.state.query import ATTENTION
from pages.parts.state.weighed import Answer, attended, weighed
from pages.parts.words import say


def title(mixer: Mixer) -> str:
    return say(mixer.title())


def layers(number: int, mixers: dict[Mixer, tuple[int, ...]]) -> None:
    """Kind of each layer."""
    description = words.listed(
        say("{kind}: {layers}", kind=title(mixer), layers=words.layers(where)) for mixer, where in mixers.items()
    )
    label = say("{n:,} layers. {description}", n=number, description=description)
    lines = (
        say(
            "{kind}: one layer ({layers})",
            plural="{kind}: {n:,} layers ({layers})",
            n=len(where),
            kind=title(mixer),
            layers=words.layers(where),
        )
        for mixer, where in mixers.items()
    )
    st.html(layers_drawing(mixers, number, label) + keys((hue(i), text) for i, text in enumerate(lines)))


def heads(answer: Answer, mixer: Mixer) -> None:
    """Readers of KV heads, and their tokens."""
    if not mixer.score_heads:
        return
    left, right = st.columns([3, 1])
    with left:
        paragraph("**Query heads (above) and what they read (below)**")
        st.html(heads_drawing(mixer))
        caption(mixer.readers())
    with right:
        paragraph("**Tokens that each query sees**")
        st.html(seen_drawing(mixer, answer.scenario.serving.workload.context, sight(answer, mixer)))
        st.caption(sight(answer, mixer))


def sight(answer: Answer, mixer: Mixer) -> str:
    """A sentence on how far a query looks back."""
    context = answer.scenario.serving.workload.context
    if mixer.sees_ahead:
        return say(
            "A row for each query, a column for each key: {window:,} of {context:,} tokens, on both sides.",
            window=min(mixer.window or context, context),
            context=context,
        )
    if mixer.window is None:
        return say("A row for each query, a column for each key: all {context:,} tokens so far.", context=context)
    return say(
        "A row for each query, a column for each key: the last {window:,} of {context:,} tokens.",
        window=min(mixer.window, context),
        context=context,
    )


def shapes(answer: Answer, mixer: Mixer) -> None:
    """The tensors of one layer, and whether its heads together are as wide as the state."""
    workload, hidden = answer.scenario.serving.workload, answer.architecture.hidden
    rows = [
        [
            say("{tensor} (cached)", tensor=tensor.name) if tensor.cached else say(tensor.name),
            f"`{tensor.symbols}`",
            f"`[{', '.join(map(str, tensor.shape))}]`",
        ]
        for tensor in made(mixer, hidden, workload.batch, workload.context)
    ]
    paragraph("**Shapes in one layer, with the whole context in one pass**")
    small_table([say("Tensor"), say("Shape"), say("With values")], rows, numbers=0)
    if mixer.head_width is None:
        return
    wide = mixer.score_heads * mixer.head_width
    values: dict[str, Any] = {"n_q": mixer.score_heads, "d_head": mixer.head_width, "wide": wide, "hidden": hidden}
    if wide == hidden:
        caption("{n_q:,} heads × {d_head:,} = {wide:,}: the hidden size.", **values)
    else:
        caption(
            "{n_q:,} heads × {d_head:,} = {wide:,}, not the hidden size of {hidden:,}: `head_dim` is a field of its "
            "own.",
            **values,
        )


def scores(answer: Answer, mixer: Mixer) -> None:
    """Memory of the score matrix, with eager and with flash attention."""
    workload = answer.scenario.serving.workload
    score_bytes = bytes_of_scores(mixer, answer.architecture.kernels, workload.batch, workload.context)
    if score_bytes is None:
        return
    paragraph("**The score matrix of one layer**")
    with st.grid(3, min_column_width=150, gap="xsmall"):
        st.metric(say("Score matrix in 16 bits"), words.size(score_bytes.matrix))
        st.metric(say("Eager attention at its softmax"), words.size(score_bytes.eager))
        st.metric(say("FlashAttention"), words.size(score_bytes.flash))
    caption(
        "Eager attention writes all scores out, with copies in fp32 where the model asks for it, a window or not. "
        "FlashAttention ([arXiv:2205.14135](https://arxiv.org/abs/2205.14135)) computes them tile by tile and "
        "keeps one fp32 number for each query and head. Both grow with the batch and the heads; the matrix with "
        "the square of the length."
    )


def variants(answer: Answer) -> None:
    """Parameters and cache with other numbers of KV heads."""
    choice = answer.scenario.serving
    if answer.architecture.encodes:
        caption("Each token sees the whole text: nothing is cached that heads could share.")
        return
    alternatives = with_other_kinds(
        answer.architecture, choice.started(), answer.model.precision(choice).kv, choice.workload
    )
    if not alternatives:
        caption("This model has no heads of keys and values that could be shared.")
        return
    served = weighed(answer.scenario)  # as in the summary above
    focus = served.focus if served.error is None else None
    gpu = answer.scenario.first_gpu() if focus is None else find_gpu(focus.gpu)
    rows = []
    for variant in alternatives:
        label = say(variant.name)
        rows.append(
            [
                say("**{kind}** (this model)", kind=label) if variant.own else label,
                f"{100 * variant.saved:.4g}%" if variant.saved else "–",
                words.size(variant.cache),
                words.size(variant.bytes_per_token),
                words.count(variant.parameters),
                decode_time(answer, variant.architecture, gpu),
            ]
        )
    head = [say("Kind"), say("Saved"), say("KV cache, total"), say("KV cache per token"), say("Parameters")]
    small_table([*head, say("Decode step")], rows, numbers=5)
    caption(
        "Decode step: the expected time of one token of each sequence on one {gpu}, as if its memory were enough.",
        gpu=gpu.name,
    )
    caption(
        "Saved: of the cache that MHA takes. GQA-8 has 8 KV heads. Where the model has no MLA, it is in "
        "DeepSeek-V2's proportions: a latent of four head widths and a rotary key of half of one. The cache is "
        "that of one sequence of {context:,} tokens.",
        plural="Saved: of the cache that MHA takes. GQA-8 has 8 KV heads. Where the model has no MLA, it is in "
        "DeepSeek-V2's proportions: a latent of four head widths and a rotary key of half of one. The cache is "
        "that of {n:,} sequences of {context:,} tokens.",
        n=choice.workload.batch,
        context=choice.workload.context,
    )


def decode_time(answer: Answer, architecture: Architecture, gpu: GPU) -> str:
    """One step of all sequences on one such GPU."""
    choice = answer.scenario.serving
    if architecture.pooled or not runs(gpu, ENGINES[choice.engine].support):
        return "–"
    try:
        laid_out = Serving.of(architecture, choice.started(), answer.model.precision(choice), Layout(), Overhead())
        rate = user_rate(laid_out, gpu, choice.workload, answer.scenario.cluster)
    except ConfigError:
        return "–"
    return words.duration(1000 / rate)


# Drawings, SVG without text of its own: words stand next to it, so that they can be read on a telephone, and each
# drawing says in its label what it shows. The colours are seen on light and on dark.

# hues of groups of heads and of kinds of layers, in turn
HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#6F63C0", "#A9B93B")
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


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" rx="3" fill="{fill}" />'


def layers_drawing(mixers: dict[Mixer, tuple[int, ...]], number: int, label: str) -> str:
    """One column a layer, in the colours of its mixers."""
    step = WIDE / number
    gap = min(3.0, step / 6)
    shapes = []
    for layer in range(number):
        own = [hue(i) for i, where in enumerate(mixers.values()) if layer in where]
        for part, color in enumerate(own):
            shapes.append(box(layer * step, 40 * part / len(own), step - gap, 40 / len(own) - (len(own) > 1), color))
    return drawn(shapes, 40, label)


def heads_drawing(mixer: Mixer) -> str:
    """Query heads above, what they read below, and who reads what."""
    step = WIDE / mixer.score_heads
    gap, width = min(4.0, step / 6), min(3.0, max(0.8, step / 12))
    wide = WIDE / mixer.cached_heads
    shapes = []
    for head in range(mixer.score_heads):
        x, kv = (head + 0.5) * step, group(mixer, head)
        read = 250 + x / 2 if mixer.shared_parts else (kv + 0.5) * wide
        shapes.append(
            f'<line x1="{x:.2f}" y1="36.00" x2="{read:.2f}" y2="124.00" stroke="{hue(kv)}" '
            f'stroke-width="{width:g}" stroke-opacity="0.75"/>'
        )
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


def seen_drawing(mixer: Mixer, length: int, label: str) -> str:
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


answer = frame.page(ATTENTION, attended, serving.cache_format)
cards.summary(answer)
mixers = kinds(answer.architecture.all_blocks)
layers(answer.architecture.num_layers, mixers)
for tab, mixer in zip(st.tabs([title(mixer) for mixer in mixers]), mixers, strict=True):
    with tab:
        st.markdown("\n\n".join(say(text) for text in mixer.about()))
        heads(answer, mixer)
        shapes(answer, mixer)
        scores(answer, mixer)

heading("The same model with other kinds of attention")
variants(answer)
paper.link(answer, "kv_cache_per_token")
