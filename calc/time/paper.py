"""Derivation of the time of a pass or of a training step, line by line: the functions that compute it, run on figures
that remember their formulas."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from calc.errors import Frozen, Message
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.formula import Formula, largest, minus, number, operand, product
from calc.model.formula import total as sum_of
from calc.model.paper import Cell, Code, Heading, Item, PaperTable, Section
from calc.serving.memory import Serving
from calc.serving.workload import Workload
from calc.time.cluster import USUAL, Cluster
from calc.time.efficiency import SHARE_SYMBOLS, efficiency
from calc.time.estimate import Estimate
from calc.time.figures import Figure, Figures, Meaning, Symbol, TimeStep, symbols_of
from calc.time.objective import TIMED_PHASES, ObjectiveSpeed, remainder
from calc.time.operations import (
    Demand,
    Forward,
    PassPart,
    attending_mixers,
    matrices_within,
    per_copy,
    product_flops,
    summed_over_layers,
    unrolled,
)
from calc.time.roofline import MACHINE, Timed, kind_of, sharing
from calc.time.serving import chunked, halfway, largest_share, speed_on
from calc.time.training import TrainingSpeed
from calc.units import four_digits

ROOFLINE = Message(
    "Each kind of work takes as long as its FLOPs or its bytes do, whichever is longer: the roofline. What share of "
    "the printed figures is reached is fitted to measured runs; here are the expected values."
)
GENERATION = Message(
    "A step has g generations. In each, prompts pass in t_prompts; then n_full decode steps of t_full while "
    "completions wait for a place, and C - 1 of t_last until the longest, of C tokens, is done. What is in no phase "
    "takes r times t_phases, the seconds of all of them."
)
HEAD = (Message("Part"), Message("Result"), Message("Formula"), Message("With values"))
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHORT = {"bytes": "B", "bytes/s": "B/s", "FLOPs": "FLOPs", "FLOP/s": "FLOP/s"}
"""Units that take a prefix."""

# The lines


class PassDerivation(Frozen):
    """One pass of a stage. Each line's symbols are derived by a line of those before it, or stand in the legend."""

    rows: tuple[TimeStep, ...]  # FLOPs of one row through the products of a stage
    machine: tuple[TimeStep, ...]  # what of the printed figures is reached
    operations: tuple[TimeStep, ...]  # FLOPs, bytes that are moved, and seconds of each kind of work
    sums: tuple[TimeStep, ...]
    legend: Mapping[str, tuple[Meaning, float]]


GPU_FIGURES = {
    "bandwidth_gb_s": Symbol("b_GPU", "GB/s of memory, printed"),
    "tflops": Symbol("P", "TFLOPS as printed"),
    "link_gb_s": Symbol("l_GPU", "GB/s of the link, both directions, printed"),
}
LAYOUT = {
    "tp": Symbol("tp", "tensor-parallel ranks"),
    "pp": Symbol("pp", "pipeline stages"),
    "dp": Symbol("dp", "data-parallel copies"),
    "ep": Symbol("ep", "expert-parallel ranks"),
}
TRAINING_LAYOUT = LAYOUT | {
    "dp": Symbol("dp", "data-parallel replicas"),
    "cp": Symbol("cp", "context-parallel ranks"),
}
INTERLEAVED = TRAINING_LAYOUT | {"vp": Symbol("vp", "pieces of the model on each pipeline stage")}
WORK = {
    "micro_batch": Symbol("B", "sequences of a micro-batch on each replica"),
    "sequence": Symbol("S", "tokens of a sequence"),
    "accumulation": Symbol("N_mb", "micro-batches of a step"),
}
DEMAND = symbols_of(Demand)


