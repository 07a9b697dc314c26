"""Roofline, doi:10.1145/1498765.1498785: an operation takes the larger of its arithmetic and its memory traffic; links
and the host add theirs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from calc.formats import WeightFormat
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.time.efficiency import (
    Efficiency,
    EfficiencyRow,
    Route,
    TrainingEfficiency,
    deciding_rows,
    efficiency,
    row,
)
from calc.time.estimate import End, Estimate
from calc.time.time_operations import Demand, Operation, What

Work = What | Literal["communication", "host", "elementwise", "unpacking", "softmax"]
Bound = Literal["compute", "bandwidth", "link", "host"]
HALF: tuple[Dtype, ...] = ("bf16", "fp16", "fp32")
ARITHMETIC: dict[WeightFormat, tuple[Dtype, ...]] = {
    "fp32": ("fp32",),
    "fp16": ("fp16", "fp32"),
    "fp8": ("fp8", *HALF),
    "fp8-channel": ("fp8", *HALF),
    "fp8-tensor": ("fp8", *HALF),
    "mxfp8": ("fp8", *HALF),
    "int8": ("int8", *HALF),
    "nvfp4": ("fp4", *HALF),
}
"""What a product of quantized weights is computed in where the GPU has units for it; all other formats are turned into
16 bits first."""
PCIE_GB_S = {"3.0": 0.985, "4.0": 1.969, "5.0": 3.938, "6.0": 7.563}
"""GB/s of a lane, one direction: PCI-SIG's rates less their encoding."""
POWERED = 0.7
"""What the power of a board allows, as a share of what its units do: of those measured in the median, where the
catalogue does not know it."""
UNKNOWN = 1e12
"""TFLOPS of a user's own GPU whose peak was not typed: never what binds."""
Seconds = Any
"""A number, or an array of them."""


def arithmetic(weights: WeightFormat, gpu: GPU) -> Dtype:
    """What the GPU computes products with weights of a format in."""
    return next((dtype for dtype in ARITHMETIC.get(weights, HALF) if dtype in gpu.tflops), HALF[0])


def path(gpu: GPU, ranks: int, node: int) -> Route:
    """What connects so many GPUs: their links as far as they reach, PCIe within a node."""
    if gpu.link_gb_s is not None and ranks <= (gpu.link_gpus or node):
        return "link"
    return "pcie" if ranks <= node else "network"


def bus_gb_s(gpu: GPU, over: Route) -> float:
    """One direction of a GPU's links, or of its bus."""
    if over == "link":
        return (gpu.link_gb_s or 0) / 2
    generation, _, lanes = (gpu.pcie or "4.0 x16").partition(" x")
    return PCIE_GB_S.get(generation, PCIE_GB_S["4.0"]) * float(lanes or 16)


def path_gb_s(gpu: GPU, over: Route, shares: Efficiency | TrainingEfficiency, end: End) -> float:
    """One direction of what connects GPUs, as it is reached."""
    if over == "network":
        return shares.inter_node_gb_s.share(end)
    return bus_gb_s(gpu, over) * shares.link.share(end)


@dataclass(frozen=True, slots=True)
class Machine:
    """What one GPU does in a second, its links and its host, at one end of their ranges; numbers or arrays of them."""

    peak: Any  # FLOP/s of products with weights in 16 bits
    peak_quantized: Any
    peak_experts: Any
    peak_attention: Any
    bandwidth: Any  # bytes/s
    bandwidth_quantized: Any
    bandwidth_experts: Any
    bandwidth_cache: Any
    layer: Any  # s a layer and pass, decode
    sparse: Any  # what routed experts add to it
    latent: Any  # what latent attention adds
    linear: Any  # what a recurrence adds
    indexer: Any  # what an indexer of sparse attention adds
    quantize: Any  # what quantizing the activations adds
    prefill_layer: Any
    prefill_sparse: Any
    prefill_latent: Any
    prefill_linear: Any
    request: Any  # s a request
    admission: Any  # s until a busy server admits one
    queue: Any  # share of the prompts ahead for which one waits
    all_reduce: Any  # s each
    link: Any  # bytes/s, one direction

    def compute(self, operation: Operation) -> Seconds:
        if operation.what == "scores":
            return operation.flops / self.peak_attention
        if operation.what == "experts_routed":
            return operation.flops / self.peak_experts
        return operation.flops / either(operation.quantized, self.peak_quantized, self.peak)

    def memory(self, operation: Operation) -> Seconds:
        weights = either(operation.quantized, self.bandwidth_quantized, self.bandwidth)
        weights = self.bandwidth_experts if operation.what == "experts_routed" else weights
        rest = operation.cache + operation.activations
        return operation.weights / weights + rest / self.bandwidth_cache

    def host(self, stage: Demand, *, decodes: bool) -> Seconds:
        """Seconds in which the host launches a stage's layers, by their kinds, which differ in kernels."""
        if not decodes:
            kinds = stage.latent * self.prefill_latent + stage.linear * self.prefill_linear
            return stage.layers * self.prefill_layer + stage.sparse * self.prefill_sparse + kinds
        plain = stage.layers * (self.layer + self.quantize) + stage.sparse * self.sparse
        return plain + stage.latent * self.latent + stage.linear * self.linear + stage.indexed * self.indexer


