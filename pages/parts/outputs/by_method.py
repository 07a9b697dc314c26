"""A step with each of TRL's losses, side by side: memory and time."""

import streamlit as st

from calc import Objective
from calc.errors import ConfigError
from calc.hardware import find_gpu
from calc.time import ObjectiveSpeed
from calc.training import METHODS, MethodName, Training, word
from pages.parts import words
from pages.parts.inputs.drawer import drawer
from pages.parts.outputs.cards import BADGES
from pages.parts.state.weighed import Trained
from pages.parts.words import say

NO_BREAK = "\N{NO-BREAK SPACE}"


def draw(answer: Trained) -> None:
    """Table in a drawer, weighed when it is opened; nothing where the loss is transformers' own or no GPU is chosen."""
    if answer.training.objective is None or answer.focus is None:
        return
    with drawer(say("The same step with other losses"), "by_method", icon=":material/compare_arrows:") as is_open:
        if is_open:
            st.caption(
                say("Prompt, completion, micro-batch and all else as it is; the update alone, without an engine.")
            )
            head = [say("Training objective"), say("Memory per GPU"), say("Time"), say("Verdict")]
            rows = [row for name in METHODS if (row := method_row(answer, name)) is not None]
            st.markdown(words.table(head, rows, numbers=2))


def method_row(answer: Trained, name: MethodName) -> tuple[str, ...] | None:
    """One loss; None where the step can't be made with it."""
    assert answer.focus is not None
    assert answer.training.objective is not None
    now, gpu = answer.training, find_gpu(answer.focus.gpu)
    own = now.objective
    assert own is not None
    objective = own if own.method == name else Objective(method=name, prompt=own.prompt, completion=own.completion)
    try:
        step = Training(now.base, now.scenario.model_copy(update={"objective": objective}))
    except ConfigError:
        return None
    memory, edits = step.memory(), answer.scenario.efficiencies.edits
    seconds = ObjectiveSpeed(step, gpu, edits=edits).step_s.expected
    loss = words.choice("loss_method", name)
    verdict, _, _ = BADGES[word(memory, gpu.usable_bytes)]
    figures = words.gib(memory.total), words.duration(1000 * seconds)
    cells = (f"**{loss}**" if own.method == name else loss, *figures, say(verdict))
    return tuple(cell.replace(" ", NO_BREAK) for cell in cells)