def traced(figures: Figures, sizes: Any, symbols: Mapping[str, Symbol]) -> Any:
    """`sizes` with a figure for each number that has a symbol and is not zero: of a mapping one for each key, of an
    estimate its expected one."""

    def figure(symbol: Symbol, number: Any) -> Any:
        if isinstance(number, Mapping):
            return {key: figure(symbol.of(key), each) for key, each in number.items()}
        if isinstance(number, Estimate):
            usual = figure(symbol, number.expected)
            return Estimate.model_construct(low=usual, expected=usual, high=usual)
        return figures.figure(symbol.name, number, symbol.meaning) if number else number

    changes = {name: figure(symbol, getattr(sizes, name)) for name, symbol in symbols.items()}
    return sizes.model_copy(update=changes) if isinstance(sizes, Frozen) else replace(sizes, **changes)


def traced_shares(figures: Figures, shares: Any) -> Any:
    return traced(figures, shares, {name: SHARE_SYMBOLS[name] for name in type(shares).model_fields})


def traced_demand(figures: Figures, demand: Demand) -> Demand:
    """A demand with figures for what does not depend on the pass."""

    def size(field: str, value: int) -> Any:
        return Figure(value, figures.of(field, value))

    sized: Demand = traced(figures, demand, {f.name: DEMAND[f.name] for f in fields(demand) if f.name in DEMAND})
    routing = demand.routing and replace(
        demand.routing, experts=size("n_experts", demand.routing.experts), top_k=size("top_k", demand.routing.top_k)
    )
    return replace(sized, hidden=size("hidden", demand.hidden), routing=routing)


def row_steps(
    figures: Figures, rank: Architecture, tp: int, stage: Sequence[range], demand: Demand, *, decodes: bool
) -> tuple[TimeStep, ...]:
    """FLOPs of a row through each product, and of a query-key pair, by the sizes of the model."""
    formulas = figures.apply(unrolled(rank))
    products = per_copy(rank, tp, product_flops(formulas, matrices_within(formulas, *stage), *stage))
    rows = [(f"φ_{product}", demand.flops[product], formula) for product, formula in products.items()]
    name = "absorbed_pair_flops" if decodes else "pair_flops"
    pairs: Mapping[Any, float] = getattr(demand, name)
    backs = summed_over_layers(attending_mixers(formulas, *stage), lambda mixer: mixer.pair_flops(absorbed=decodes))
    for (back, value), formula in zip(pairs.items(), backs.values(), strict=True):
        rows.append((DEMAND[name].of(back).name, value, formula))
    return tuple(figures.step(what, Figure(value, formula), "FLOPs") for what, value, formula in rows)


def operation_steps(
    figures: Figures, parts: Iterable[Timed], demand: Demand, forward: Forward
) -> tuple[tuple[TimeStep, ...], Any]:
    """The lines of each kind of work that takes time, and the sum of their seconds."""
    by_what: dict[Any, Any] = {operation.what: operation for operation in demand.operations(forward)}
    lines, seconds = list[TimeStep](), list[tuple[str, float]]()
    for part in parts:
        if not part.seconds:
            continue
        time, sides = figures.step(part.what, part.seconds, "s"), list[TimeStep]()
        if (operation := by_what.get(part.what)) is not None:
            work = ((operation.flops, "FLOPs"), (operation.bytes, "bytes"))
            lines += [figures.step(part.what, amount, unit) for amount, unit in work if amount]
            sides = [figures.step(part.what, side, "s") for side in (part.compute, part.memory) if side]
        if len(sides) == 2:
            both = {name: largest(*(getattr(side, name) for side in sides)) for name in ("formula", "values")}
            time = time.model_copy(update=both)
        lines.append(time)
        seconds.append((f"t_{part.what}", float(part.seconds)))
    return tuple(lines), total(figures, seconds)


def total(figures: Figures, times: Iterable[tuple[str, float]]) -> Any:
    """The sum of times that other lines derive."""
    return sum(figures.figure(name, seconds, "seconds") for name, seconds in times if seconds)


