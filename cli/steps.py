"""The part of the command line that lays training steps side by side: python -m calc MODEL --train --with FLAGS."""

import argparse
import shlex
from collections.abc import Callable, Iterator

from calc.errors import printable, shown
from calc.time.step_comparison import ComparedStep, StepComparison
from calc.units import GIB, four_digits
from cli.options import bad_question

NOTHING = "-"


def add_other_steps(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--with",
        dest="other_steps",
        action="append",
        default=[],
        metavar="FLAGS",
        help="with --train, another step of the model side by side with this one, by flags of its own: "
        "--with '--method dpo --micro-batch 2'",
    )


def steps_of(
    arguments: argparse.Namespace, parser: Callable[[], argparse.ArgumentParser]
) -> Iterator[argparse.Namespace]:
    """The requested step, then those next to it, on the same GPUs. Raises ConfigError."""
    yield arguments
    if not arguments.train:
        raise bad_question("--with takes effect only with --train.", "with")
    for text in arguments.other_steps:
        try:
            flags = shlex.split(text)
        except ValueError:
            raise bad_question(
                "--with takes flags of a step in quotes, not {text}.", "with", text=shown(text)
            ) from None
        other = parser().parse_args([arguments.model, "--train", *flags])
        if other.gpu is not None or other.other_steps or other.time or other.json:
            raise bad_question(
                "--gpu, --json, --time and --with stand outside of --with: steps are compared on the same GPUs.", "with"
            )
        other.set = [*arguments.set, *other.set]
        other.gpu = arguments.gpu
        yield other


def steps_table(comparison: StepComparison) -> str:
    """Text for reading: a column for each step."""
    steps = comparison.steps
    names = [printable(method_of(step)) for step in steps]

    def line(label: str, cells: Iterator[str]) -> str:
        return f"{label:28}" + "".join(f"{cell:>16}" for cell in cells)

    def sizes(label: str, per_step: list[int | None]) -> str:
        return line(label, (NOTHING if size is None else f"{size / GIB:.2f} GiB" for size in per_step))

    lines = [line(comparison.gpu, iter(names)), line("verdict", (step.verdict.verdict for step in steps))]
    lines.append(sizes("memory of one GPU", [step.verdict.required for step in steps]))
    lines.append(line("peak", (step.peak.replace("_", " ") for step in steps)))
    phases = dict.fromkeys(name for step in steps for name in step.phases)
    lines += [sizes(f"  {name.replace('_', ' ')}", [step.phases.get(name) for step in steps]) for name in phases]
    rollout = dict.fromkeys(name for step in steps for name in step.rollout)
    lines += [
        sizes(f"  with engine: {name.replace('_', ' ')}", [step.rollout.get(name) for step in steps])
        for name in rollout
    ]
    lines.append(line("largest micro-batch", (most(step.verdict.max_micro_batch) for step in steps)))
    lines.append(line("longest completion", map(longest, steps)))
    seconds = (NOTHING if step.step_s is None else f"{four_digits(step.step_s.expected)} s" for step in steps)
    return "\n".join([*lines, line("step", seconds)])


def method_of(step: ComparedStep) -> str:
    """Value of --method."""
    objective, weights = step.scenario.objective, step.scenario.workload.method
    return weights if objective is None else ",".join([objective.method, weights][: 2 if weights != "full" else 1])


def longest(step: ComparedStep) -> str:
    return NOTHING if step.scenario.objective is None else most(step.max_completion)


def most(size: int | None) -> str:
    return "unlimited" if size is None else f"{size:,}"
