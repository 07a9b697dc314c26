"""How each time comes about: the functions that compute it, run on figures that remember their formulas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from calc.errors import Frozen
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.derivation import Legend
from calc.serving.memory import Serving
from calc.serving.workload import Workload
from calc.time.efficiency import SHARE_SYMBOLS, Efficiency, Shares, efficiency
from calc.time.estimate import End, Estimate
from calc.time.figures import Figure, Figures, Symbol, TimeStep, symbols_of
from calc.time.flops import matrices_within, product_flops, unrolled
from calc.time.forward import Forward, PassPart
from calc.time.roofline import MACHINE, Machine, Timed, kind_of, sharing
from calc.time.serving_time import Speed, chunked, halfway, share_of, speed_on
from calc.time.time_operations import Demand, Operation, attending_mixers, of_all_layers
from calc.time.training_time import TrainingSpeed


class OperationSteps(Frozen):
    """One kind of work: its FLOPs, the bytes that it moves, and how long it takes."""

    what: str
    flops: TimeStep | None = None
    bytes: TimeStep | None = None
    time: TimeStep


class PassDerivation(Frozen):
    """One pass of a stage. Each line's symbols are derived by a line of those before it, or stand in the legend."""

    rows: tuple[TimeStep, ...]  # FLOPs of one row through the products of a stage
    machine: tuple[TimeStep, ...]  # what of the printed figures is reached
    operations: tuple[OperationSteps, ...]
    sums: tuple[TimeStep, ...]
    legend: Legend


class TracedEstimate(NamedTuple):
    """An estimate whose ends are figures."""

    figures: Figures
    estimate: Estimate
    symbol: Symbol

    def share(self, end: End) -> Figure:
        return self.figures.named_as(self.symbol, self.estimate.share(end))

    def duration(self, end: End) -> Figure:
        return self.figures.named_as(self.symbol, self.estimate.duration(end))


def traced_shares(figures: Figures, shares: Shares) -> Any:
    """Efficiencies whose ends are figures."""
    traced: dict[str, Any] = {name: TracedEstimate(figures, each, SHARE_SYMBOLS[name]) for name, each in shares}
    return type(shares).model_construct(**traced)


def traced_gpu(figures: Figures, gpu: GPU) -> GPU:
    """A GPU with figures for its bandwidth, peaks and link."""
    link = gpu.link_gb_s
    return gpu.model_copy(
        update={
            "bandwidth_gb_s": figures.figure("b_GPU", gpu.bandwidth_gb_s, "GB/s of memory, printed"),
            "tflops": {
                dtype: figures.figure(f"P_{dtype}", peak, f"TFLOPS in {dtype}, printed")
                for dtype, peak in gpu.tflops.items()
            },
            "link_gb_s": link and figures.figure("l_GPU", link, "GB/s of the link, both directions, printed"),
        }
    )


def traced_sizes(figures: Figures, sizes: Any, symbols: Mapping[str, Symbol]) -> Any:
    """A workload or layout with figures for some of its fields."""
    return sizes.model_copy(
        update={name: figures.named_as(symbol, getattr(sizes, name)) for name, symbol in symbols.items()}
    )


def traced_demand(figures: Figures, demand: Demand) -> Demand:
    """A demand with figures for what does not depend on the pass."""

    def traced(symbol: Symbol, size: Any) -> Any:
        if isinstance(size, dict):
            return {key: traced(symbol.of(key), each) for key, each in size.items()}
        return figures.named_as(symbol, size) if size else size

    def size(field: str, value: int) -> Any:
        return Figure(value, figures.of(field, value))

    symbols = symbols_of(Demand)
    sizes: dict[str, Any] = {
        field.name: size(field.name, demand.hidden)
        if field.name == "hidden"
        else traced(symbols[field.name], getattr(demand, field.name))
        for field in fields(demand)
        if field.name in symbols or field.name == "hidden"
    }
    if (routing := demand.routing) is not None:
        sizes["routing"] = replace(
            routing, experts=size("n_experts", routing.experts), top_k=size("top_k", routing.top_k)
        )
    return replace(demand, **sizes)