class ServingDerivations:
    """A server's expected times, derived on its first stage: a decode step, a prompt's first pass, and what they come
    to."""

    def __init__(self, serving: Serving, gpu: GPU, workload: Workload, cluster: Cluster = USUAL) -> None:
        self.serving, self.gpu, self.workload, self.cluster = serving, gpu, workload, cluster
        self.speed = speed_on(gpu, serving, cluster)

    def decode(self) -> PassDerivation:
        """A step halfway through the output."""
        work, figures = self.workload, Figures()
        plain = self.speed.decoding(work.batch, halfway(work))
        batch = figures.figure("B", plain.parts[0].sequences, "sequences of a rank in this pass")
        length = figures.figure("S", halfway(work), "tokens of a sequence, the new one included")
        pace = float(self.speed.pace(work.batch)) if self.speed.splits_batch else 1.0

        def sums(step: Figure) -> Iterator[TimeStep]:
            if pace > 1:
                step = step * figures.figure("w_pp", pace, "wait for the longest pipeline stage")
            yield figures.step("step", step, "s")
            seconds = figures.figure("t_step", float(step), "seconds of a step")
            yield figures.step("rate", figures.figure("N", work.batch, "sequences in all") / seconds, "tokens/s")

        forward = Forward((PassPart(batch, 1, length - 1, decodes=True),), logits=batch)
        return self.derived(figures, plain, forward, sums, decodes=True)

    def prefill(self) -> PassDerivation:
        """The first pass of the prompts, and the others in all."""
        work, figures, speed = self.workload, Figures(), self.speed
        chunk = self.serving.on(self.gpu, work).limits.step_tokens
        share = largest_share(work.batch, speed.layout.dp)
        passes = tuple(chunked(share, work.prompt, chunk))
        plain = passes[0].first
        (part,) = plain.parts
        sequences = figures.figure("B", part.sequences, "sequences of a rank in this pass")
        tokens = figures.figure("T", part.new, "tokens of each")
        logits = plain.logits and figures.figure("T_l", plain.logits, "rows of logits")
        rest = 0.0
        if sum(each.count * each.times for each in passes) > 1:
            whole = speed.prompt_parts(share, work.prompt, "expected", chunk)
            rest = float(sum(part.seconds for part in whole) - speed.seconds(plain, "expected", decodes=False))

        def sums(first: Figure) -> Iterator[TimeStep]:
            yield figures.step("pass", first, "s")
            seconds = figures.figure("t_pass", float(first), "seconds of this pass")
            ttft = total(figures, [("t_request", speed.machines("expected").request)]) + seconds
            if rest:
                ttft = ttft + figures.figure("t_rest", rest, "seconds of the other passes")
            yield figures.step("ttft", ttft, "s")
            first_token = figures.figure("TTFT", float(ttft), "seconds until the last prompt's first token")
            prompts = figures.figure("N", work.batch, "prompts") * figures.figure("S", work.prompt, "tokens of each")
            yield figures.step("rate", prompts / first_token, "tokens/s")

        forward = Forward((PassPart(sequences, tokens),), logits=logits)
        return self.derived(figures, plain, forward, sums, decodes=False)

    def derived(
        self,
        figures: Figures,
        plain: Forward,
        forward: Forward,
        sums: Callable[[Any], Iterable[TimeStep]],
        *,
        decodes: bool,
    ) -> PassDerivation:
        """The first stage in full, the others by their seconds; `plain` is the pass in numbers."""
        laid_out, engine, (first, *others) = self.serving.laid_out, self.serving.engine.kernels, self.speed.demands
        ranks = sharing(laid_out.layout, experts=first.routing is not None)
        kind = kind_of(self.gpu, engine, laid_out.precision.weights, ranks, self.cluster)
        shares = efficiency(*kind).edited(self.cluster.efficiencies)
        demand, gpu = traced_demand(figures, first), traced(figures, self.gpu, GPU_FIGURES)
        traced_cluster = replace(self.cluster, efficiencies=dict(traced_shares(figures, shares)))
        achieved = speed_on(gpu, self.serving, traced_cluster).machines("expected")
        on, layout = traced(figures, achieved, MACHINE), traced(figures, laid_out.layout, LAYOUT)
        speed = replace(self.speed, demands=(demand,), layout=layout, machines=lambda end: on)
        operations, seconds = operation_steps(
            figures, speed.parts(forward, "expected", decodes=decodes), demand, forward
        )
        lines: list[TimeStep] = []
        if others:
            lines.append(figures.step("t_stage_1", seconds, "s"))
            stages = (replace(self.speed, demands=(stage,)) for stage in self.speed.demands)
            each = [float(stage.seconds(plain, "expected", decodes=decodes)) for stage in stages]
            seconds = total(figures, [(f"t_stage_{number}", time) for number, time in enumerate(each, 1)])
        lines += sums(seconds)
        tp, stage = laid_out.layout.tp, laid_out.ranges[:1]
        rows = row_steps(figures, laid_out.rank, tp, stage, first, decodes=decodes)
        machine = tuple(
            figures.step(symbol.name, getattr(achieved, name), symbol.unit)
            for name, symbol in MACHINE.items()
            if symbol.name in figures.used  # by a line before
        )
        return PassDerivation(
            rows=rows, machine=machine, operations=operations, sums=tuple(lines), legend=figures.occurring()
        )


