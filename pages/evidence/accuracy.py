import streamlit as st

from pages.parts.outputs import charts, frame
from pages.parts.state.query import ACCURACY
from pages.parts.verify import accuracy as shown
from pages.parts.verify import offload, served, speeds, startups
from pages.parts.verify.evidence import accuracy
from pages.parts.verify.served_evidence import servers as measured_servers
from pages.parts.verify.speed_evidence import speeds as measured_speeds
from pages.parts.verify.startup_evidence import startups as recorded_starts
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
    startups.draw(recorded_starts())
elif chosen == "speed":
    speeds.draw(measured_speeds())
    served.draw(measured_servers())
    offload.draw()
else:
    evidence = accuracy()
    st.markdown(
        say(
            "Computed figures beside **{n}** that people published from their own GPUs: start-up logs of engines, "
            "benchmarks, training runs; and beside **{tracked}** training steps that torch itself computed, where no "
            "setting is left to be guessed. Each is computed from the settings that its source states, with the "
            "formulas of the other pages.",
            n=len(evidence.rows) - evidence.tracked,
            tracked=evidence.tracked,
        )
    )
    shown.kinds(evidence)
    shown.scatter(evidence, charts.theme())
    shown.table(evidence)
    shown.left_out(evidence)