def row_steps(
    figures: Figures, rank: Architecture, stage: Sequence[range], demand: Demand, *, decodes: bool
) -> Iterator[TimeStep]:
    """FLOPs of a row through each product, and of a query-key pair, by the sizes of the model."""
    formulas = figures.apply(unrolled(rank))
    for product, formula in product_flops(formulas, matrices_within(formulas, *stage), *stage).items():
        yield figures.step(f"φ_{product}", Figure(demand.flops[product], formula), "FLOPs")
    name = "absorbed" if decodes else "pairs"
    symbol, pairs = symbols_of(Demand)[name], getattr(demand, name)
    attending = attending_mixers(formulas, *stage)
    backs = of_all_layers(attending, lambda mixer: mixer.pair_flops(absorbed=decodes))
    for (back, value), formula in zip(pairs.items(), backs.values(), strict=True):
        yield figures.step(symbol.of(back).name, Figure(value, formula), "FLOPs")


def named_machine(figures: Figures, on: Machine) -> Machine:
    """A machine with a figure for each of its own."""
    return Machine(**{name: figures.named_as(symbol, float(getattr(on, name))) for name, symbol in MACHINE.items()})


def operation_steps(figures: Figures, parts: Iterable[Timed], operations: Iterable[Operation]) -> list[OperationSteps]:
    """The lines of each kind of work that takes time."""
    by_what: dict[Any, Operation] = {operation.what: operation for operation in operations}
    return [steps_of(figures, part, by_what.get(part.what)) for part in parts if part.seconds]


def steps_of(figures: Figures, part: Timed, operation: Operation | None) -> OperationSteps:
    seconds = figures.step(f"t_{part.what}", part.seconds, "s")
    if operation is None:
        return OperationSteps(what=part.what, time=seconds)
    sides = [figures.step(part.what, side, "s") for side in (part.compute, part.memory) if side]
    if len(sides) == 2:
        both = {name: f"max({', '.join(getattr(side, name) for side in sides)})" for name in ("formula", "values")}
        seconds = seconds.model_copy(update=both)
    return OperationSteps(
        what=part.what,
        flops=figures.step(part.what, operation.flops, "FLOPs") if operation.flops else None,
        bytes=figures.step(part.what, operation.bytes, "bytes") if operation.bytes else None,
        time=seconds,
    )


def total(figures: Figures, times: Iterable[tuple[str, float]]) -> Any:
    """The sum of times that other lines derive."""
    return sum(figures.figure(name, seconds, "seconds") for name, seconds in times if seconds)


