"""What share of a GPU's printed peaks real kernels reach, and what time hosts and links add: data with a source each.

The rows are in efficiencies.json. Those of a GPU and an engine make one `Efficiency`, whose figures a page can edit.
"""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats import WeightFormat
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.time.estimate import Estimate
from calc.units import decimal

FILE = Path(__file__).with_name("efficiencies.json")
Route = Literal["link", "pcie", "network"]
"""What connects GPUs that work on one thing: their own links, the host's bus, or adapters to other nodes."""
EfficiencyKind = Literal[
    "bandwidth",
    "bandwidth_quantized",
    "cache",
    "matmul",
    "experts_bandwidth",
    "experts_matmul",
    "attention",
    "layer_us",
    "sparse_us",
    "latent_us",
    "linear_us",
    "indexer_us",
    "quantize_us",
    "prefill_layer_us",
    "prefill_sparse_us",
    "prefill_latent_us",
    "prefill_linear_us",
    "request_ms",
    "admission_ms",
    "queue",
    "watt_tflops",
    "unpacked_bytes",
    "score_bytes",
    "all_reduce_us",
    "link",
    "training_matmul",
    "training_uneven",
    "training_attention",
    "training_elementwise",
    "training_routed",
    "training_layer_us",
    "training_sparse_us",
    "training_overlap",
    "training_overlap_within",
    "inter_node_gb_s",
]
"""Shares of the bandwidth at which weights (in 16 bits, or quantized) and the cache are read. Shares of the peak in
matrix products and in causal attention over a prompt; of routed experts apart, whose products are small. Host time of a
layer in decode and in prefill; what routed experts, latent attention, a recurrence, an indexer and the quantization of
activations add to it; and of a request; until a server that is busy admits one, and the share of the prompts before it
for which it waits. The TFLOP/s that a watt of board power allows, 0 where it does not bind; bytes that a prompt's pass
moves besides, for a byte of quantized weights that are unpacked first, and for a score that passes through memory. The
latency of one all-reduce, and the share of the link's bandwidth. In training: shares of the peak, and what routed
experts of uneven width keep of it; bytes that kernels between products move for each element of a layer's state, and
for each element of its copies that go to experts; host time of a layer, forward and backward, and what routed experts
add; the shares of communication between replicas, and within layers, that hide behind compute; GB/s of a GPU to another
node."""


class EfficiencyRow(Frozen):
    """A row of efficiencies.json. It holds for what it names; what it leaves out, it holds for all of."""

    what: EfficiencyKind
    engines: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = ()
    formats: tuple[WeightFormat, ...] = ()  # of the weights, where their kernels differ at the same arithmetic
    gpus: int | None = None  # that take part in an all-reduce, at most
    over: Route | None = None
    value: Estimate
    source: str
    rows: int | None = None  # measured ones that it is fitted to, where they are counted

    def holds(
        self,
        engine: str,
        generation: str | None,
        dtype: Dtype | None,
        gpus: int,
        over: Route,
        weights: WeightFormat | None,
    ) -> bool:
        return (
            (not self.engines or not {engine, engine.partition("+")[0]}.isdisjoint(self.engines))
            and (not self.generations or generation in self.generations)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.formats or weights in self.formats)
            and (self.gpus is None or gpus <= self.gpus)
            and (self.over is None or self.over == over)
        )

    @property
    def detail(self) -> tuple[int, int]:
        """Of rows that hold, one that names a build of the engine (NAME+BUILD) decides, then one that names the engine,
        then one that names most, then the first."""
        named = max((1 + name.count("+") for name in self.engines), default=0)
        return named, bool(self.generations) + bool(self.dtypes) + bool(self.formats)


@cache
def rows() -> tuple[EfficiencyRow, ...]:
    """All rows, in the order of the file."""
    read: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        EfficiencyRow(
            **{k: v for k, v in row.items() if k not in ("low", "expected", "high")}, value=Estimate(**ends(row))
        )
        for row in read
    )


