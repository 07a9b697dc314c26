"""Roofline, doi:10.1145/1498765.1498785: an operation takes the larger of its arithmetic and its memory traffic; links
and the host add theirs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from calc.formats import WeightFormat
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.remembered import remembered
from calc.time.arrays import Array, Indices, any_nonzero, first_equal, maximum, where
from calc.time.cluster import USUAL, Cluster
from calc.time.efficiency import SERVING_SHARES, Conditions, Route, efficiency, row
from calc.time.estimate import End
from calc.time.figures import Symbol, symbols_of
from calc.time.operations import Demand, Operation, What

Work = What | Literal["communication", "host", "elementwise", "unpacking", "softmax"]
Bound = Literal["compute", "bandwidth", "link", "host"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
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
"""Types that products of quantized weights are computed in on GPUs with units for them; other formats are turned into
16 bits first."""
PCIE_GB_S = {"3.0": 0.985, "4.0": 1.969, "5.0": 3.938, "6.0": 7.563}
"""GB/s of a lane, one direction: PCI-SIG's rates less their encoding."""
POWER_LIMITED = 0.7
"""Share of its units' peak that a board's power allows: the median of those measured, where the catalogue does not know
it."""
UNKNOWN_RATE = 1e12
"""TFLOPS of a user's own GPU whose peak was not typed: never what binds."""
Seconds = Any
"""A number, or an array of them."""
Powered = Callable[[Any], Any]
"""FLOP/s that the power of a board leaves of so many."""


def product_dtype(weights: WeightFormat, gpu: GPU) -> Dtype:
    """Data type in which the GPU multiplies weights of a format."""
    return next((dtype for dtype in ARITHMETIC.get(weights, HALF) if dtype in gpu.tflops), HALF[0])


def bus_gb_s(gpu: GPU, over: Route) -> float:
    """One direction of a GPU's links, or of its bus."""
    if over == "link":
        return (gpu.link_gb_s or 0) / 2
    generation, _, lanes = (gpu.pcie or "4.0 x16").partition(" x")
    return PCIE_GB_S.get(generation, PCIE_GB_S["4.0"]) * float(lanes or 16)


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one GPU, its links and its host, at one end of their ranges; numbers or arrays."""

    peak: Annotated[Any, Symbol("P", "FLOP/s of products", "FLOP/s")]  # with weights in 16 bits
    peak_quantized: Annotated[Any, Symbol("P_q", "FLOP/s of products of quantized weights", "FLOP/s")]
    peak_experts: Annotated[Any, Symbol("P_e", "FLOP/s of routed experts", "FLOP/s")]
    peak_attention: Annotated[Any, Symbol("P_a", "FLOP/s of attention", "FLOP/s")]
    bandwidth: Annotated[Any, Symbol("b", "bytes/s of weights", "bytes/s")]
    bandwidth_quantized: Annotated[Any, Symbol("b_q", "bytes/s of quantized weights", "bytes/s")]
    bandwidth_experts: Annotated[Any, Symbol("b_e", "bytes/s of routed experts", "bytes/s")]
    bandwidth_cache: Annotated[Any, Symbol("b_c", "bytes/s of cache and activations", "bytes/s")]
    layer: Annotated[Any, Symbol("t_layer", "seconds of the host for a layer, decode", "s")]
    sparse: Annotated[Any, Symbol("t_sparse", "seconds more where experts are routed, decode", "s")]
    latent: Annotated[Any, Symbol("t_latent", "seconds more of latent attention, decode", "s")]
    linear: Annotated[Any, Symbol("t_linear", "seconds more of a recurrence, decode", "s")]
    indexer: Annotated[Any, Symbol("t_indexer", "seconds more of an indexer, decode", "s")]
    quantize: Annotated[Any, Symbol("t_quantize", "seconds more where activations are quantized, decode", "s")]
    prefill_layer: Annotated[Any, Symbol("t_layer_p", "seconds of the host for a layer, prefill", "s")]
    prefill_sparse: Annotated[Any, Symbol("t_sparse_p", "seconds more where experts are routed, prefill", "s")]
    prefill_latent: Annotated[Any, Symbol("t_latent_p", "seconds more of latent attention, prefill", "s")]
    prefill_linear: Annotated[Any, Symbol("t_linear_p", "seconds more of a recurrence, prefill", "s")]
    request: Annotated[Any, Symbol("t_request", "seconds of the host for a request", "s")]
    admission: Annotated[Any, Symbol("t_admit", "seconds until a busy server admits a request", "s")]
    queue: Annotated[Any, Symbol("q_wait", "share of the prompts ahead for which a request waits")]
    all_reduce: Annotated[Any, Symbol("t_reduce", "seconds of a collective, whatever its size", "s")]
    link: Annotated[Any, Symbol("l", "bytes/s of what connects the GPUs, one direction", "bytes/s")]
    unpacked: Any = 0.0  # seconds of a byte of quantized weights, where prefill unpacks them first
    score: Any = 0.0  # seconds of a score, where it passes through memory: prefill without flash attention

    def compute(self, operation: Operation) -> Seconds:
        if operation.what == "scores":
            return operation.flops / self.peak_attention
        if operation.what == "experts_routed":
            return operation.flops / self.peak_experts
        return operation.flops / where(operation.quantized, self.peak_quantized, self.peak)

    def memory(self, operation: Operation) -> Seconds:
        weights = where(operation.quantized, self.bandwidth_quantized, self.bandwidth)
        weights = self.bandwidth_experts if operation.what == "experts_routed" else weights
        rest = operation.cache + operation.activations
        return operation.weights / weights + rest / self.bandwidth_cache

    def host(self, stage: Demand, *, decodes: bool) -> Seconds:
        """Seconds in which the host launches a stage's layers, by their kinds, which differ in kernels."""
        if not decodes:
            kinds = stage.mla_layers * self.prefill_latent + stage.recurrent_layers * self.prefill_linear
            return stage.layers * self.prefill_layer + stage.moe_layers * self.prefill_sparse + kinds
        plain = stage.layers * (self.layer + self.quantize) + stage.moe_layers * self.sparse
        return (
            plain
            + stage.mla_layers * self.latent
            + stage.recurrent_layers * self.linear
            + stage.indexer_layers * self.indexer
        )

    def prompt_kernels(self, stage: Demand, operations: Sequence[Operation]) -> "Iterator[Timed]":
        """Further traffic of prefill."""
        if self.unpacked and (packed := sum(operation.weights for operation in operations if operation.quantized)):
            unpacked = packed * self.unpacked
            yield Timed("unpacking", unpacked, memory=unpacked)
        if self.score and stage.pair_flops:
            flops = sum(operation.flops for operation in operations if operation.what == "scores")
            scores = flops * stage.query_heads / sum(stage.pair_flops.values()) * self.score
            yield Timed("softmax", scores, memory=scores)