class ServingDerivations:
    """A server's times, derived: a decode step, a prompt's first pass, and what they come to, at one end of their
    ranges."""

    def __init__(
        self,
        serving: Serving,
        gpu: GPU,
        workload: Workload,
        *,
        end: End = "expected",
        edited: Efficiency | None = None,
        node: int = 8,
    ) -> None:
        self.serving, self.gpu, self.workload, self.end, self.node = serving, gpu, workload, end, node
        self.engine = serving.engine.kernels
        laid_out = serving.laid_out
        self.speed = speed_on(gpu, serving, edited=edited, node=node)
        ranks = sharing(laid_out.layout, experts=self.speed.demands[0].routing is not None)
        self.shares = edited or efficiency(*kind_of(gpu, self.engine, laid_out.precision.weights, ranks, node))

    def decode(self, stage: int = 0) -> PassDerivation:
        """A step halfway through the output."""
        work, figures = self.workload, Figures()
        context = halfway(work)
        plain = self.speed.decoding(work.batch, context)
        batch = figures.figure("B", plain.parts[0].sequences, "sequences of a rank in this pass")
        length = figures.figure("S", context, "tokens of a sequence, the new one included")
        forward = Forward((PassPart(batch, 1, length - 1, decodes=True),), logits=batch)
        stages = [float(sum(part.seconds for part in parts)) for parts in self.by_stage(plain, decodes=True)]

        pace = float(self.speed.pace(work.batch))

        def sums(stages_in_turn: Figure) -> Iterator[TimeStep]:
            step = stages_in_turn
            if pace > 1:
                step = stages_in_turn * figures.figure("w_pp", pace, "wait for the longest pipeline stage")
            yield figures.step("step", step, "s")
            seconds = figures.figure("t_step", float(step), "seconds of a step")
            yield figures.step("rate", figures.figure("N", work.batch, "sequences in all") / seconds, "tokens/s")

        return self.derived(figures, forward, stage, stages, decodes=True, sums=sums)

    def prefill(self, stage: int = 0) -> PassDerivation:
        """The first pass of the prompts, and the others in all."""
        work, figures = self.workload, Figures()
        limits = self.serving.on(self.gpu, work).limits
        share = share_of(work.batch, self.speed.layout.dp)
        plain, *others = chunked(share, work.prompt, limits.step_tokens)
        (part,) = plain.parts
        sequences = figures.figure("B", part.sequences, "sequences of a rank in this pass")
        tokens = figures.figure("T", part.new, "tokens of each")
        logits = plain.logits and figures.figure("T_l", plain.logits, "rows of logits")
        stages = [
            float(sum(stage_part.seconds for stage_part in parts)) for parts in self.by_stage(plain, decodes=False)
        ]
        rest = sum(float(self.speed.seconds(other, self.end, decodes=False)) for other in others)

        def sums(first: Figure) -> Iterator[TimeStep]:
            yield figures.step("pass", first, "s")
            seconds = figures.figure("t_pass", float(first), "seconds of this pass")
            on = self.speed.machines(self.end)
            ttft = total(figures, [("t_request", on.request)]) + seconds
            if rest:
                ttft = ttft + figures.figure("t_rest", rest, "seconds of the other passes")
            yield figures.step("ttft", ttft, "s")
            first_token = figures.figure("TTFT", float(ttft), "seconds until the last prompt's first token")
            prompts = figures.figure("N", work.batch, "prompts") * figures.figure("S", work.prompt, "tokens of each")
            yield figures.step("rate", prompts / first_token, "tokens/s")

        forward = Forward((PassPart(sequences, tokens),), logits=logits)
        return self.derived(figures, forward, stage, stages, decodes=False, sums=sums)

    def by_stage(self, forward: Forward, *, decodes: bool) -> Iterator[list[Timed]]:
        """The parts of each stage alone."""
        for demand in self.speed.demands:
            yield list(replace(self.speed, demands=(demand,)).parts(forward, self.end, decodes=decodes))

    def derived(
        self, figures: Figures, forward: Forward, stage: int, stages: list[float], *, decodes: bool, sums: Any
    ) -> PassDerivation:
        """One stage in full, the others by their seconds."""
        laid_out = self.serving.laid_out
        stage_demand = self.speed.demands[stage]
        demand = traced_demand(figures, stage_demand)
        gpu, shares = traced_gpu(figures, self.gpu), traced_shares(figures, self.shares)
        reached = speed_on(gpu, self.serving, edited=shares, node=self.node).machines(self.end)
        on = named_machine(figures, reached)
        layout = traced_sizes(figures, laid_out.layout, LAYOUT)
        speed = Speed((demand,), layout, lambda end: on, self.speed.prompts)
        parts = [part for part in speed.parts(forward, self.end, decodes=decodes) if part.seconds]
        operations = operation_steps(figures, parts, demand.operations(forward))
        here = total(figures, [(f"t_{part.what}", float(part.seconds)) for part in parts])
        lines: list[TimeStep] = []
        if len(stages) > 1:
            lines.append(figures.step(f"t_stage_{stage + 1}", here, "s"))
            here = total(figures, [(f"t_stage_{i + 1}", seconds) for i, seconds in enumerate(stages)])
        lines += sums(here)
        rows = tuple(row_steps(figures, laid_out.rank, (laid_out.ranges[stage],), stage_demand, decodes=decodes))
        return PassDerivation(
            rows=rows,
            machine=tuple(
                figures.step(symbol.name, getattr(reached, name), symbol.unit)
                for name, symbol in MACHINE.items()
                if symbol.name in figures.used  # by a line before
            ),
            operations=tuple(operations),
            sums=tuple(lines),
            legend=figures.occurring(),
        )


