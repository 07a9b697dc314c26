"""How the time of a training step comes about: the functions that compute it, run on figures."""

from dataclasses import replace

from calc.time.estimate import End
from calc.time.figures import Figures, Symbol
from calc.time.time_derivation import (
    PassDerivation,
    operation_steps,
    row_steps,
    total,
    traced_demand,
    traced_gpu,
    traced_shares,
    traced_sizes,
)
from calc.time.training_time import TrainingSpeed

WORK = {
    "micro_batch": Symbol("B", "sequences of a micro-batch on each replica"),
    "sequence": Symbol("S", "tokens of a sequence"),
    "accumulation": Symbol("N_mb", "micro-batches of a step"),
}
LAYOUT = {
    "tp": Symbol("tp", "tensor-parallel ranks"),
    "pp": Symbol("pp", "pipeline stages"),
    "dp": Symbol("dp", "data-parallel replicas"),
    "cp": Symbol("cp", "context-parallel ranks"),
    "ep": Symbol("ep", "expert-parallel ranks"),
}
INTERLEAVED = LAYOUT | {"vp": Symbol("vp", "pieces of the model on each pipeline stage")}


def derive_step(speed: TrainingSpeed, end: End = "expected") -> PassDerivation:
    """A micro-batch on the stage that takes longest, forward and backward, and the step that such ones make."""
    figures = Figures()
    stage = speed.slowest(end)
    demand = traced_demand(figures, speed.demands[stage])
    traced = replace(
        speed,
        demands=(demand,),
        work=traced_sizes(figures, speed.work, WORK),
        layout=traced_sizes(figures, speed.layout, LAYOUT if speed.layout.vp == 1 else INTERLEAVED),
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
