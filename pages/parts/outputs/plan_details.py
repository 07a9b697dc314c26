"""One plan in detail: how it is started, and where the time of a step goes."""

import streamlit as st

from calc.serving.engines.launch import Launch
from calc.time import OperationTime, launch, plan_operations, separate_launch
from pages.parts import words
from pages.parts.inputs.drawer import drawer
from pages.parts.state.planned import Planned, Ranked
from pages.parts.words import say


def details(answer: Planned, ranked: Ranked, name: str) -> None:
    """Both in drawers, computed when they are opened."""
    with drawer(say("Launch command"), f"launch_{name}", icon=":material/terminal:") as is_open:
        if is_open:
            command(answer, ranked)
    with drawer(say("Where the time goes"), f"operations_{name}", icon=":material/timer:") as is_open:
        if is_open:
            operations(answer, ranked)


def command(answer: Planned, ranked: Ranked) -> None:
    """Commands that start one copy, or a worker of each side and the router between them."""
    separate = separate_launch(answer.plans.search, ranked.plan, answer.scenario.source.model)
    if separate is not None and ranked.plan.prefill is not None:
        st.caption(say("Each of {n:,} prefill workers:", n=ranked.plan.prefill.workers))
        started(separate.prefill)
        st.caption(say("Each of {n:,} decode workers:", n=ranked.plan.replicas))
        started(separate.decode)
        st.caption(say("What routes requests between them:"))
        started(separate.router)
        return
    starts = launch(answer.plans.search, ranked.plan, answer.scenario.source.model)
    if starts is None:
        return
    started(starts)
    if ranked.plan.replicas > 1:
        st.caption(say("{n:,} copies of it, behind a load balancer.", n=ranked.plan.replicas))


def started(starts: Launch) -> None:
    """A command, and what it can't say."""
    st.code(starts.text, language="bash")
    for note in starts.notes:
        st.caption(say(note))


def operations(answer: Planned, ranked: Ranked) -> None:
    """A step of a full copy by its kinds of work, the longest first, and what binds each."""
    rows = plan_operations(answer.plans.search, ranked.plan)
    if ranked.plan.prefill is not None:
        st.caption(say("One step of a full decode worker, which runs no prompts."))
    else:
        st.caption(
            say(
                "One step of a full copy, the prompts that are prefilled beside included. Each kind of work takes the "
                "larger of its arithmetic and its memory traffic."
            )
        )
    head = [say("Work"), say("ms"), say("Share"), say("Arithmetic, ms"), say("Memory, ms"), say("Limited by")]
    whole = sum(operation_time.ms for operation_time in rows)
    st.markdown(words.table(head, [operation(operation_time, whole) for operation_time in rows], numbers=4))


def operation(row: OperationTime, whole: float) -> tuple[str, ...]:
    name, share = say(words.WORK.get(row.what) or words.PARTS[row.what]), f"{row.ms / whole:.0%}"
    figures = (words.milliseconds(figure) for figure in (row.compute_ms, row.memory_ms))
    return name, words.milliseconds(row.ms), share, *figures, say(words.BOUNDS[row.bound])
