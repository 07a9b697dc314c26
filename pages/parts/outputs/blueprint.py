"""The drawing of the model on a page: a click on a part shows its tensors and the way to its line on paper."""

import streamlit as st

from calc.model.counting import WHAT, local
from calc.model.diagram import Diagram, ModelPart, diagram
from calc.model.paper import ANCHORS, Anchor
from pages.parts import words
from pages.parts.outputs import model_drawing as drawing
from pages.parts.outputs import paper, scripts
from pages.parts.screen import caption, download, paragraph
from pages.parts.state import url
from pages.parts.state.query import ATTENTION, DESIGN
from pages.parts.state.weighed import Answer
from pages.parts.words import say

CLICKED = scripts.element("model_drawing", "drawing.js", isolate_styles=True)  # a style of the SVG's own


@st.fragment
def draw(answer: Answer) -> None:
    """The drawing; the part that was clicked opens next to it."""
    diagrammed = diagram(answer.architecture)
    svg = drawing.drawing(
        answer.architecture, diagrammed, answer.scenario.serving.workload, alt_text(answer, diagrammed)
    )
    clicked = CLICKED(data={"svg": svg}, key="drawing", on_part_change=lambda: None).get("part")
    caption("Click a part for its tensors. Matrices are [out, in]; red is cached for each token.")
    file = f"{answer.model.name.replace('/', '--')}.svg"
    download(say("Drawing (SVG)"), "take_drawing", file, "image/svg+xml", svg)
    parts = parts_of(diagrammed)
    if clicked in parts:
        module = parts[clicked]
        st.dialog(heading(clicked, module), width="medium")(details)(answer, clicked, module)


def way(answer: Answer) -> None:
    """The way to the drawing."""
    url.way(answer.scenario, DESIGN, say("Drawing and checks of the design"))


def parts_of(diagrammed: Diagram) -> dict[drawing.Part, ModelPart]:
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


def heading(name: drawing.Part, module: ModelPart) -> str:
    """A part, and the layers that hold it."""
    title = words.part(name.partition(".")[2] if name.startswith("aside.") else module.component)
    layers = module.tensors[0].layers if name[:1].isdigit() else ()
    return f"{title} · {words.layers(layers)}" if layers else title


def details(answer: Answer, name: drawing.Part, module: ModelPart) -> None:
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


def anchor_of(name: drawing.Part, module: ModelPart) -> Anchor:
    """Place of a part on paper."""
    if name in ("norm", "head"):
        return "output"
    if name.startswith("aside."):
        return "parameters"
    return next((anchor for anchor in ANCHORS if anchor == module.component), "layers")