MEANINGS = {
    "busy": "seconds of a micro-batch on the slowest stage",
    "each": "seconds in which replicas exchange, each micro-batch",
    "once": "seconds in which replicas exchange, each step",
    "sends": "seconds in which a stage sends the outputs of its further pieces, each micro-batch",
    "update": "seconds of the optimizer",
}


def derive_step(speed: TrainingSpeed) -> PassDerivation:
    """A micro-batch on the stage that takes longest, forward and backward, and the step that such ones make, as
    expected."""
    figures, stage = Figures(), speed.slowest("expected")
    demand = traced_demand(figures, speed.demands[stage])
    step = replace(
        speed,
        demands=(demand,),
        work=traced(figures, speed.work, WORK),
        layout=traced(figures, speed.layout, TRAINING_LAYOUT if speed.layout.vp == 1 else INTERLEAVED),
        gpu=traced(figures, speed.gpu, GPU_FIGURES),
        trained=figures.figure("τ", speed.trained, "share of the weights that are trained"),
        shares=traced_shares(figures, speed.shares),
    )
    operations, busy = operation_steps(figures, step.parts(demand, "expected"), demand, step.forward())
    each, once = step.between_replicas("expected")
    parts = {"busy": busy, "each": each, "once": once}
    parts |= {"sends": step.between_stages("expected"), "update": step.optimizer("expected")}
    lines = [figures.step(name, seconds, "s") for name, seconds in parts.items() if seconds]
    t = {
        name: seconds and figures.figure(f"t_{name}", float(seconds), MEANINGS[name]) for name, seconds in parts.items()
    }
    whole = step.step(t["busy"], t["each"] + t["sends"], t["once"], t["update"], "expected")
    seconds = figures.figure("t_step", float(whole), "seconds of a step")
    flops = figures.figure("φ", speed.model_flops(), "FLOPs of a token, forward and backward, nothing recomputed")
    lines += [
        figures.step("step", whole, "s"),
        figures.step("rate", step.rate(seconds), "tokens/s"),
        figures.step("mfu", step.mfu(seconds, flops), "of the peak"),
    ]
    of_stage = speed.stages[stage], speed.demands[stage]
    rows = row_steps(figures, speed.rank, speed.layout.tp, *of_stage, decodes=False)
    return PassDerivation(rows=rows, machine=(), operations=operations, sums=tuple(lines), legend=figures.occurring())


# On paper


def time_section(serving: Serving, gpu: GPU, workload: Workload, cluster: Cluster = USUAL) -> Section:
    """The expected times; Plan states the ranges round them."""
    derivations = ServingDerivations(serving, gpu, workload, cluster)
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
    heading = Heading(
        title=Message("A micro-batch on the stage that takes longest, forward and backward, and the step")
    )
    return step_section(heading, *passed(derive_step(speed)))


