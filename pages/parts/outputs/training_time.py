"""Speed of a training step, and where its time goes."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from calc.errors import Message
from calc.time import StepOperation, TrainingSpeed, step_operations
from pages.parts import words
from pages.parts.inputs import efficiencies
from pages.parts.inputs.drawer import drawer
from pages.parts.labels import ORIGINS
from pages.parts.outputs import by_method, objective_time, paper
from pages.parts.state.weighed import Trained
from pages.parts.words import say

STEP_WORK: dict[str, Message] = {
    "scores": Message("Attention of queries over keys"),
    "elementwise": Message("Elementwise kernels"),
    "communication": Message("Communication within layers"),
    "bubble": Message("Pipeline bubble"),
    "exchange": Message("Exchange between replicas that nothing hides"),
    "sends": Message("Further sends between interleaved stages"),
    "update": Message("Optimizer"),
}
"""Names of a training step's work, where it is other work or has another name."""


def draw(answer: Trained) -> None:
    """Speed in one line, on the GPU that the memory answer is about; nothing where the step does not fit."""
    efficiencies.idle(answer, training=True)
    if answer.passes is not None:
        objective_time.draw(answer.passes)
    by_method.draw(answer)
    speed, pace = answer.speed, answer.pace
    if speed is None or pace is None:
        return
    tflops, mfu = words.figure(pace.tflops_per_gpu.expected), f"{pace.mfu.expected:.0%}"
    line = say("**{tflops} TFLOP/s** per GPU, an MFU of {mfu}.", tflops=tflops, mfu=mfu)
    st.markdown(f":material/speed: {words.together([line, origin(speed)])}")
    operations(speed, "step", on_paper=partial(paper.link, answer, "training_time"))


def origin(speed: TrainingSpeed) -> str:
    """Evidence for the speed of matrix products, which decides most, with a link."""
    decides = speed.rows["matmul"]
    basis = ORIGINS["generation"] if decides.generations else Message("assumed to be as on other generations")
    linked = f"[{say(basis)}]({decides.source})"
    if not decides.rows:
        return say("({origin})", origin=linked)
    return say("({origin}; n = {n:,})", origin=linked, n=decides.rows)


def operations(speed: TrainingSpeed, name: str, on_paper: Callable[[], None] | None = None) -> None:
    """A step by its kinds of work, in a drawer, computed when it is opened; and the way to its formulas."""
    with drawer(say("Where the time goes"), f"operations_{name}", icon=":material/timer:") as is_open:
        if not is_open:
            return
        rows = step_operations(speed)
        st.caption(
            say(
                "One step on the stage that takes longest, in milliseconds. Each kind of work takes the larger of its "
                "arithmetic and its memory traffic. What stages send each other, and the host, are left out."
            )
        )
        if speed.layout.vp > 1:
            st.caption(
                say(
                    "Interleaved stages send {n:,} times as often; what goes beyond once is counted, as far as compute "
                    "does not hide it.",
                    n=speed.layout.vp,
                )
            )
        recomputes = any(operation_row.recomputed_ms for operation_row in rows)
        head = [say("Work"), say("ms"), say("Share"), say("Forward"), say("Backward")]
        head += [say("Recomputed")] if recomputes else []
        head += [say("Arithmetic, ms"), say("Memory, ms"), say("Limited by")]
        whole = sum(operation_row.ms for operation_row in rows)
        st.markdown(
            words.table(
                head,
                [row(operation_row, whole, recomputes=recomputes) for operation_row in rows],
                numbers=len(head) - 2,
            )
        )
        if on_paper is not None:
            on_paper()


def row(operation: StepOperation, whole: float, *, recomputes: bool) -> tuple[str, ...]:
    name = say(STEP_WORK.get(operation.what) or words.WORK.get(operation.what) or words.PARTS[operation.what])
    again = (operation.recomputed_ms,) if recomputes else ()
    figures = (operation.forward_ms, operation.backward_ms, *again, operation.compute_ms, operation.memory_ms)
    bound = say("other stages") if operation.bound is None else say(words.BOUNDS[operation.bound])
    return (
        name,
        words.milliseconds(operation.ms),
        f"{operation.ms / whole:.0%}",
        *map(words.milliseconds, figures),
        bound,
    )