def ends(row: dict[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in ("low", "expected", "high")}


@cache
def rows_of_kinds() -> Mapping[EfficiencyKind, tuple[EfficiencyRow, ...]]:
    """Rows by what they are of, each kind in the order of the file."""
    kinds: dict[EfficiencyKind, list[EfficiencyRow]] = {}
    for row in rows():
        kinds.setdefault(row.what, []).append(row)
    return MappingProxyType({kind: tuple(of_kind) for kind, of_kind in kinds.items()})


@lru_cache(maxsize=1024)
def row(
    what: EfficiencyKind,
    engine: str,
    generation: str | None,
    dtype: Dtype | None = None,
    gpus: int = 1,
    over: Route = "link",
    weights: WeightFormat | None = None,
) -> EfficiencyRow:
    """The row that decides for GPUs of a generation."""
    fitting = [row for row in rows_of_kinds()[what] if row.holds(engine, generation, dtype, gpus, over, weights)]
    return max(fitting, key=lambda row: row.detail)


Edits = Mapping[str, Estimate]
"""Some figures that a reader knows better: of an `Efficiency` by their names, of a `TrainingEfficiency` with
`training_` before them."""
OF_TRAINING = "training_"


class Efficiency(Frozen):
    """Of one kind of GPU under one engine. Shares are of printed peaks and may be above 1: GeForce cards clock higher
    than printed."""

    bandwidth: Estimate
    bandwidth_quantized: Estimate
    cache: Estimate
    matmul: Estimate
    matmul_quantized: Estimate
    experts_bandwidth: Estimate
    experts_matmul: Estimate
    attention: Estimate
    layer_us: Estimate
    sparse_us: Estimate
    latent_us: Estimate
    linear_us: Estimate
    indexer_us: Estimate
    quantize_us: Estimate
    prefill_layer_us: Estimate
    prefill_sparse_us: Estimate
    prefill_latent_us: Estimate
    prefill_linear_us: Estimate
    request_ms: Estimate
    admission_ms: Estimate
    queue: Estimate
    all_reduce_us: Estimate
    link: Estimate
    inter_node_gb_s: Estimate

    def edited(self, edits: Edits) -> "Efficiency":
        """With what a reader knows better."""
        known = {name: edits[name] for name in DECIDED if name in edits}
        return self.model_copy(update=known) if known else self


PLAIN, NARROW = "plain", "narrow"
"""What a figure depends on: the arithmetic of 16-bit weights, or that of quantized ones."""
DECIDED: dict[str, tuple[EfficiencyKind, str | None]] = {
    "bandwidth": ("bandwidth", None),
    "bandwidth_quantized": ("bandwidth_quantized", None),
    "cache": ("cache", None),
    "matmul": ("matmul", PLAIN),
    "matmul_quantized": ("matmul", NARROW),
    "experts_bandwidth": ("experts_bandwidth", NARROW),
    "experts_matmul": ("experts_matmul", NARROW),
    "attention": ("attention", PLAIN),
    "layer_us": ("layer_us", None),
    "sparse_us": ("sparse_us", None),
    "latent_us": ("latent_us", None),
    "linear_us": ("linear_us", None),
    "indexer_us": ("indexer_us", None),
    "quantize_us": ("quantize_us", NARROW),
    "prefill_layer_us": ("prefill_layer_us", None),
    "prefill_sparse_us": ("prefill_sparse_us", None),
    "prefill_latent_us": ("prefill_latent_us", None),
    "prefill_linear_us": ("prefill_linear_us", None),
    "request_ms": ("request_ms", None),
    "admission_ms": ("admission_ms", None),
    "queue": ("queue", None),
    "all_reduce_us": ("all_reduce_us", None),
    "link": ("link", None),
    "inter_node_gb_s": ("inter_node_gb_s", None),
}


@lru_cache(maxsize=1024)
def deciding_rows(
    generation: str | None,
    engine: str,
    dtype: Dtype,
    dtype_quantized: Dtype,
    gpus: int = 1,
    over: Route = "link",
    weights: WeightFormat | None = None,
) -> Mapping[str, EfficiencyRow]:
    """The rows that decide for a generation of GPUs, an engine, what is computed in where weights have 16 bits and
    where they are quantized, the GPUs that share a layer, over what, and the format of the weights; by the fields of
    `Efficiency`."""
    dtypes: dict[str | None, Dtype | None] = {None: None, PLAIN: dtype, NARROW: dtype_quantized}
    by_name = {
        name: row(what, engine, generation, dtypes[which], gpus, over, weights)
        for name, (what, which) in DECIDED.items()
    }
    return MappingProxyType(by_name)


@lru_cache(maxsize=1024)
def efficiency(
    generation: str | None,
    engine: str,
    dtype: Dtype,
    dtype_quantized: Dtype,
    gpus: int = 1,
    over: Route = "link",
    weights: WeightFormat | None = None,
) -> Efficiency:
    """Their figures."""
    deciding = deciding_rows(generation, engine, dtype, dtype_quantized, gpus, over, weights)
    return Efficiency(**{name: deciding_row.value for name, deciding_row in deciding.items()})


class TrainingEfficiency(Frozen):
    """What training reaches on one kind of GPU; shares of printed peaks."""

    matmul: Estimate
    uneven: Estimate  # of it, in routed experts whose sides are no multiple of 128
    attention: Estimate
    bandwidth: Estimate
    elementwise: Estimate  # bytes that kernels between products move, for each element of a layer's state
    routed: Estimate  # the same of sorting tokens by their experts and back, for each of the copies of a token
    layer_us: Estimate  # in which the host launches a layer's kernels, forward and backward
    sparse_us: Estimate  # what routed experts add to it
    link: Estimate
    all_reduce_us: Estimate
    overlap: Estimate  # share of the communication between replicas that hides behind compute
    overlap_within: Estimate  # the same of communication within layers
    inter_node_gb_s: Estimate  # of one GPU, one direction


TRAINING_DECIDED: dict[str, tuple[EfficiencyKind, bool]] = {
    "matmul": ("training_matmul", True),
    "uneven": ("training_uneven", False),
    "attention": ("training_attention", False),
    "bandwidth": ("bandwidth", False),
    "elementwise": ("training_elementwise", False),
    "routed": ("training_routed", True),
    "layer_us": ("training_layer_us", False),
    "sparse_us": ("training_sparse_us", False),
    "link": ("link", False),
    "all_reduce_us": ("all_reduce_us", False),
    "overlap": ("training_overlap", False),
    "overlap_within": ("training_overlap_within", False),
    "inter_node_gb_s": ("inter_node_gb_s", False),
}
"""The kind of each figure, and whether it depends on what products are computed in."""
SHARES = (*DECIDED, *(f"{OF_TRAINING}{name}" for name in TRAINING_DECIDED))
"""Names under which figures are stated."""


def training_rows(
    gpu: GPU, dtype: Dtype, products: WeightFormat, framework: str, ranks: int, over: Route
) -> Mapping[str, EfficiencyRow]:
    """The rows that decide for a GPU, what it multiplies in, the format that it takes that from, the GPUs that share a
    layer, and over what; by the fields of `TrainingEfficiency`."""
    return {
        name: row(what, framework, gpu.generation, dtype if by_dtype else None, ranks, over, products)
        for name, (what, by_dtype) in TRAINING_DECIDED.items()
    }


def training_efficiency(rows: Mapping[str, EfficiencyRow], edits: Edits | None = None) -> TrainingEfficiency:
    """Their figures, with what a reader knows better."""
    stated = edits or {}
    return TrainingEfficiency(
        **{name: stated.get(f"{OF_TRAINING}{name}", deciding_row.value) for name, deciding_row in rows.items()}
    )


def without_effect(edits: Edits, *, training: bool) -> Message | None:
    """A sentence on the figures that only the other one uses, serving or training."""
    names = ", ".join(name for name in edits if name.startswith(OF_TRAINING) != training)
    if not names:
        return None
    if training:
        return Message("Shares of serving have no effect on training: {names}.", names=names)
    return Message("Shares of training have no effect on serving: {names}.", names=names)


def stated_share(text: str) -> tuple[str, Estimate]:
    """NAME=LOW/EXPECTED/HIGH. Raises ConfigError."""
    name, _, figures = text.partition("=")
    try:
        low, expected, high = (float(figure) for figure in figures.split("/"))
        share = Estimate(low=low, expected=expected, high=high)
    except ValueError:
        share = None
    if share is None or name not in SHARES:
        raise ConfigError(
            Message(
                "A share is NAME=LOW/EXPECTED/HIGH, for instance {example}, not {text}. Names are {names}.",
                example="bandwidth=0.7/0.8/0.9",
                text=shown(text),
                names=", ".join(SHARES),
            ),
            "share",
        )
    return name, share


def written_share(name: str, share: Estimate) -> str:
    return f"{name}={'/'.join(decimal(figure) for _, figure in share)}"
