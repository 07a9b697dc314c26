"""Reports for reading on a terminal."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from calc import Layout, Report, TrainingReport
from calc.errors import printable
from calc.serving.levers import spelled
from calc.training import RolloutReport, Together
from calc.units import GIB


def table(r: Report) -> str:
    """The report for reading."""
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
        context = "unlimited" if v.max_context is None else f"{v.max_context:,}"
        batch = "unlimited" if v.max_batch is None else f"{v.max_batch:,}"
        lines.append(
            f"{v.gpu:20}{v.verdict:14}{v.spare / GIB:>10.2f}{context:>14}{batch:>8}{v.min_gpus or 'none':>10}"
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
    return spelled(layout) if layout.gpus > 1 else "one GPU"


def training_table(r: TrainingReport, spread: Mapping[str, Together]) -> str:
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
        batch = "unlimited" if v.max_micro_batch is None else f"{v.max_micro_batch:,}"
        sequence = "unlimited" if v.max_sequence is None else f"{v.max_sequence:,}"
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
    longest = "unlimited" if r.max_completion is None else f"{r.max_completion:,}"
    yield f"{'longest completion':24}{longest:>22}"