MACHINE = symbols_of(Machine)
LAUNCHES: tuple[str, ...] = ("layer", "sparse", "latent", "linear", "indexer", "quantize")
LAUNCHES += ("prefill_layer", "prefill_sparse", "prefill_latent", "prefill_linear")
"""Figures of the host's time."""


def achieved(
    share: Callable[[str], Any],
    plain: Any,
    narrow: Any,
    bandwidth: Any,
    bus: Any,
    network: Any,
    powered: Powered | None = None,
    **in_prompts: float,
) -> Machine:
    """A machine of printed figures: FLOP/s of products in 16 bits and of quantized weights, bytes/s of its memory, GB/s
    of its links or bus, which a network takes the place of. `share` gives what is reached, by the fields of
    `Efficiency`; `powered` what power allows; `in_prompts` are its fields that prompts alone take."""
    powered = powered or (lambda rate: rate)
    return Machine(
        peak=powered(plain * share("matmul")),
        peak_quantized=powered(narrow * share("matmul_quantized")),
        peak_experts=powered(narrow * share("experts_matmul")),
        peak_attention=powered(plain * share("attention")),
        bandwidth=bandwidth * share("bandwidth"),
        bandwidth_quantized=bandwidth * share("bandwidth_quantized"),
        bandwidth_experts=bandwidth * share("experts_bandwidth"),
        bandwidth_cache=bandwidth * share("cache"),
        **{name: share(f"{name}_us") * 1e-6 for name in LAUNCHES},
        request=share("request_ms") * 1e-3,
        admission=share("admission_ms") * 1e-3,
        queue=share("queue"),
        all_reduce=share("all_reduce_us") * 1e-6,
        link=where(network, share("inter_node_gb_s"), bus * share("link")) * 1e9,
        **in_prompts,
    )


def kind_of(
    gpu: GPU, engine: str, weights: WeightFormat, ranks: int, cluster: Cluster
) -> tuple[Conditions, Dtype, Dtype]:
    """Conditions of a GPU of which so many share a layer, and the types it multiplies 16-bit weights and those of a
    format in."""
    conditions = Conditions(engine, gpu.generation, ranks, cluster.path(gpu, ranks), weights).distinguished
    return conditions, product_dtype("bf16", gpu), product_dtype(weights, gpu)


