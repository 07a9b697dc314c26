import streamlit as st

from pages.parts.outputs import frame
from pages.parts.screen import paragraph
from pages.parts.state.query import ACCURACY
from pages.parts.verify import accuracy as shown
from pages.parts.verify import evidence, speeds, startups
from pages.parts.words import say

frame.without_model(ACCURACY)
subjects = {"memory": say("Memory"), "starts": say("Start-ups"), "speed": say("Speed")}
chosen = st.segmented_control(
    say("Figures"),
    list(subjects),
    default="memory",
    required=True,
    format_func=lambda name: subjects[name],
    key="accuracy_of",
)
if chosen == "starts":
    startups.draw(evidence.startups())
elif chosen == "speed":
    speeds.draw(evidence.speeds())
    speeds.draw_servers(evidence.servers())
    speeds.draw_offloaded()
else:
    figures = evidence.accuracy()
    paragraph(
        "Computed figures beside **{n}** that people published from their own GPUs: start-up logs of engines, "
        "benchmarks, training runs; and beside **{tracked}** training steps that torch itself computed, where no "
        "setting is left to be guessed. Each is computed from the settings that its source states, with the "
        "formulas of the other pages.",
        n=len(figures.rows) - figures.tracked,
        tracked=figures.tracked,
    )
    shown.kinds(figures)
    shown.scatter(figures)
    shown.table(figures)
    shown.left_out(figures)
