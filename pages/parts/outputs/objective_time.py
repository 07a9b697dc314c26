"""Time of a step of one of TRL's losses: which part dominates, and what another division of the GPUs makes."""

import streamlit as st

from calc.time import GpuDivision, ObjectiveSpeed
from calc.training import PHASE_NAMES
from pages.parts import words
from pages.parts.inputs.drawer import drawer
from pages.parts.words import say


def draw(speed: ObjectiveSpeed) -> None:
    """Time in one line, and its phases in a drawer."""
    time = speed.time(divided=False)
    seconds = {phase.name: phase.seconds.expected for phase in time.phases}
    share = seconds[time.longest] / time.step_s.expected
    steps, tokens = words.figure(time.steps_per_hour.expected), words.count(round(time.tokens_per_hour.expected))
    lines = [say("**{steps} steps** and {tokens} tokens per hour.", steps=steps, tokens=tokens)]
    if len(seconds) > 1:
        lines.append(say("{share} of a step's time: {phase}.", share=f"{share:.0%}", phase=PHASE_NAMES[time.longest]))
    st.markdown(f":material/speed: {' '.join(lines)}")
    with drawer(say("Where the time goes"), "objective_time", icon=":material/timer:") as is_open:
        if is_open:
            phases(speed)


def phases(speed: ObjectiveSpeed) -> None:
    """Each phase with its share, then other divisions of the same GPUs, then what is taken for granted."""
    time = speed.time()
    head = [say("Phase"), say("Time"), say("Share"), say("Range")]
    rows = []
    for phase in time.phases:
        usual, span = phase.seconds.expected, words.durations(phase.seconds.scaled(1000))
        share = f"{usual / time.step_s.expected:.0%}"
        rows.append((say(words.ROLLOUT_PHASES[phase.name]), words.duration(1000 * usual), share, span))
    st.markdown(words.table(head, rows, numbers=3))
    if time.divisions:
        st.markdown(say("**The same GPUs, divided otherwise**"))
        head = [say("Engine"), say("GPUs that train"), say("Time"), say("Memory")]
        st.markdown(words.table(head, [division(row) for row in time.divisions], numbers=2))
    for sentence in time.assumptions:
        st.caption(say(sentence))


def division(row: GpuDivision) -> tuple[str, ...]:
    own = row.engine_gpus
    where = say("{n:,} GPU of its own", plural="{n:,} GPUs of its own", n=own) if own else say("on the GPUs that train")
    fits = say("Fits") if row.fits else say("Does not fit")
    return where, f"{row.training_gpus:,}", words.duration(1000 * row.step_s.expected), fits
