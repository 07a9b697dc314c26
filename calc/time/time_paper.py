"""The time of an answer on paper: a decode step and the first pass of the prompts, or a training step, line by line."""

import re
from collections.abc import Iterable, Iterator

from calc.errors import Message
from calc.hardware.gpu import GPU
from calc.model.paper import Cell, Code, Formula, Heading, Item, PaperTable, Section
from calc.serving.memory import Serving
from calc.serving.workload import Workload
from calc.time.efficiency import SHARE_SYMBOLS
from calc.time.figures import TimeStep
from calc.time.objective_time import ObjectiveSpeed
from calc.time.roofline import MACHINE
from calc.time.time_derivation import PassDerivation, ServingDerivations, derive_step
from calc.time.training_time import TrainingSpeed
from calc.training.colocated import PHASE_NAMES
from calc.units import four_digits

ROOFLINE = Message(
    "Each kind of work takes as long as its FLOPs or its bytes do, whichever is longer: the roofline. What share of "
    "the printed figures is reached is fitted to measured runs; here are the expected values."
)


def time_section(serving: Serving, gpu: GPU, workload: Workload) -> Section:
    """The expected times; Plan states the ranges round them."""
    derivations = ServingDerivations(serving, gpu, workload)
    return Section(
        anchor="time",
        title=Message("Time"),
        items=(
            ROOFLINE,
            Heading(title=Message("One decode step, half way through the output")),
            *passed(derivations.decode()),
            Heading(title=Message("First pass of the prompts, and the first token")),
            *passed(derivations.prefill()),
        ),
    )


def step_time_section(speed: TrainingSpeed) -> Section:
    """The expected time of a training step; Train states the range round it."""
    return Section(
        anchor="training_time",
        title=Message("Time of a training step"),
        items=(
            ROOFLINE,
            Heading(title=Message("A micro-batch on the stage that takes longest, forward and backward, and the step")),
            *passed(derive_step(speed)),
        ),
    )


def objective_time_section(speed: ObjectiveSpeed) -> Section:
    """The expected time of a step of one of TRL's losses: its phases, then the update line by line."""
    return Section(
        anchor="training_time",
        title=Message("Time of a training step"),
        items=(
            ROOFLINE,
            Heading(title=Message("The phases of a step")),
            PaperTable(head=HEAD, rows=tuple(phase_rows(speed))),
            *speed.assumptions(),
            Heading(title=Message("The update: a micro-batch, forward and backward, and all of them")),
            *passed(derive_step(speed.update)),
        ),
    )


def phase_rows(speed: ObjectiveSpeed) -> Iterator[tuple[Cell, ...]]:
    """Each phase with its seconds; of generation its waves."""
    usual = speed.by_end["expected"]
    formulas = dict.fromkeys(usual, ("", ""))
    if "rollout" in usual:
        waves, generations = speed.waves("expected"), speed.generations
        terms = (f"{w.times} * ({w.prompts_s:.4g} + {w.steps} * {w.decode_s:.4g})" for w in waves)
        formulas["rollout"] = ("g * w * (t_prompts + (C - 1) * t_decode)", f"{generations:g} * ({' + '.join(terms)})")
    for name, seconds in usual.items():
        formula, values = formulas[name]
        yield PHASE_NAMES[name], Code(text=duration(seconds)), Formula(written=formula), Formula(written=values)
    whole = (Formula(written=""), Formula(written=" + ".join(f"{seconds:.4g}" for seconds in usual.values())))
    yield Message("Together"), Code(text=duration(sum(usual.values()))), *whole


def duration(seconds: float) -> str:
    return f"{1000 * seconds:.4g} ms" if seconds < 1 else f"{four_digits(seconds)} s"


def passed(derivation: PassDerivation) -> Iterator[Item]:
    """The lines of one pass, from the model's sizes to seconds."""
    yield Message("FLOPs of one row through each product, by the sizes of the model:")
    yield table(derivation.rows)
    if derivation.machine:
        yield Message("What of the printed figures is reached:")
        yield table(derivation.machine)
    yield Message("Each kind of work:")
    yield PaperTable(
        head=HEAD,
        rows=tuple(
            cells(operation.what, line)
            for operation in derivation.operations
            for line in (operation.flops, operation.bytes, operation.time)
            if line is not None
        ),
    )
    yield Message("Together:")
    yield table(derivation.sums)
    derived = {line.what for line in (*derivation.rows, *derivation.machine, *derivation.sums)}
    derived |= {f"t_{operation.what}" for operation in derivation.operations}
    yield PaperTable(
        head=(Message("Symbol"), Message("Meaning"), Message("Value")),
        rows=tuple(
            (Formula(written=name), meaning_of(meaning), Code(text=whole_or_short(value)))
            for name, (meaning, value) in derivation.legend.items()
            if name not in derived
        ),
    )


HEAD = (Message("Part"), Message("Result"), Message("Formula"), Message("With values"))


def table(lines: Iterable[TimeStep]) -> PaperTable:
    return PaperTable(head=HEAD, rows=tuple(cells(Formula(written=line.what), line) for line in lines))


def cells(what: Cell, line: TimeStep) -> tuple[Cell, ...]:
    return what, Code(text=amount(line)), Formula(written=line.formula), Formula(written=line.values)


PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHORT = {"bytes": "B", "bytes/s": "B/s", "FLOPs": "FLOPs", "FLOP/s": "FLOP/s"}
"""Units that take a prefix."""


def amount(line: TimeStep) -> str:
    """Four digits that count."""
    if line.unit == "s":
        return duration(line.result)
    size, prefix = next(((size, prefix) for size, prefix in PREFIXES if line.result >= size), (1.0, ""))
    if line.unit in SHORT:
        return f"{line.result / size:.4g} {prefix}{SHORT[line.unit]}"
    return f"{four_digits(line.result)} {line.unit}"


def whole_or_short(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and value < 10**9 else f"{value:,.5g}"


WHOLE = {symbol.meaning for symbol in (*SHARE_SYMBOLS.values(), *MACHINE.values())}
PRINTED = re.compile(r"TFLOPS in (\w+), printed")
BACK = re.compile(r"(.+), ([\d,]+) back")
OF_PART = re.compile(r"(.+): (\w+)")


def meaning_of(meaning: str) -> Cell:
    """A field of a config as it is, else in words."""
    if "_" in meaning and " " not in meaning:
        return Code(text=meaning)
    if meaning in WHOLE:
        return meaning
    if match := PRINTED.fullmatch(meaning):
        return Message("TFLOPS in {dtype}, printed", dtype=match[1])
    if match := BACK.fullmatch(meaning):
        return Message("{meaning}, {n} tokens back", meaning=Message(match[1]), n=match[2])
    if match := OF_PART.fullmatch(meaning):
        return Message("{meaning}: `{part}`", meaning=Message(match[1]), part=match[2])
    return meaning