def machine(gpu: GPU, engine: str, weights: WeightFormat, ranks: int, end: End, cluster: Cluster = USUAL) -> Machine:
    """Peaks and bandwidths of a GPU times their shares. `ranks` GPUs share a layer."""
    kind = _, plain, narrow = kind_of(gpu, engine, weights, ranks, cluster)
    shares, over = efficiency(*kind).edited(cluster.efficiencies), cluster.path(gpu, ranks)
    bandwidth = gpu.bandwidth_gb_s * 1e9
    at = Conditions(engine, gpu.generation, weights=weights)
    watt = row("watt_tflops", at).value.share(end)

    def powered(rate: float) -> float:
        """FLOP/s held by the board's power: units and power both take their time."""
        return 1 / (1 / rate + 1 / (watt * gpu.tdp_w * 1e12 if gpu.tdp_w else POWER_LIMITED * rate)) if watt else rate

    peak, peak_quantized = (gpu.tflops.get(dtype, UNKNOWN_RATE) * 1e12 for dtype in (plain, narrow))
    links = bus_gb_s(gpu, over), over == "network"
    unpacked, score = (row(what, at).value.duration(end) / bandwidth for what in ("unpacked_bytes", "score_bytes"))
    printed = peak, peak_quantized, bandwidth, *links
    return achieved(lambda name: shares.at(name, end), *printed, powered, unpacked=unpacked, score=score)


class Cards:
    """GPUs, each with weights in each of some formats, under an engine that unpacks none and has flash attention."""

    def __init__(self, gpus: Sequence[GPU], weights: Sequence[WeightFormat], engine: str, cluster: Cluster) -> None:
        self.gpus, self.engine, self.cluster = gpus, engine, cluster
        self.shape, self.cells = (len(weights), len(gpus)), list(product(weights, gpus))
        known = {form: Conditions(engine, None, weights=form).distinguished.weights for form in weights}
        dtypes = [(product_dtype("bf16", gpu), product_dtype(form, gpu)) for form, gpu in self.cells]
        kinds = ((known[form], gpu.generation) for form, gpu in self.cells)
        self.alike = first_equal(zip(kinds, dtypes, strict=True))
        cells = zip(self.cells, dtypes, strict=True)
        peaks = [[gpu.tflops.get(dtype, UNKNOWN_RATE) for dtype in types] for (_, gpu), types in cells]
        self.plain, self.quantized = np.array(peaks).T.reshape(2, *self.shape) * 1e12
        self.bandwidth = np.array([gpu.bandwidth_gb_s * 1e9 for gpu in gpus])

    def of(self, ranks: Any, formats: Indices, kinds: Indices, end: End = "expected") -> Machine:
        """Rows of a format and a GPU each, of which `ranks` share a layer, one number or [rows], as one machine of
        arrays, [rows, 1]."""
        unlike, which = np.unique(ranks, return_inverse=True)
        known = np.stack([self.figures(int(count), end) for count in unlike], axis=1)
        return Machine(*known[:, which, formats, kinds, None])

    @remembered
    def figures(self, ranks: int, end: End) -> Any:
        """Fields of each GPU's `machine`: [figures, formats, GPUs]."""
        over = [self.cluster.path(gpu, ranks) for gpu in self.gpus]
        alike = first_equal(zip(self.alike, over * self.shape[0], strict=True))
        unlike, which = np.unique(alike, return_inverse=True)
        shares = np.array([self.shares(cell, ranks, end) for cell in unlike.tolist()])[which]
        share = dict(zip(SERVING_SHARES, shares.T.reshape(-1, *self.shape), strict=True))
        bus = np.array([bus_gb_s(gpu, to) for gpu, to in zip(self.gpus, over, strict=True)])
        network = np.array([to == "network" for to in over])
        on = achieved(share.__getitem__, self.plain, self.quantized, self.bandwidth, bus, network)
        return np.stack([getattr(on, name) for name in MACHINE])

    def shares(self, cell: int, ranks: int, end: End) -> list[float]:
        """Shares of a GPU with weights in a format."""
        form, gpu = self.cells[cell]
        kind = kind_of(gpu, self.engine, form, ranks, self.cluster)
        shares = efficiency(*kind).edited(self.cluster.efficiencies)
        return [shares.at(name, end) for name in SERVING_SHARES]