def usual_rows(gpu: GPU, engine: str, weights: WeightFormat, ranks: int, node: int = 8) -> Mapping[str, EfficiencyRow]:
    """The shares of a GPU of which so many share a layer, each with its source."""
    plain, narrow = arithmetic("bf16", gpu), arithmetic(weights, gpu)
    return deciding_rows(gpu.generation, engine, plain, narrow, ranks, path(gpu, ranks, node), weights)


def usual_shares(gpu: GPU, engine: str, weights: WeightFormat, ranks: int, node: int = 8) -> Efficiency:
    """Their figures."""
    plain, narrow = arithmetic("bf16", gpu), arithmetic(weights, gpu)
    return efficiency(gpu.generation, engine, plain, narrow, ranks, path(gpu, ranks, node), weights)


def machine(
    gpu: GPU, engine: str, weights: WeightFormat, ranks: int, end: End, edited: Efficiency | None = None, node: int = 8
) -> Machine:
    """Peaks and bandwidths of a GPU times their shares. `ranks` GPUs share a layer; `edited` are the shares to take
    instead of the usual ones."""
    plain, narrow = arithmetic("bf16", gpu), arithmetic(weights, gpu)
    over = path(gpu, ranks, node)
    shares = edited or efficiency(gpu.generation, engine, plain, narrow, ranks, over, weights)
    watt = row("watt_tflops", engine, gpu.generation, weights=weights).value.share(end)

    def reached(dtype: Dtype, share: Estimate) -> float:
        """FLOP/s at a share of the peak, held by the board's power: both take their time."""
        rate = gpu.tflops.get(dtype, UNKNOWN) * 1e12 * share.share(end)
        if not watt:
            return rate
        powered = watt * gpu.tdp_w * 1e12 if gpu.tdp_w else POWERED * rate
        return 1 / (1 / rate + 1 / powered)

    bandwidth = gpu.bandwidth_gb_s * 1e9
    return Machine(
        peak=reached(plain, shares.matmul),
        peak_quantized=reached(narrow, shares.matmul_quantized),
        peak_experts=reached(narrow, shares.experts_matmul),
        peak_attention=reached(plain, shares.attention),
        bandwidth=bandwidth * shares.bandwidth.share(end),
        bandwidth_quantized=bandwidth * shares.bandwidth_quantized.share(end),
        bandwidth_experts=bandwidth * shares.experts_bandwidth.share(end),
        bandwidth_cache=bandwidth * shares.cache.share(end),
        layer=shares.layer_us.duration(end) * 1e-6,
        sparse=shares.sparse_us.duration(end) * 1e-6,
        latent=shares.latent_us.duration(end) * 1e-6,
        linear=shares.linear_us.duration(end) * 1e-6,
        indexer=shares.indexer_us.duration(end) * 1e-6,
        quantize=shares.quantize_us.duration(end) * 1e-6,
        prefill_layer=shares.prefill_layer_us.duration(end) * 1e-6,
        prefill_sparse=shares.prefill_sparse_us.duration(end) * 1e-6,
        prefill_latent=shares.prefill_latent_us.duration(end) * 1e-6,
        prefill_linear=shares.prefill_linear_us.duration(end) * 1e-6,
        request=shares.request_ms.duration(end) * 1e-3,
        admission=shares.admission_ms.duration(end) * 1e-3,
        queue=shares.queue.duration(end),
        all_reduce=shares.all_reduce_us.duration(end) * 1e-6,
        link=path_gb_s(gpu, over, shares, end) * 1e9,
    )


