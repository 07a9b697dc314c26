"""Speed of a training step, and where its time goes; with a loss of TRL its phases, and the same step with others."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from calc import GPU, Objective
from calc.errors import ConfigError, Message
from calc.hardware import find_gpu
from calc.time import GpuDivision, ObjectiveSpeed, StepOperation, TrainingSpeed, step_operations
from calc.training import METHODS, PHASE_NAMES, MethodName, Training, word
from pages.parts import words
from pages.parts.inputs import efficiencies
from pages.parts.inputs.control import drawer
from pages.parts.labels import ORIGINS
from pages.parts.outputs import paper
from pages.parts.outputs.cards import BADGES
from pages.parts.screen import caption, paragraph, small_table
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
NO_BREAK = "\N{NO-BREAK SPACE}"


def draw(answer: Trained) -> None:
    """Speed in one line, on the GPU that the memory answer is about; nothing where the step does not fit."""
    efficiencies.idle(answer, training=True)
    efficiencies.node(answer)
    if answer.passes is not None:
        loss_time(answer.passes)
    other_losses(answer)
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
    return words.evidence(f"[{say(basis)}]({decides.source})", decides.rows)


def operations(speed: TrainingSpeed, name: str, on_paper: Callable[[], None] | None = None) -> None:
    """A step by its kinds of work, in a drawer, computed when it is opened; and the way to its formulas."""
    with drawer(say("Where the time goes"), f"operations_{name}", icon=":material/timer:") as is_open:
        if not is_open:
            return
        rows = step_operations(speed)
        caption(
            "One step on the stage that takes longest, in milliseconds. Each kind of work takes the larger of its "
            "arithmetic and its memory traffic. What stages send each other, and the host, are left out."
        )
        if speed.layout.vp > 1:
            caption(
                "Interleaved stages send {n:,} times as often; what goes beyond once is counted, as far as compute "
                "does not hide it.",
                n=speed.layout.vp,
            )
        recomputes = any(operation_row.recomputed_ms for operation_row in rows)
        head = [say("Work"), say("ms"), say("Share"), say("Forward"), say("Backward")]
        head += [say("Recomputed")] if recomputes else []
        head += [say("Arithmetic, ms"), say("Memory, ms"), say("Limited by")]
        whole = sum(operation_row.ms for operation_row in rows)
        small_table(
            head, [row(operation_row, whole, recomputes=recomputes) for operation_row in rows], numbers=len(head) - 2
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


def loss_time(speed: ObjectiveSpeed) -> None:
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
        rows.append((say(words.TIMED_PHASES[phase.name]), words.duration(1000 * usual), share, span))
    small_table(head, rows, numbers=3)
    if time.divisions:
        paragraph("**The same GPUs, divided otherwise**")
        head = [say("Engine"), say("GPUs that train"), say("Time"), say("Memory")]
        small_table(head, [division(row) for row in time.divisions], numbers=2)
    for sentence in time.assumptions:
        caption(sentence)


def division(row: GpuDivision) -> tuple[str, ...]:
    own = row.engine_gpus
    where = say("{n:,} GPU of its own", plural="{n:,} GPUs of its own", n=own) if own else say("on the GPUs that train")
    fits = say("Fits") if row.fits else say("Does not fit")
    return where, f"{row.training_gpus:,}", words.duration(1000 * row.step_s.expected), fits


def other_losses(answer: Trained) -> None:
    """Table in a drawer, weighed when it is opened; nothing where the loss is transformers' own or no GPU is chosen."""
    own = answer.training.objective
    if own is None or answer.focus is None:
        return
    with drawer(say("The same step with other losses"), "by_method", icon=":material/compare_arrows:") as is_open:
        if is_open:
            caption("Prompt, completion, micro-batch and all else as it is; the update alone, without an engine.")
            head = [say("Training objective"), say("Memory per GPU"), say("Time"), say("Verdict")]
            gpu = find_gpu(answer.focus.gpu)
            rows = [row for name in METHODS if (row := method_row(answer, own, name, gpu)) is not None]
            small_table(head, rows, numbers=2)


def method_row(answer: Trained, own: Objective, name: MethodName, gpu: GPU) -> tuple[str, ...] | None:
    """One loss; None where the step can't be made with it."""
    now = answer.training
    objective = own if own.method == name else Objective(method=name, prompt=own.prompt, completion=own.completion)
    try:
        step = Training(now.base, now.scenario.model_copy(update={"objective": objective}))
    except ConfigError:
        return None
    memory = step.memory()
    seconds = ObjectiveSpeed(step, gpu, cluster=answer.scenario.cluster).step_s.expected
    loss = words.choice("loss_method", name)
    verdict, _, _ = BADGES[word(memory, gpu.usable_bytes)]
    figures = words.gib(memory.total), words.duration(1000 * seconds)
    cells = (f"**{loss}**" if own.method == name else loss, *figures, say(verdict))
    return tuple(cell.replace(" ", NO_BREAK) for cell in cells)
