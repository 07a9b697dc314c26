import streamlit as st

from calc.model.attention_shapes import kinds
from pages.parts.inputs import serving
from pages.parts.outputs import attention, cards, frame, paper
from pages.parts.screen import heading
from pages.parts.state.query import ATTENTION
from pages.parts.state.weighed import attended

answer = frame.page(ATTENTION, attended, serving.cache_format)
cards.summary(answer)
mixers = kinds(answer.architecture.all_blocks)
attention.layers(answer, mixers)
for tab, mixer in zip(st.tabs([attention.title(mixer) for mixer in mixers]), mixers, strict=True):
    with tab:
        attention.explain(mixer)
        attention.heads(answer, mixer)
        attention.shapes(answer, mixer)
        attention.scores(answer, mixer)

heading("The same model with other kinds of attention")
attention.variants(answer)
paper.link(answer, "kv_cache_per_token")