class Timed(NamedTuple):
    """Time of an operation, and what binds it."""

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
        return next(bound for bound in BOUNDS if self.is_bound_by(bound))


def timed(operation: Operation, on: Machine) -> Timed:
    """The larger of an operation's arithmetic and its memory traffic."""
    compute, memory = on.compute(operation), on.memory(operation)
    return Timed(operation.what, maximum(compute, memory), compute, memory)


def all_reduce(on: Machine, ranks: Any, nbytes: Any) -> Seconds:
    """A ring over `ranks` GPUs: each sends its share twice, arXiv:1802.05799."""
    return where(ranks == 1, 0.0, on.all_reduce + 2 * (ranks - 1) / ranks * nbytes / on.link)


def all_to_all(on: Machine, ranks: Any, nbytes: Any) -> Seconds:
    """Each GPU sends all but its own share of what it has."""
    return where(ranks == 1, 0.0, on.all_reduce + (ranks - 1) / ranks * nbytes / on.link)


def sharing(layout: Layout, *, experts: bool) -> Any:
    """GPUs that work on one layer together: those of a copy, of all copies where these share routed experts."""
    return layout.tp * layout.dp if experts else layout.tp


def communication(on: Machine, layout: Layout, stage: Demand, tokens: Any, sends: bool) -> Seconds:
    """Seconds of a stage's layers: two all-reduces each over the tensor-parallel ranks, or one where each has the whole
    of a dense feed-forward for its part of the tokens.

    Where data-parallel copies share a feed-forward, every rank gathers the tokens of all copies, and hands out its part
    of their sums. Where it starts from a part of its copy's tokens (vLLM `sequence_parallel_chunk`), all ranks do so,
    and those of a copy gather the outputs instead of the second all-reduce. Whole experts may be sent tokens
    (`Engine.all_to_all`), and send them back, instead of it: each rank sends its part of the tokens of its copy."""
    row = stage.hidden * stage.width
    whole, between = all_reduce(on, layout.tp, tokens * row), all_to_all(on, layout.dp, layout.dp * tokens * row)
    reduced = 2 * stage.layers - stage.whole_mlp_layers if any_nonzero(stage.whole_mlp_layers) else 2 * stage.layers
    dense = 2 * stage.dp_mlp_layers * between if any_nonzero(stage.dp_mlp_layers) else 0.0
    if not stage.moe_layers or stage.routing is None:
        return reduced * whole + dense
    gathered = reduced * whole + dense + 2 * stage.moe_layers * between
    if any_nonzero(stage.split_moe_layers):
        among_all = 2 * all_to_all(on, layout.ep, layout.dp * tokens * row) + all_to_all(on, layout.tp, tokens * row)
        parts = (reduced - stage.split_moe_layers) * whole + dense + stage.split_moe_layers * among_all
        gathered = where(stage.split_moe_layers > 0, parts, gathered)
    if not any_nonzero(sends):
        return gathered
    reach = where(layout.ep < stage.routing.top_k, layout.ep, stage.routing.top_k)
    exchanged = 2 * stage.moe_layers * all_to_all(on, layout.ep, tokens * reach * row / layout.tp)
    return where(sends, (reduced - stage.moe_layers) * whole + dense + exchanged, gathered)


def shared_tokens(on: Machine, dcp: Any, layers: Any, nbytes: Any) -> Seconds:
    """Ranks that share cached tokens gather the queries, attend to their own tokens, gather the sums of the softmax and
    hand out their parts of the outputs: three collectives a layer (vLLM `dcp_comm_backend`, ag_rs). `nbytes` are a
    rank's own queries and outputs, of all layers."""
    return where(dcp == 1, 0.0, 3 * layers * on.all_reduce + (dcp - 1) * nbytes / on.link)


def seconds_by_bound(parts: Iterable[Timed], rows: int = 1) -> Array:
    """Seconds of a step by what binds them, [bounds, rows], in the order of BOUNDS."""
    by_bound = np.zeros((len(BOUNDS), rows, 1))
    for part in parts:
        for index, bound in enumerate(BOUNDS):
            if (binding := part.is_bound_by(bound)) is not False:
                by_bound[index] += part.seconds * binding
    return by_bound[..., 0]


def bound_of(parts: Iterable[Timed]) -> Bound:
    """Bound of the most time of some parts."""
    return BOUNDS[int(seconds_by_bound(parts).argmax())]
