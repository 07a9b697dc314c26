"""How long a server takes for a step, for a prompt, and for both at once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calc.errors import Frozen
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.time.efficiency import Efficiency
from calc.time.estimate import End, Estimate
from calc.time.forward import Forward, decode, mixed, prefill
from calc.time.operations import Demand, demand
from calc.time.roofline import Bound, Machine, Timed, binds, communication, machine, timed


@dataclass(frozen=True)
class Speed:
    """A model laid out on GPUs of one kind under an engine, ready to be timed."""

    demands: tuple[Demand, ...]  # of each pipeline stage
    layout: Layout
    machines: Callable[[End], Machine]

    def passed(self, forward: Forward, end: End, *, decodes: bool) -> list[list[Timed]]:
        """What a pass takes on each stage: operations, communication, and the host."""
        on = self.machines(end)
        stages = []
        for demand in self.demands:
            parts = [timed(operation, on) for operation in demand.operations(forward)]
            row, top_k = demand.hidden * demand.width, demand.routing.top_k if demand.routing else 1
            between = communication(on, self.layout, demand.layers, demand.sparse, row, forward.tokens, top_k)
            if self.layout.pp > 1:
                between = between + on.all_reduce + forward.tokens * row / on.link
            parts.append(Timed("communication", between))
            each, more = (on.layer, on.sparse) if decodes else (on.prefill_layer, on.prefill_sparse)
            parts.append(Timed("host", demand.layers * each + demand.sparse * more))
            stages.append(parts)
        return stages

    def seconds(self, forward: Forward, end: End, *, decodes: bool) -> Any:
        """Of one pass through all stages."""
        return sum(part.seconds for parts in self.passed(forward, end, decodes=decodes) for part in parts)

    def step(self, batch: Any, context: Any, end: End) -> Any:
        """Seconds of a decode step in which each of `batch` sequences gets a token. Pipeline stages work on one share
        of the batch each at a time; a data-parallel copy has its share of the sequences."""
        layout = self.layout
        share = self.share(batch)
        if layout.pp == 1:
            return self.seconds(decode(share, context), end, decodes=True)
        part = decode(share_of(share, layout.pp), context)
        return self.seconds(part, end, decodes=True)

    def share(self, batch: Any) -> Any:
        """Sequences of one data-parallel copy."""
        return share_of(batch, self.layout.dp)

    def continuous(self, batch: Any, prompt: Any, output: Any, end: End) -> Any:
        """Seconds of a step of a server that is always full: `batch` sequences decode, each on average half way through
        its output, while so many prompts are prefilled in the same pass as sequences end."""
        share = share_of(batch, self.layout.dp * self.layout.pp)
        passed = mixed(decode(share, prompt + output // 2), prefill(share / output, prompt))
        return self.seconds(passed, end, decodes=True)

    def prompt(self, sequences: Any, tokens: Any, end: End, chunk: int | None = None, past: int = 0) -> Any:
        """Seconds until the first token of prompts that are passed together, in chunks of at most `chunk` tokens."""
        on = self.machines(end)
        if chunk is None or tokens <= chunk:
            return self.seconds(prefill(sequences, tokens, past), end, decodes=False) + on.request
        whole, rest = divmod(tokens, chunk)
        passes = [(chunk, past + i * chunk) for i in range(whole)] + ([(rest, past + whole * chunk)] if rest else [])
        return on.request + sum(self.seconds(prefill(sequences, new, at), end, decodes=False) for new, at in passes)


def share_of(batch: Any, parts: int) -> Any:
    """Of a batch that is divided evenly, the largest part."""
    return batch if parts == 1 else -(-batch // parts)


def speed_of(
    architecture: Architecture,
    engine: str,
    precision: Precision,
    layout: Layout,
    gpu: GPU,
    *,
    rank: Architecture | None = None,
    stages: tuple[range, ...] | None = None,
    edited: Efficiency | None = None,
    node: int = 8,
) -> Speed:
    ranges = stages or (range(architecture.num_layers),)
    rank = rank or layout.rank(architecture, None if layout.tp == 1 else -(-architecture.vocab // layout.tp))
    demands = tuple(demand(architecture, rank, precision, layout, stage) for stage in ranges)
    ranks = layout.tp * (layout.dp if layout.ep > 1 else 1)
    return Speed(
        demands=demands,
        layout=layout,
        machines=lambda end: machine(gpu, engine, precision.weights, ranks, end, edited, node),
    )
