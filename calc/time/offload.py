"""How fast a model runs of which layers, or experts, stay on the host: llama.cpp's way.

A token goes through the layers one after the other, each computed where its weights lie: the time of a step is the sum
of what each device reads at its own bandwidth, and of the states that cross the bus. In a prompt the first GPU computes
what lies on the host too: weights are copied there once a pass (ggml-backend.cpp: op_offload, from 32 tokens on).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calc.formats import Precision
from calc.formats.stored import stored_gguf
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.time.efficiency import Conditions, row
from calc.time.estimate import End, Estimate
from calc.time.forward import Forward, decode, prefill
from calc.time.roofline import Machine, Timed, bus_gb_s, machine, timed
from calc.time.time_operations import Demand, demand

STATE = 4
"""Bytes of an element of what goes from device to device: 32 bits."""
ENGINE = "llamacpp"
BUS = Conditions(ENGINE, None, 2, "pcie")
"""Of a host and a GPU."""


@dataclass(frozen=True)
class LayerRun:
    """Layers one after the other on one device; of some, routed experts are elsewhere."""

    demand: Demand
    device: int
    experts: int


class OffloadSpeed:
    """A model on GPUs, which may be unequal, and a host."""

    def __init__(
        self,
        architecture: Architecture,
        precision: Precision,
        placement: Placement,
        gpus: Sequence[GPU],
        host: GPU,
        engine: str = ENGINE,
    ) -> None:
        """`engine` is the name under which its kernels are measured."""
        self.gpus, self.host, self.precision, self.engine = gpus, host, precision, engine
        whole = architecture, architecture, precision, Layout()
        self.runs = [LayerRun(demand(*whole, layers, file=stored_gguf), *where) for layers, where in runs(placement)]

    def on(self, device: int, end: End) -> Machine:
        return machine(self.device(device), self.engine, self.precision.weights, 1, end)

    def device(self, number: int) -> GPU:
        return self.host if number == HOST else self.gpus[number]

    def bus(self, end: End) -> float:
        """Bytes a second from the host to the first GPU."""
        if self.gpus[0].memory == "unified":
            return self.gpus[0].bandwidth_gb_s * 1e9
        return bus_gb_s(self.gpus[0], "pcie") * 1e9 * row("link", BUS).value.share(end)

    def step(self, context: int, end: End, batch: int = 1) -> float:
        """Seconds of a step in which every sequence gets one more token."""
        forward = decode(batch, context)
        return float(sum(part.seconds for part in self.parts(forward, end, decodes=True)))

    def prompt(self, tokens: int, end: End, chunk: int = 512) -> float:
        """Seconds of a prompt, in passes of at most so many tokens."""
        seconds = 0.0
        for start in range(0, tokens, chunk):
            forward = prefill(1, min(chunk, tokens - start), start)
            seconds += float(sum(part.seconds for part in self.parts(forward, end, decodes=False)))
        return seconds

    def parts(self, forward: Forward, end: End, *, decodes: bool) -> Iterator[Timed]:
        """What a pass takes: operations where they are computed, what is copied, and the host."""
        before = HOST
        for run in self.runs:
            yield from self.operations(run, forward, end, decodes=decodes)
            crossings = (run.device != before) + (2 * run.demand.sparse if run.experts != run.device else 0)
            if crossings and self.gpus:
                row_bytes = run.demand.hidden * STATE * forward.tokens
                latency = row("all_reduce_us", BUS).value.duration(end) * 1e-6
                yield Timed("communication", crossings * (latency + row_bytes / self.bus(end)))
            yield Timed("host", self.on(run.device, end).host(run.demand, decodes=decodes))
            before = run.device

    def operations(self, run: LayerRun, forward: Forward, end: End, *, decodes: bool) -> Iterator[Timed]:
        """In a prompt weights on the host are copied to the first GPU and computed there, but for short ones."""
        borrowed = not decodes and bool(self.gpus) and forward.tokens >= 32
        for operation in run.demand.operations(forward):
            device = run.experts if operation.what == "experts_routed" else run.device
            if operation.what == "embedding":
                device = HOST
            elif device == HOST and borrowed and operation.weights:
                yield Timed("communication", operation.weights / self.bus(end))
                device = 0
            on = self.on(device, end)
            yield timed(operation, on)
            if not decodes:
                yield from on.prompt_kernels(run.demand, (operation,))

    def tokens_per_s(self, context: int, batch: int = 1) -> Estimate:
        """Tokens a second of all sequences."""
        return Estimate.over(lambda end: batch / self.step(context, end, batch))

    def prompt_tokens_per_s(self, tokens: int) -> Estimate:
        return Estimate.over(lambda end: tokens / self.prompt(tokens, end))


def runs(placement: Placement) -> Iterator[tuple[range, tuple[int, int]]]:
    """Layers that follow one another on the same device, with that of their experts."""
    places = [(device, placement.of_weight("ffn_up_exps.weight", i)) for i, device in enumerate(placement.layers)]
    start = 0
    for layer in range(1, len(places) + 1):
        if layer == len(places) or places[layer] != places[start]:
            yield range(start, layer), places[start]
            start = layer