LAYOUT = {
    "tp": Symbol("tp", "tensor-parallel ranks"),
    "pp": Symbol("pp", "pipeline stages"),
    "dp": Symbol("dp", "data-parallel copies"),
    "ep": Symbol("ep", "expert-parallel ranks"),
}


WORK = {
    "micro_batch": Symbol("B", "sequences of a micro-batch on each replica"),
    "sequence": Symbol("S", "tokens of a sequence"),
    "accumulation": Symbol("N_mb", "micro-batches of a step"),
}
TRAINING_LAYOUT = {
    "tp": Symbol("tp", "tensor-parallel ranks"),
    "pp": Symbol("pp", "pipeline stages"),
    "dp": Symbol("dp", "data-parallel replicas"),
    "cp": Symbol("cp", "context-parallel ranks"),
    "ep": Symbol("ep", "expert-parallel ranks"),
}
INTERLEAVED = TRAINING_LAYOUT | {"vp": Symbol("vp", "pieces of the model on each pipeline stage")}


def derive_step(speed: TrainingSpeed, end: End = "expected") -> PassDerivation:
    """A micro-batch on the stage that takes longest, forward and backward, and the step that such ones make."""
    figures = Figures()
    stage = speed.slowest(end)
    demand = traced_demand(figures, speed.demands[stage])
    traced = replace(
        speed,
        demands=(demand,),
        work=traced_sizes(figures, speed.work, WORK),
        layout=traced_sizes(figures, speed.layout, TRAINING_LAYOUT if speed.layout.vp == 1 else INTERLEAVED),
        gpu=traced_gpu(figures, speed.gpu),
        shares=traced_shares(figures, speed.shares),
        trained=figures.figure("τ", speed.trained, "share of the weights that are trained"),
    )
    parts = [part for part in traced.parts(demand, end) if part.seconds]
    operations = operation_steps(figures, parts, demand.operations(traced.forward()))
    busy = total(figures, [(f"t_{part.what}", float(part.seconds)) for part in parts])
    lines = [figures.step("busy", busy, "s")]
    rest = dict(zip(("each", "once"), traced.between_replicas(end), strict=True))
    rest |= {"sends": traced.between_stages(end), "update": traced.optimizer(end)}
    lines += [figures.step(name, seconds, "s") for name, seconds in rest.items() if seconds]
    named = {
        name: seconds and figures.figure(f"t_{name}", float(seconds), MEANINGS[name])
        for name, seconds in {"busy": busy, **rest}.items()
    }
    step = traced.step(named["busy"], named["each"] + named["sends"], named["once"], named["update"], end)
    seconds = figures.figure("t_step", float(step), "seconds of a step")
    flops = figures.figure("φ", speed.model_flops(), "FLOPs of a token, forward and backward, nothing recomputed")
    lines += [
        figures.step("step", step, "s"),
        figures.step("rate", traced.rate(seconds), "tokens/s"),
        figures.step("mfu", traced.mfu(seconds, flops), "of the peak"),
    ]
    rows = row_steps(figures, speed.rank, speed.stages[stage], speed.demands[stage], decodes=False)
    return PassDerivation(
        rows=tuple(rows), machine=(), operations=tuple(operations), sums=tuple(lines), legend=figures.occurring()
    )


MEANINGS = {
    "busy": "seconds of a micro-batch on the slowest stage",
    "each": "seconds in which replicas exchange, each micro-batch",
    "once": "seconds in which replicas exchange, each step",
    "sends": "seconds in which a stage hands on what its further pieces make, each micro-batch",
    "update": "seconds of the optimizer",
}
