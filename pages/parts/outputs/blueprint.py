"""The model drawn from top to bottom, from token ids to logits: an SVG in which a click on a part shows its tensors
and the way to its line on paper.

Colours are the page's own where it has any (Streamlit's variables), else light or dark as the reader's system is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

import streamlit as st

from calc import Workload
from calc.model.architecture import Architecture
from calc.model.attention_shapes import made
from calc.model.counting import WHAT, local
from calc.model.diagram import Diagram, LayerKind, ModelPart, diagram
from calc.model.paper import ANCHORS, Anchor
from calc.model.tensor import Sides, Tensor
from pages.parts import words
from pages.parts.outputs import paper, scripts
from pages.parts.screen import caption, download, paragraph
from pages.parts.state import url
from pages.parts.state.query import ATTENTION
from pages.parts.state.weighed import Answer
from pages.parts.words import say

CLICKED = scripts.element("model_drawing", "drawing.js", isolate_styles=True)  # a style of the SVG's own
WIDE = 470
SPINE = 22  # where the hidden state runs down next to the modules of a layer
LEFT, RIGHT = 50, WIDE - 16  # of a layer's modules
MOST_CHIPS = 6  # matrices of one stage that are drawn
MOST_CELLS = 128  # layers that are drawn one by one
CACHED = words.COLORS["kv_cache"]
KINDS = ("#6F63C0", "#A9B93B", "#AA4141", "#B08D57", "#326A85", "#974984", "#8A6350", "#9EA3AC")
"""Colours of kinds of layers, in turn; no colours of components."""
STYLE = """
svg{--ink:var(--st-text-color,#31333F);--ground:var(--st-background-color,#fff);--chosen:var(--st-primary-color,#0072B2);
font-family:var(--st-font,system-ui,sans-serif)}
@media (prefers-color-scheme:dark){svg{--ink:var(--st-text-color,#FAFAFA);--ground:var(--st-background-color,#0E1117);
--chosen:var(--st-primary-color,#56B4E9)}}
text{fill:var(--ink);font-size:12.5px}.b{font-weight:600;font-size:14px}.s{font-size:11.5px}
.m{font-family:var(--st-code-font,ui-monospace,monospace);font-size:11px}
.flow{stroke:var(--ink);stroke-opacity:.55;stroke-width:1.6;fill:none}
.frame{fill:var(--ground);stroke:var(--ink);stroke-opacity:.4}
.head{fill:var(--ink);fill-opacity:.55}
.chip{fill:var(--ground);stroke:var(--ink);stroke-opacity:.3}
[data-part]{cursor:pointer;outline:none}[data-part]:hover>.edge,[data-part]:focus-visible>.edge{stroke:var(--chosen);stroke-width:2.6;stroke-opacity:1}
"""
Part = str
"""`embedding`, `0.attention` (of the first kind of layer), `head`."""


@st.fragment
def draw(answer: Answer) -> None:
    """The drawing; the part that was clicked opens next to it."""
    diagrammed = diagram(answer.architecture)
    svg = drawing(answer.architecture, diagrammed, answer.scenario.serving.workload, alt_text(answer, diagrammed))
    clicked = CLICKED(data={"svg": svg}, key="drawing", on_part_change=lambda: None).get("part")
    caption("Click a part for its tensors. Matrices are [out, in]; red is cached for each token.")
    file = f"{answer.model.name.replace('/', '--')}.svg"
    download(say("Drawing (SVG)"), "take_drawing", file, "image/svg+xml", svg)
    parts = parts_of(diagrammed)
    if clicked in parts:
        module = parts[clicked]
        title = words.part(clicked.partition(".")[2] if clicked.startswith("aside.") else module.component)
        layers = module.tensors[0].layers if clicked[:1].isdigit() else ()
        title = f"{title} · {words.layers(layers)}" if layers else title
        st.dialog(title, width="medium")(details)(answer, clicked, module)


def parts_of(diagrammed: Diagram) -> dict[Part, ModelPart]:
    """Each part that can be chosen, by its name in the drawing."""
    parts = {"embedding": diagrammed.embedding}
    parts |= {f"other.{number}": module for number, module in enumerate(diagrammed.others)}
    for number, kind in enumerate(diagrammed.kinds):
        parts |= {f"{number}.{module.component}": module for module in kind.modules}
    ends = {"norm": diagrammed.norm, "head": diagrammed.head}
    parts |= {name: module for name, module in ends.items() if module is not None}
    return parts | {f"aside.{why}": module for why, module in diagrammed.aside}


def alt_text(answer: Answer, diagrammed: Diagram) -> str:
    """The drawing in a sentence."""
    kinds = words.listed(
        f"{len(kind.block.runs_in):,} × {words.layers(kind.block.runs_in)}" for kind in diagrammed.kinds
    )
    return say(
        "{name} from token ids to logits: embedding; {kinds}; final norm and output head",
        name=answer.model.name,
        kinds=kinds,
    )


def details(answer: Answer, name: Part, module: ModelPart) -> None:
    """The tensors of a part, and the way to its line on paper."""
    if module.component in WHAT:
        paragraph(WHAT[module.component])
    everywhere = sum(tensor.parameters for tensor in module.tensors)
    total = answer.architecture.parameters().total
    if name[:1].isdigit():
        paragraph(
            "**{per_layer:,}** parameters in one layer, **{all:,}** in all: {share} of the model.",
            per_layer=module.parameters,
            all=everywhere,
            share=words.percent(everywhere / total),
        )
    else:
        paragraph(
            "**{all:,}** parameters: {share} of the model.", all=everywhere, share=words.percent(everywhere / total)
        )
    rows = [
        [f"`{local(tensor.name)}`", f"{tensor.parameters:,}", words.shape(tensor.shape), f"{tensor.count:,}"]
        for tensor in module.tensors
    ]
    head = [say("Tensor"), say("Parameters"), say("Shape"), say("Count")]
    st.markdown(paper.SIDEWAYS.format(table=words.table(head, rows)), unsafe_allow_html=True)
    paper.link(answer, anchor_of(name, module))
    if module.component in ("attention", "ssm_linear"):
        url.way(answer.scenario, ATTENTION, say("Heads, shapes and scores"))


def anchor_of(name: Part, module: ModelPart) -> Anchor:
    """Place of a part on paper."""
    if name in ("norm", "head"):
        return "output"
    if name.startswith("aside."):
        return "parameters"
    return next((anchor for anchor in ANCHORS if anchor == module.component), "layers")


@dataclass
class Canvas:
    """Shapes of a model under a workload, from top to bottom."""

    architecture: Architecture
    workload: Workload
    y: float = 4
    shapes: list[str] = field(default_factory=list)

    def shape(self, *last: tuple[str, int]) -> str:
        """Shape of a tensor of all tokens, in symbols and in numbers."""
        return shape_of(*self.tokens, *last)

    @property
    def tokens(self) -> Sides:
        return ("B", self.workload.batch), ("L", self.workload.context)

    @property
    def state(self) -> str:
        return self.shape(("h", self.architecture.hidden))

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(text, quote=False)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, look: str) -> None:
        self.shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" {look}/>')

    def path(self, line: str, look: str = "") -> None:
        self.shapes.append(f'<path d="{line}" class="flow" {look}/>')

    def arrow(self, x: float, length: float, label: str = "") -> None:
        """Down, with what flows."""
        self.path(f"M{x:g} {self.y:g}V{self.y + length - 5:g}")
        head = self.y + length
        self.shapes.append(f'<path d="M{x - 4:g} {head - 7:g}h8l-4 7z" class="head"/>')
        if label:
            self.text(x + 9, self.y + length / 2 + 4, label, "s")
        self.y += length

    def begin(self, part: Part, spoken: str, x: float, right: float, height: float, look: str, color: str) -> None:
        """A part that can be chosen: a box with an edge of its colour on the left."""
        label, edge = escape(spoken, quote=True), 6 if x == 0 else 5
        self.shapes.append(
            f'<g data-part="{escape(part, quote=True)}" role="button" tabindex="0" aria-label="{label}">'
            f"<title>{escape(spoken, quote=False)}</title>"
        )
        self.box(x, self.y, right - x, height, look)
        self.box(x, self.y, edge, height, f'fill="{color}"')

    def end(self) -> None:
        self.shapes.append("</g>")


def drawing(architecture: Architecture, shown: Diagram, workload: Workload, label: str) -> str:
    """The whole model. `label` says what it shows to those who do not see it."""
    canvas, center = Canvas(architecture, workload), WIDE / 2
    state, tokens = canvas.state, say("token ids [B, L] = {shape}", shape=numbers_of(*canvas.tokens))
    outside(canvas, "embedding", say("Embedding"), shown.embedding, tokens)
    top = canvas.y - 22
    canvas.arrow(center, 26, state)
    for number, module in enumerate(shown.others):
        outside(canvas, f"other.{number}", words.part(module.component), module, "")
        canvas.arrow(center, 18)
    order(canvas, shown)
    for number, kind in enumerate(shown.kinds):
        layer(canvas, kind, number)
        canvas.arrow(center, 24, state)
    if shown.norm is not None:
        outside(canvas, "norm", say("Final norm"), shown.norm, "")
        canvas.arrow(center, 24, state)
    if shown.head is None:
        tied(canvas, top)
    else:
        outside(canvas, "head", say("Output head"), shown.head, "")
    canvas.arrow(center, 24)
    canvas.text(
        center, canvas.y + 14, say("logits {shape}", shape=canvas.shape(("V", architecture.vocab))), "s", "middle"
    )
    canvas.y += 26
    for why, module in shown.aside:
        canvas.y += 6
        outside(canvas, f"aside.{why}", words.part(why), module, say("not in total"), dashed=True)
    height = canvas.y + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {WIDE + 14:g} {height:g}" role="group" '
        f'aria-label="{escape(label, quote=True)}" style="display:block;width:100%;max-width:560px;height:auto">'
        f"<style>{STYLE}</style>{''.join(canvas.shapes)}</svg>"
    )


def shape_of(*sides: tuple[str, int]) -> str:
    """Shape in symbols and in numbers."""
    return f"[{', '.join(symbol for symbol, _ in sides)}] = {numbers_of(*sides)}"


def numbers_of(*sides: tuple[str, int]) -> str:
    return f"[{', '.join(f'{size:,}' for _, size in sides)}]"


def outside(canvas: Canvas, part: Part, title: str, module: ModelPart, note: str, *, dashed: bool = False) -> None:
    """A module that no layer holds."""
    count = words.count(module.parameters if not dashed else sum(tensor.parameters for tensor in module.tensors))
    shapes = [words.shape(tensor.shape) for tensor in module.tensors]
    look = 'class="edge frame" stroke-dasharray="5 4"' if dashed else 'class="edge frame" '
    spoken = say("{part}: {count} parameters", part=title, count=count)
    canvas.begin(part, spoken, 0, WIDE, 42, look, words.color(module.component))
    canvas.text(16, canvas.y + 18, title, "b")
    canvas.text(WIDE - 10, canvas.y + 18, count, "", "end")
    canvas.text(16, canvas.y + 34, shapes[0] if len(shapes) == 1 and not dashed else "", "m")
    canvas.text(WIDE - 10, canvas.y + 34, note, "s", "end")
    canvas.end()
    canvas.y += 42


def tied(canvas: Canvas, top: float) -> None:
    """The embedding again, with a line to it."""
    spoken, look = say("Output head: the embedding again, stored once"), 'class="edge frame" stroke-dasharray="5 4"'
    canvas.begin("embedding", spoken, 0, WIDE, 42, look, words.color("embedding"))
    canvas.text(16, canvas.y + 18, say("Output head"), "b")
    canvas.text(16, canvas.y + 34, words.shape((canvas.architecture.vocab, canvas.architecture.hidden)), "m")
    canvas.text(WIDE - 10, canvas.y + 34, say("the embedding again (tied): stored once"), "s", "end")
    canvas.end()
    canvas.path(f"M{WIDE:g} {top:g}h9V{canvas.y + 21:g}h-9", 'stroke-dasharray="5 4"')
    canvas.y += 42


def order(canvas: Canvas, shown: Diagram) -> None:
    """Kind of each layer, one cell a layer."""
    number = canvas.architecture.num_layers
    if len(shown.kinds) < 2 or number > MOST_CELLS:
        return
    step = WIDE / number
    gap = min(2.0, step / 5)
    for i, kind in enumerate(shown.kinds):
        for place in kind.block.runs_in:
            x, color = place * step, KINDS[i % len(KINDS)]
            canvas.shapes.append(
                f'<rect x="{x:.2f}" y="{canvas.y:g}" width="{step - gap:.2f}" height="12" rx="1" fill="{color}"/>'
            )
    canvas.y += 12
    canvas.arrow(WIDE / 2, 18)


def layer(canvas: Canvas, kind: LayerKind, number: int) -> None:
    """Layers that are alike: the state runs down on the left, each half reads it and is added to it."""
    where, first = len(canvas.shapes), canvas.y
    runs = kind.block.runs_in
    canvas.text(SPINE + 2, canvas.y + 20, words.capitalized(words.layers(runs)), "b")
    size = words.count(sum(module.parameters for module in kind.modules))
    stored_size = say("stored once, {size}", size=size) if kind.shared else say("{size} each", size=size)
    canvas.text(RIGHT, canvas.y + 20, f"× {len(runs):,} · {stored_size}", "", "end")
    canvas.y += 30
    spine = canvas.y
    halves = [kind.mixers, kind.feeding]
    for half in [(*kind.mixers, *kind.feeding)] if kind.parallel else [half for half in halves if half]:
        branch(canvas, kind, number, half)
    bottom = canvas.y + 6
    canvas.path(f"M{SPINE:g} {spine:g}V{bottom:g}")
    high = f'height="{bottom - first:g}"'
    frames = [
        f'<rect x="{shift:g}" y="{first + shift:g}" width="{WIDE:g}" {high} rx="5" class="frame"/>'
        for shift in ((8, 4, 0) if len(runs) > 1 else (0,))
    ]
    edge = f'<rect x="0" y="{first:g}" width="6" {high} rx="3" fill="{KINDS[number % len(KINDS)]}"/>'
    canvas.shapes[where:where] = [*frames, edge]
    canvas.y = bottom + (8 if len(runs) > 1 else 0)


def branch(canvas: Canvas, kind: LayerKind, number: int, half: Iterable[ModelPart]) -> None:
    """Modules that read the state and add their result to it."""
    middle = (LEFT + RIGHT) / 2
    canvas.path(f"M{SPINE:g} {canvas.y:g}H{middle:g}")
    canvas.arrow(middle, 22, canvas.state)
    if kind.norms_before:
        norm(canvas, kind, number)
        canvas.arrow(middle, 14)
    before = None
    for drawn in half:
        if before is not None and before.component == "router":
            canvas.arrow(middle, 14)
        elif before is not None:
            canvas.text(middle, canvas.y + 13, "+", "b", "middle")
            canvas.y += 19
        module(canvas, kind, drawn, f"{number}.{drawn.component}")
        before = drawn
    if kind.norms_behind:
        canvas.arrow(middle, 14)
        norm(canvas, kind, number)
    canvas.path(f"M{middle:g} {canvas.y:g}v12H{SPINE + 8:g}")
    canvas.y += 12
    canvas.shapes.append(
        f'<circle cx="{SPINE:g}" cy="{canvas.y:g}" r="8" class="frame"/>'
        f'<path d="M{SPINE - 4:g} {canvas.y:g}h8M{SPINE:g} {canvas.y - 4:g}v8" class="flow"/>'
    )
    canvas.y += 12


def norm(canvas: Canvas, kind: LayerKind, number: int) -> None:
    """One norm of a layer, which is chosen with all of them."""
    if kind.norms is None:
        return
    title = say("LayerNorm") if kind.block.norm == "layer" else say("RMSNorm")
    if kind.parallel and len(kind.block.norms) > 1:  # Falcon 40B and 180B, GPT-NeoX
        title = say("{norm}, one for each branch", norm=title)
    canvas.begin(f"{number}.norms", title, LEFT, RIGHT, 20, 'class="edge chip"', words.color("norms"))
    canvas.text(LEFT + 14, canvas.y + 14, title, "s")
    canvas.text(RIGHT - 8, canvas.y + 14, words.shape(kind.norms.tensors[0].shape), "m", "end")
    canvas.end()
    canvas.y += 20


def module(canvas: Canvas, kind: LayerKind, drawn: ModelPart, part: Part) -> None:
    """Matrices as the data meets them, and the tensors that flow between."""
    title = title_of(kind, drawn)
    where, first = len(canvas.shapes), canvas.y
    color, size = words.color(drawn.component), words.count(drawn.parameters)
    canvas.text(LEFT + 14, canvas.y + 18, title, "b")
    canvas.text(RIGHT - 8, canvas.y + 18, size, "", "end")
    canvas.y += 26
    stages = drawn.stages(canvas.architecture.hidden)
    for number, stage in enumerate(stages):
        if number == len(stages) - 1 and number:
            made_between(canvas, kind, drawn)
        chips(canvas, drawn, stage)
    if len(stages) < 2:
        made_between(canvas, kind, drawn)
    canvas.y += 4
    height = canvas.y - first
    begun, spoken = (
        Canvas(canvas.architecture, canvas.workload, first),
        say("{part}: {count} parameters", part=title, count=size),
    )
    look = f'class="edge" fill="{color}" fill-opacity=".14" stroke="{color}"'
    begun.begin(part, spoken, LEFT, RIGHT, height, look, color)
    canvas.shapes[where:where] = begun.shapes
    canvas.end()


def title_of(kind: LayerKind, drawn: ModelPart) -> str:
    """The title of a module, with the sizes that make it."""
    mixers = [mixer for mixer in kind.block.mixers if mixer.component == drawn.component]
    if mixers:
        return words.listed(dict.fromkeys(say(mixer.title()) for mixer in mixers))
    moe = kind.block.moe
    if moe is not None and drawn.component == "experts_routed":
        return say("{n:,} routed experts, {k:,} for each token", n=moe.n_experts, k=moe.top_k)
    return words.part(drawn.component)


def chips(canvas: Canvas, drawn: ModelPart, stage: tuple[Tensor, ...]) -> None:
    """Matrices side by side: name, and shape as [out, in]."""
    shown, gap = stage[:MOST_CHIPS], 6
    inner = RIGHT - LEFT - 22
    for begin in range(0, len(shown), 3):
        row = shown[begin : begin + 3]
        width = (inner - gap * (len(row) - 1)) / len(row)
        for i, tensor in enumerate(row):
            x = LEFT + 14 + i * (width + gap)
            canvas.box(x, canvas.y, width, 34, 'class="chip"')
            canvas.text(
                x + 6, canvas.y + 14, clipped(tensor.name.removesuffix(".weight").rpartition(".")[2], width - 10), "m"
            )
            canvas.text(x + 6, canvas.y + 28, clipped(words.shape(drawn.expert_shape(tensor)), width - 10), "m")
        canvas.y += 40
    if len(stage) > len(shown):
        canvas.text(LEFT + 14, canvas.y + 10, say("and {n:,} more", n=len(stage) - len(shown)), "s")
        canvas.y += 18


def clipped(text: str, width: float) -> str:
    """Part of a name that fits."""
    most = int(width / 6.7)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def made_between(canvas: Canvas, kind: LayerKind, drawn: ModelPart) -> None:
    """Tensors that a module makes on the way, and which of them are cached."""
    workload, ffn = canvas.workload, kind.block.ffn
    for mixer in kind.block.mixers:
        if mixer.component == drawn.component:
            for tensor in made(mixer, canvas.architecture.hidden, workload.batch, workload.context)[1:-1]:
                flowing(canvas, say(tensor.name), tensor.sides, cached=tensor.cached)
    if ffn is not None and (width := ffn.inner_sides(drawn.component)):
        flowing(canvas, say("Inner activations"), (*canvas.tokens, *width), cached=False)


def flowing(canvas: Canvas, name: str, sides: Sides, *, cached: bool) -> None:
    """One tensor: its name, that it is cached, and its shape, in symbols too where there is room."""
    if cached:
        canvas.box(LEFT + 14, canvas.y, RIGHT - LEFT - 22, 17, f'fill="{CACHED}" fill-opacity=".35"')
        name = say("{tensor}: cached", tensor=name)
    room = RIGHT - LEFT - 44 - sum(12 if ord(letter) > 0x2E80 else 6.4 for letter in name)
    shape = shape_of(*sides)
    canvas.text(LEFT + 18, canvas.y + 12.5, name, "s")
    canvas.text(RIGHT - 12, canvas.y + 12.5, shape if len(shape) * 6.7 <= room else numbers_of(*sides), "m", "end")
    canvas.y += 20