def either(condition: Any, a: Any, b: Any) -> Any:
    """The first where a condition holds, else the second; of conditions in an array each for its own."""
    if isinstance(condition, bool):
        return a if condition else b
    if isinstance(condition, np.ndarray):
        return np.where(condition, a, b)
    return a * condition + b * (1 - condition)


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, or of each pair in two arrays."""
    if isinstance(a, np.ndarray):
        return np.maximum(a, b)
    return a * (a >= b) + b * (b > a)


class Timed(NamedTuple):
    """How long an operation takes, and what binds it."""

    what: Work
    seconds: Seconds
    compute: Seconds = 0.0
    memory: Seconds = 0.0

    @property
    def figures(self) -> tuple[Seconds, Seconds, Seconds]:
        return self.seconds, self.compute, self.memory

    def times(self, factor: Any) -> "Timed":
        """So many times as long."""
        return Timed(self.what, self.seconds * factor, self.compute * factor, self.memory * factor)

    def is_bound_by(self, bound: Bound) -> Any:
        """Whether something is what binds it; of arrays each for its own."""
        if self.what in ("communication", "host"):
            return bound == ("link" if self.what == "communication" else "host")
        if bound == "compute":
            return self.compute > self.memory
        return self.compute <= self.memory if bound == "bandwidth" else False

    @property
    def bound(self) -> Bound:
        return next(bound for bound in get_args(Bound) if self.is_bound_by(bound))


def timed(operation: Operation, on: Machine) -> Timed:
    """The larger of an operation's arithmetic and its memory traffic."""
    compute, memory = on.compute(operation), on.memory(operation)
    return Timed(operation.what, larger(compute, memory), compute, memory)


def all_reduce(on: Machine, ranks: Any, nbytes: Any) -> Seconds:
    """A ring over `ranks` GPUs: each sends its share twice, arXiv:1802.05799."""
    return either(ranks == 1, 0.0, on.all_reduce + 2 * (ranks - 1) / ranks * nbytes / on.link)


def all_to_all(on: Machine, ranks: Any, nbytes: Any) -> Seconds:
    """Each GPU sends all but its own share of what it has."""
    return either(ranks == 1, 0.0, on.all_reduce + (ranks - 1) / ranks * nbytes / on.link)


def sharing(layout: Layout, *, experts: bool) -> Any:
    """GPUs that work on one layer together: those of a copy, of all copies where these share routed experts."""
    return layout.tp * layout.dp if experts else layout.tp


def communication(on: Machine, layout: Layout, layers: int, sparse: int, row: Any, tokens: Any, top_k: int) -> Seconds:
    """Of all layers of a stage: two all-reduces each over the tensor-parallel ranks. `row` are bytes of a hidden state.

    Where data-parallel copies share routed experts: whole experts are sent tokens, and send them back, instead of the
    second; of experts in slices every rank gathers the tokens of all copies, and hands out its part of their sums."""
    whole = all_reduce(on, layout.tp, tokens * row)
    alone = 2 * layers * whole
    if not sparse:
        return alone
    reach = either(layout.ep < top_k, layout.ep, top_k)
    sent = (2 * layers - sparse) * whole + 2 * sparse * all_to_all(on, layout.ep, tokens * reach * row)
    gathered = alone + 2 * sparse * all_to_all(on, layout.dp, layout.dp * tokens * row)
    return either(layout.dp == 1, alone, either(layout.ep == 1, gathered, sent))


def shared_tokens(on: Machine, dcp: Any, layers: Any, nbytes: Any) -> Seconds:
    """Ranks that share cached tokens gather the queries, attend to their own tokens, gather the sums of the softmax and
    hand out their parts of the outputs: three collectives a layer (vLLM `dcp_comm_backend`, ag_rs). `nbytes` are a
    rank's own queries and outputs, of all layers."""
    return either(dcp == 1, 0.0, 3 * layers * on.all_reduce + (dcp - 1) * nbytes / on.link)


def binds(parts: Iterable[Timed]) -> Bound:
    """What takes the most time."""
    times: dict[Bound, float] = {}
    for part in parts:
        times[part.bound] = times.get(part.bound, 0.0) + float(part.seconds)
    return max(times, key=lambda bound: times[bound])
