from functools import partial

import streamlit as st

from pages.parts.inputs import serving
from pages.parts.outputs import answer as answers
from pages.parts.outputs import cards, charts, frame, gpu_rows, kv_budget, parameter_shares, plot
from pages.parts.outputs.derivations import ModelDerivations
from pages.parts.state import url
from pages.parts.state.query import DESIGN, WEIGH
from pages.parts.state.weighed import Weighed, weighed
from pages.parts.words import say


def weigh(answer: Weighed) -> None:
    report = answer.report
    answers.draw(answer)
    answers.calibration(answer.scenario)
    answers.how_fast(answer)
    cards.totals(answer)
    cards.exact(answer)
    gpu_rows.cards_or_table(report.verdicts, partial(gpu_rows.card, answer), partial(gpu_rows.table, answer))

    def shares_and_gpus() -> None:
        with st.grid(2, min_column_width=360, key="shares_and_gpus"):
            with st.container():
                parameter_shares.draw(report.parameters.total, answer.architecture.tensors())
            with st.container():
                bars = charts.gpu_bars(report.verdicts, report.memories)
                plot.draw("gpus", say("Memory vs. GPU capacity"), bars, titled=True)
        url.way(answer.scenario, DESIGN, say("Drawing and checks of the design"))
        if len(report.stages) > 1:
            stages = charts.stage_bars(report.stages)
            plot.draw("stages", say("Memory per pipeline stage"), stages, titled=True)

    def over_the_context() -> None:
        cards.overtaking(answer)
        plot.draw("contexts", say("Memory vs. context length"), charts.context_bars(report))
        kv_budget.draw(report)

    frame.open_section(
        {
            "gpus": (say("Parameters and GPUs"), shares_and_gpus),
            "length": (say("Context length and KV cache"), over_the_context),
            "tensors": (say("Tensors"), ModelDerivations(answer).tensors),
        }
    )
    frame.assumptions(report.assumptions)


frame.quick_page(WEIGH, weighed, weigh, *serving.SECTIONS)
