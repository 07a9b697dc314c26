"""The memory of a training step on paper: every part that is alive at its peak."""

from collections.abc import Iterator

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.derivation import Step
from calc.model.paper import Heading, Item, Section, added, legend_of, lines
from calc.training.step_derivation import phase_steps
from calc.training.training_report import PEAKS, TrainingReport


def training_section(architecture: Architecture, report: TrainingReport) -> Section:
    return Section(anchor="training", title=Message("A training step"), items=tuple(step_items(architecture, report)))


def step_items(architecture: Architecture, report: TrainingReport) -> Iterator[Item]:
    """Each part of the peak by its tensors, then their sum with the overhead."""
    memory = report.memory
    yield PEAKS[memory.moment]
    steps, meanings = phase_steps(architecture, report.scenario, memory.moment)
    parts = report.phases[memory.moment].tensors
    for name in dict.fromkeys(part.component for part in parts):
        own = [step for step, part in zip(steps, parts, strict=True) if part.component == name]
        yield Heading(title=name)
        yield lines(own, Message("Bytes"), Message("Tensor"))
    yield from legend_of(steps, meanings)
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.component] = sums.get(part.component, 0) + part.bytes
    sums["overhead"] = memory.overhead
    rows = [Step(what=name, formula="", values="", result=size) for name, size in sums.items() if size]
    yield Heading(title=Message("Memory per GPU"))
    yield lines(rows, Message("Bytes"))
    yield added(Message("Memory per GPU"), [step.result for step in rows], "bytes")
