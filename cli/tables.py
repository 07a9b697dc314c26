"""Reports for reading on a terminal."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from calc import Layout, Report, TrainingReport
from calc.errors import printable
from calc.serving.levers import layout_label
from calc.time import ComparedStep, Estimate, StepComparison
from calc.time.objective import ObjectiveTime
from calc.time.report import TimeReport
from calc.time.step_report import TrainingTimeReport
from calc.training import PHASE_NAMES, CombinedLever, RolloutReport
from calc.units import GIB, four_digits

NOTHING = "-"
Times = TimeReport | TrainingTimeReport | ObjectiveTime


def table(r: Report) -> str:
    p, m, kv = r.parameters, r.memory, r.kv_cache
    lines = [printable(r.model), "", f"{'parameters':24}{p.total:>22,}", f"{'  active':24}{p.active:>22,}"]
    lines += [f"  {name:22}{count:>22,}{count / p.total:>8.1%}" for name, count in p.components.items()]
    lines += [f"  {'not in total: ' + name:38}{n:>20,}" for name, n in p.not_in_total.items() if n]
    lines += ["", f"{'KV cache per token':24}{kv.bytes_per_token:>22,} bytes", ""]
    parts = {"weights": m.weights, "vision encoder": m.vision, "KV cache": m.kv_cache, "activations": m.activations}
    parts = {name: size for name, size in parts.items() if size or name != "vision encoder"} | {"overhead": m.overhead}
    lines += [f"{name:24}{size / GIB:>22.2f} GiB" for name, size in parts.items()]
    if r.loaded.total != m.weights:
        auxiliary = {name: size for name, size in asdict(r.loaded).items() if size and name != "weights"}
        named = ", ".join(f"{name} {size / GIB:.2f}" for name, size in auxiliary.items())
        lines.insert(1 - len(parts), f"{'  once loaded':24}{r.loaded.total / GIB:>22.2f} GiB, with {named}")
    if len(r.stages) > 1:
        lines += [f"{'  of stage ' + str(i + 1):24}{stage.total / GIB:>22.2f} GiB" for i, stage in enumerate(r.stages)]
    layout = r.scenario.layout
    if layout.gpus > 1:
        lines.append(f"{'GPUs':24}{layout.gpus:>22,} of each, {described(layout)}")
    lines += [f"{'memory per GPU':24}{m.total / GIB:>22.2f} GiB ({m.low / GIB:.2f} to {m.high / GIB:.2f})", ""]
    lines += [f"{'GPU':20}{'verdict':14}{'spare GiB':>10}{'context':>14}{'batch':>8}{'min GPUs':>10}  {'laid out':16}"]
    for v in r.verdicts:
        lines.append(
            f"{v.gpu:20}{v.verdict:14}{v.spare / GIB:>10.2f}{most(v.max_context):>14}{most(v.max_batch):>8}"
            f"{v.min_gpus or 'none':>10}"
            + f"  {described(v.layout):16}"
            + "".join(f"  {note}" for note in (*v.flags, *v.notes))
        )
    budgets = [b for b in r.kv_budget if b.bytes > 0]  # where the engine starts
    if budgets:
        lines += ["", f"{'KV cache allocated':20}{'GiB':>10}{'from':>10}{'to':>10}{'tokens':>14}{'requests':>10}"]
    for b in budgets:
        sizes = "".join(f"{size / GIB:>10.2f}" for size in (b.bytes, b.bytes_low, b.bytes_high))
        lines.append(f"{b.gpu:20}{sizes}{b.tokens:>14,}{b.concurrency:>10.2f}")
    for host in r.host:
        if (cache := host.cache) is not None:
            lines += ["", f"{host.gpu}: {cache.tokens:,} tokens, {cache.concurrency:,.2f} requests, wait on the host"]
            lines[-1] += f" in {cache.bytes / GIB:,.2f} GiB, {cache.bytes_per_rank / GIB:,.2f} for each rank"
        if host.adapters:
            lines += ["", f"{host.gpu}: LoRA adapters take {host.adapters / GIB:,.2f} GiB of the host's memory"]
    return "\n".join([*lines, "", *map(str, r.assumptions)])


def described(layout: Layout | None) -> str:
    """A layout in a word, as pages say it."""
    if layout is None:
        return ""
    return layout_label(layout) if layout.gpus > 1 else "one GPU"


def training_table(r: TrainingReport, spread: Mapping[str, CombinedLever]) -> str:
    """The report for reading. `spread` says of GPUs on which none do as it is how many do with which changes."""
    m = r.memory
    lines = [printable(r.model), "", f"{'parameters':24}{r.parameters.total:>22,}"]
    lines += [f"{'trained':24}{r.trained_parameters:>22,}", ""]
    parts = {**{str(name): size for name, size in m.parts.items()}, "overhead": m.overhead}
    lines += [f"{name:24}{size / GIB:>22.2f} GiB" for name, size in parts.items()]
    lines += [f"{'memory of one GPU':24}{m.total / GIB:>22.2f} GiB ({m.low / GIB:.2f} to {m.high / GIB:.2f})", ""]
    for name, phase in r.phases.items():
        mark = "  peak" if name == m.moment else ""
        lines.append(f"{name.replace('_', ' '):24}{phase.memory.total / GIB:>22.2f} GiB{mark}")
    lines += ["", f"{'GPU':20}{'verdict':14}{'spare GiB':>10}{'micro-batch':>13}{'sequence':>12}{'min GPUs':>10}"]
    for v in r.verdicts:
        batch, sequence = most(v.max_micro_batch), most(v.max_sequence)
        other = spread.get(v.gpu)
        gpus, notes = v.min_gpus or "none", list(map(str, v.notes))
        if other is not None:
            gpus, notes = other.gpus, [f"with {', '.join(map(str, other.what))}", *notes]
        lines.append(
            f"{v.gpu:20}{v.verdict:14}{v.spare / GIB:>10.2f}{batch:>13}{sequence:>12}{gpus:>10}"
            + "".join(f"  {note}" for note in notes)
        )
    for rollout in r.rollouts:
        lines += ["", *rollout_lines(rollout)]
    return "\n".join([*lines, "", *map(str, r.assumptions)])


def rollout_lines(r: RolloutReport) -> Iterator[str]:
    """A step with generation on one kind of GPU: its phases, and the share to give the engine."""
    yield f"{r.gpu}: {r.reason}"
    for phase in r.phases:
        mark = "  peak" if phase.name == r.peak else ""
        yield f"{phase.name.replace('_', ' '):24}{phase.total / GIB:>22.2f} GiB{mark}"
    together = "one sequence" if r.sequences == 1 else f"{r.sequences:,} sequences at once"
    shares = {"to start": r.share_low, f"for {together}": r.share_all, "at most": r.share_high}
    texts = (f"{name} {'none' if share is None else format(share, '.2f')}" for name, share in shares.items())
    yield f"{'share of the GPU':24}{', '.join(texts)}"
    yield f"{'longest completion':24}{most(r.max_completion):>22}"


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
    """The largest size; None: memory sets no limit."""
    return "unlimited" if size is None else f"{size:,}"


def times_table(times: Times) -> str:
    lines = ["", f"{'':24}{'expected':>12}{'from':>12}{'to':>12}"]
    rows: dict[str, Estimate] = {}
    if isinstance(times, ObjectiveTime):
        return "\n".join([*lines, *objective_lines(times)])
    if isinstance(times, TrainingTimeReport):
        rows = {"step, s": times.step_s, "tokens/s per GPU": times.tokens_per_s_per_gpu}
        rows |= {"TFLOP/s per GPU": times.tflops_per_gpu, "MFU": times.mfu}
        longest = times.operations[0]
        bound = f"the longest part of the step is {longest.what}, limited by {longest.bound or 'other stages'}"
        return "\n".join([*lines, *(line(name, row) for name, row in rows.items()), f"{bound}, on {times.gpu}"])
    rows = {
        "decode step, ms": times.decode.step_ms,
        "decode, tokens/s": times.decode.tokens_per_s,
        "TTFT of the batch, ms": times.prefill.ttft_ms,
        "prefill, tokens/s": times.prefill.tokens_per_s,
    }
    bounds = f"decode is limited by {times.decode.bound}, prefill by {times.prefill.bound}, on {times.gpu}"
    lines += [*(line(name, row) for name, row in rows.items()), bounds, str(times.origin.sentence), ""]
    return "\n".join([*lines, *map(str, times.assumptions)])


def objective_lines(times: ObjectiveTime) -> Iterator[str]:
    """A step with its phases, and other divisions of the same GPUs."""
    yield line("step, s", times.step_s)
    for phase in times.phases:
        yield line(f"  {phase.name.replace('_', ' ')}", phase.seconds)
    yield line("tokens/s per GPU", times.tokens_per_s_per_gpu)
    if times.generated_tokens_per_s is not None:
        yield line("generated, tokens/s", times.generated_tokens_per_s)
    yield line("steps an hour", times.steps_per_hour)
    yield line("tokens an hour", times.tokens_per_hour)
    yield f"most of the step is {PHASE_NAMES[times.longest]}, on {times.gpu}"
    for division in times.divisions:
        where = f"{division.engine_gpus} for the engine alone" if division.engine_gpus else "engine on all"
        note = "" if division.fits else "  does not fit"
        yield f"{where:24}{four_digits(division.step_s.expected):>12} s{note}"
    yield ""
    yield from map(str, times.assumptions)


def line(name: str, row: Estimate) -> str:
    return f"{name:24}" + "".join(f"{four_digits(value):>12}" for value in (row.expected, row.low, row.high))
