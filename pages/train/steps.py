"""Training steps side by side: who they are, what each needs in each phase, what still fits, and how long each
takes."""

from collections.abc import Callable

from calc import Memory
from calc.errors import Message
from calc.hardware import find_gpu
from calc.time import ComparedStep
from pages.parts import words
from pages.parts.inputs import added_models, training
from pages.parts.outputs import charts, comparison, frame, plot, share
from pages.parts.outputs.cards import badge, most, no_gpu
from pages.parts.outputs.findings import told_apart
from pages.parts.outputs.training_answer import spelled
from pages.parts.screen import caption, small_table
from pages.parts.state.compared import Stepped, stepped
from pages.parts.state.query import STEPS
from pages.parts.state.scenario import places
from pages.parts.words import say

NOTHING = "–"


def headings(answer: Stepped) -> None:
    """The steps by letter, each with what its link says of it and a way out."""
    share.keep(answer)
    if not answer.others:
        caption("Keep this step, then change it: both stay side by side, whatever the loss.")
    links = [link.split("&") for link in ("", *answer.scenario.comparison.steps)]
    settings = (" ".join(f"`{part}`" for part in parts if not part.startswith("model=")) for parts in links)
    entries = [(letter, step.model.name, of) for (letter, step), of in zip(answer.lettered, settings, strict=True)]
    added_models.side_by_side(places(("comparison",))["steps"], entries, Message("The step on the sliders"), 150)
    added_models.refusals((letter, step.error) for letter, step in answer.lettered)


def table(answer: Stepped, gpu: str) -> None:
    """A column for each step; what differs from the first is marked."""
    columns = answer.complete
    steps, first = [column.step for column in columns], columns[0].step

    def row(label: str, text: Callable[[ComparedStep], str]) -> list[str]:
        return [label, *map(text, steps)]

    def sizes(label: str, per_step: list[int | None]) -> list[str]:
        return [label, *(against(size, per_step[0]) for size in per_step)]

    def longest(step: ComparedStep) -> str:
        """The longest completion that fits; of a loss without prompts the longest sequence is on Train."""
        return NOTHING if step.scenario.objective is None else most(step.max_completion)

    def seconds(step: ComparedStep) -> str:
        if step.step_s is None:
            return NOTHING
        text = words.duration(1000 * step.step_s.expected)
        if step is first or first.step_s is None:
            return text
        return f"{text} :gray-badge[{words.times(step.step_s.expected / first.step_s.expected)}]"

    rows = [
        row(say("Training objective"), lambda step: words.objective(step.scenario.objective)),
        row(say("Training method"), lambda step: words.choice("method", step.scenario.workload.method)),
        row(words.field("micro_batch"), lambda step: f"{step.scenario.workload.micro_batch:,}"),
    ]
    if any(step.scenario.layout.gpus > 1 for step in steps):
        rows.append(row(say("Layout"), lambda step: spelled(step.scenario.layout) or say("One GPU")))
    rows += [
        row(gpu, lambda step: badge(step.verdict.verdict)),
        sizes(say("Memory per GPU"), [step.verdict.required for step in steps]),
        row(say("Peak"), lambda step: say(words.EVERY_PHASE[step.peak])),
        *(sizes(say(name), [step.phases.get(phase) for step in steps]) for phase, name in words.PHASES.items()),
    ]
    if any(step.rollout for step in steps):
        rows.append([say("**With the engine**"), *[""] * len(columns)])
        phases = words.ROLLOUT_PHASES.items()
        rows += [sizes(say(name), [step.rollout.get(phase) for step in steps]) for phase, name in phases]
    rows += [
        row(say("Max micro-batch size"), lambda step: most(step.verdict.max_micro_batch)),
        row(say("Longest completion"), longest),
        row(say("Time per step"), seconds),
    ]
    names = (say("{letter} · {name}", letter=letter, name=name) for letter, name in told_apart(columns).items())
    lines = [line for line in rows if any(cell != NOTHING for cell in line[1:])]
    small_table([say("Difference from A"), *names], lines, numbers=len(columns))
    caption("Phases are of the trainer alone unless an engine is named. Times are expected values.")


def against(size: int | None, first: int | None) -> str:
    """A size, and how much more or less than the first's."""
    if size is None:
        return NOTHING
    text = words.gib(size)
    return text if first is None or size == first else f"{text} {comparison.mark(size, first)}"


def bars(answer: Stepped, gpu: str) -> None:
    """Memory of one GPU at each step's peak; of trainer and engine where one generates."""
    title = say("Memory per GPU at the peak, {gpu}", gpu=find_gpu(gpu).name)
    memories: list[Memory] = [
        next((charts.peak_of(rollout) for rollout in report.rollouts if rollout.gpu == gpu), report.memory)
        for report in (column.answer.report for column in answer.complete)
    ]
    parts = charts.trained(memories)
    bars = comparison.memory_bars(told_apart(answer.complete), memories, parts)
    plot.draw("step_bars", title, bars, titled=True)


answer: Stepped = frame.page(STEPS, stepped, *training.SECTIONS)
headings(answer)
if answer.comparison is None:
    no_gpu()
else:
    table(answer, find_gpu(answer.comparison.gpu).name)
    bars(answer, answer.comparison.gpu)