def objective_time_section(speed: ObjectiveSpeed) -> Section:
    """The expected time of a step of one of TRL's losses: its phases, then the update line by line."""
    return step_section(
        Heading(title=Message("The phases of a step")),
        PaperTable(head=HEAD, rows=tuple(phase_rows(speed))),
        *([] if speed.engine is None else [GENERATION]),
        *speed.assumptions(),
        Heading(title=Message("The update: a micro-batch, forward and backward, and all of them")),
        *passed(derive_step(speed.update)),
    )


def step_section(*items: Item) -> Section:
    return Section(anchor="training_time", title=Message("Time of a training step"), items=(ROOFLINE, *items))


def phase_rows(speed: ObjectiveSpeed) -> Iterator[tuple[Cell, ...]]:
    """Each phase with its seconds; of generation and of the remainder how they come about."""
    usual = speed.by_end["expected"]
    working = {"rollout": generation, "remainder": remaining}
    for name, seconds in usual.items():
        formula, values = working[name](speed) if name in working else (None, None)
        yield TIMED_PHASES[name], Code(text=duration(seconds)), formula, values
    together = sum_of(*(short(seconds) for seconds in usual.values()))
    yield Message("Together"), Code(text=duration(sum(usual.values()))), None, together


def generation(speed: ObjectiveSpeed) -> tuple[Formula, Formula]:
    """Seconds of generation: prompts, decode steps while sequences wait for a place, and those until the longest is
    done."""
    parts = speed.generation("expected")
    full = [product("n_full", "t_full")] if parts.full_steps else []
    formula = sum_of("t_prompts", *full, product(sum_of("C", minus(1)), "t_last"))
    full = [product(number(f"{parts.full_steps:.0f}"), short(parts.full_s))] if full else []
    values = sum_of(short(parts.prompts_s), *full, product(parts.last_steps, short(parts.last_s)))
    return product("g", formula), product(number(f"{speed.generations:g}"), values)


def remaining(speed: ObjectiveSpeed) -> tuple[Formula, Formula]:
    """Seconds beyond the phases: a share of theirs."""
    others = [seconds for name, seconds in speed.by_end["expected"].items() if name != "remainder"]
    values = product(number(f"{remainder('expected'):g}"), sum_of(*map(short, others)))
    return product("r", "t_phases"), values


def short(seconds: float) -> Formula:
    return number(f"{seconds:.4g}")


def passed(derivation: PassDerivation) -> Iterator[Item]:
    """The lines of one pass, from the model's sizes to seconds."""
    yield Message("FLOPs of one row through each product, by the sizes of the model:")
    yield table(derivation.rows)
    if derivation.machine:
        yield Message("Shares of the printed figures that are reached:")
        yield table(derivation.machine)
    yield Message("Each kind of work:")
    yield PaperTable(head=HEAD, rows=tuple(cells(line.what, line) for line in derivation.operations))
    yield Message("Together:")
    yield table(derivation.sums)
    derived = {line.what for line in (*derivation.rows, *derivation.machine, *derivation.sums)}
    derived |= {f"t_{line.what}" for line in derivation.operations}
    yield PaperTable(
        head=(Message("Symbol"), Message("Meaning"), Message("Value")),
        rows=tuple(
            (operand(name), meaning_of(meaning), Code(text=whole_or_short(value)))
            for name, (meaning, value) in derivation.legend.items()
            if name not in derived
        ),
    )


def table(lines: Iterable[TimeStep]) -> PaperTable:
    return PaperTable(head=HEAD, rows=tuple(cells(operand(line.what), line) for line in lines))


def cells(what: Cell, line: TimeStep) -> tuple[Cell, ...]:
    return what, Code(text=amount(line)), line.formula, line.values


def meaning_of(meaning: Meaning) -> Cell:
    """A field of a config as it is, else in words."""
    is_field = isinstance(meaning, str) and "_" in meaning and " " not in meaning
    return Code(text=str(meaning)) if is_field else meaning


def duration(seconds: float) -> str:
    return f"{1000 * seconds:.4g} ms" if seconds < 1 else f"{four_digits(seconds)} s"


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
