"""Shares of a GPU's printed peaks that real kernels reach, times that hosts and links add; each with its source.

The rows are in efficiencies.json. Those of a GPU and an engine make one `Efficiency`, whose figures a page can edit.
"""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats import WeightFormat
from calc.hardware.generations import Dtype
from calc.time.estimate import End, Estimate
from calc.time.figures import Symbol, symbols_of
from calc.units import decimal

FILE = Path(__file__).with_name("efficiencies.json")
Route = Literal["link", "pcie", "network"]
"""Path between GPUs that work together: their own links, the host's bus, or adapters to other nodes."""


class Conditions(NamedTuple):
    """Conditions besides arithmetic that choose a row."""

    engine: str
    generation: str | None
    gpus: int = 1  # that share a layer
    over: Route = "link"
    weights: WeightFormat | None = None

    @property
    def distinguished(self) -> "Conditions":
        """The conditions without what no row distinguishes: formats that none names, numbers of GPUs between bounds."""
        formats, bounds = named_by_rows()
        gpus = next((bound for bound in bounds if self.gpus <= bound), bounds[-1] + 1)
        return self._replace(gpus=gpus, weights=self.weights if self.weights in formats else None)


class EfficiencyRow(Frozen):
    """A row of efficiencies.json. It holds for what it names; what it leaves out, it holds for all of."""

    what: str  # the figure that it decides
    engines: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = ()
    formats: tuple[WeightFormat, ...] = ()  # of the weights, where their kernels differ at the same arithmetic
    gpus: int | None = None  # that take part in an all-reduce, at most
    over: Route | None = None
    value: Estimate
    source: str
    rows: int | None = None  # measured ones that it is fitted to, where they are counted

    def holds(self, at: Conditions, dtype: Dtype | None) -> bool:
        return (
            (not self.engines or not {at.engine, at.engine.partition("+")[0]}.isdisjoint(self.engines))
            and (not self.generations or at.generation in self.generations)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.formats or at.weights in self.formats)
            and (self.gpus is None or at.gpus <= self.gpus)
            and (self.over is None or self.over == at.over)
        )

    @property
    def detail(self) -> tuple[int, int]:
        """Rank among rows that hold: a build of the engine named (NAME+BUILD), the engine named, the count of other
        fields named. Of equal ones the first decides."""
        named = max((1 + name.count("+") for name in self.engines), default=0)
        return named, bool(self.generations) + bool(self.dtypes) + bool(self.formats)


@cache
def rows() -> tuple[EfficiencyRow, ...]:
    """All rows, in the order of the file."""
    read: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    ends = Estimate.model_fields
    return tuple(EfficiencyRow(value=Estimate(**{end: row.pop(end) for end in ends}), **row) for row in read)


@cache
def named_by_rows() -> tuple[frozenset[WeightFormat], tuple[int, ...]]:
    """Formats that rows name, and their numbers of GPUs, ascending."""
    formats = frozenset(form for row in rows() for form in row.formats)
    return formats, tuple(sorted({row.gpus for row in rows() if row.gpus is not None}))


@lru_cache(maxsize=1024)
def row(what: str, at: Conditions, dtype: Dtype | None = None) -> EfficiencyRow:
    """The row that decides for GPUs of a generation; `dtype` is what they compute in."""
    return max((row for row in rows() if row.what == what and row.holds(at, dtype)), key=lambda row: row.detail)


Edits = Mapping[str, Estimate]
"""Some figures that a reader knows better: of an `Efficiency` by their names, of a `TrainingEfficiency` with
`training_` before them."""
OF_TRAINING = "training_"
DURATIONS = ("_us", "_ms", "queue", "elementwise", "routed")
"""Ends of names of what takes time: the low end of its range is fast."""


class Shares(Frozen):
    """Figures with ranges."""

    def at(self, name: str, end: End) -> float:
        """A figure at an end of its range: of what takes time the low end is fast, of shares the high one."""
        estimate: Estimate = getattr(self, name)
        if end == "expected":
            return estimate.expected
        return estimate.duration(end) if name.endswith(DURATIONS) else estimate.share(end)

    def edited(self, edits: Edits, prefix: str = "") -> Self:
        """Figures with a reader's edits, which have this before their names."""
        ours = {f"{prefix}{name}": name for name in type(self).model_fields} if edits else {}
        known = {ours[stated]: edits[stated] for stated in edits if stated in ours}
        return self.model_copy(update=known) if known else self


class Efficiency(Shares):
    """Figures of a GPU under one engine. Shares are of printed peaks; some exceed 1: GeForce cards clock higher than
    printed."""

    bandwidth: Annotated[Estimate, Symbol("η_b", "share of the bandwidth: weights")]
    bandwidth_quantized: Annotated[Estimate, Symbol("η_bq", "share of the bandwidth: quantized weights")]
    cache: Annotated[Estimate, Symbol("η_c", "share of the bandwidth: cache and activations")]
    matmul: Annotated[Estimate, Symbol("η_m", "share of the peak: matrix products")]
    matmul_quantized: Annotated[Estimate, Symbol("η_mq", "share of the peak: products of quantized weights")]
    experts_bandwidth: Annotated[Estimate, Symbol("η_be", "share of the bandwidth: routed experts")]
    experts_matmul: Annotated[Estimate, Symbol("η_me", "share of the peak: routed experts")]
    attention: Annotated[Estimate, Symbol("η_a", "share of the peak: attention")]
    layer_us: Annotated[Estimate, Symbol("t_L", "µs of the host for a layer, decode")]
    sparse_us: Annotated[Estimate, Symbol("t_Le", "µs more for a layer with routed experts, decode")]
    latent_us: Annotated[Estimate, Symbol("t_Ll", "µs more for a layer with latent attention, decode")]
    linear_us: Annotated[Estimate, Symbol("t_Lr", "µs more for a layer with a recurrence, decode")]
    indexer_us: Annotated[Estimate, Symbol("t_Li", "µs more for a layer with an indexer, decode")]
    quantize_us: Annotated[Estimate, Symbol("t_Lq", "µs more for a layer whose activations are quantized, decode")]
    prefill_layer_us: Annotated[Estimate, Symbol("t_Lp", "µs of the host for a layer, prefill")]
    prefill_sparse_us: Annotated[Estimate, Symbol("t_Lpe", "µs more for a layer with routed experts, prefill")]
    prefill_latent_us: Annotated[Estimate, Symbol("t_Lpl", "µs more for a layer with latent attention, prefill")]
    prefill_linear_us: Annotated[Estimate, Symbol("t_Lpr", "µs more for a layer with a recurrence, prefill")]
    request_ms: Annotated[Estimate, Symbol("t_req", "ms of the host for a request")]
    admission_ms: Annotated[Estimate, Symbol("t_adm", "ms until a busy server admits a request")]
    queue: Annotated[Estimate, Symbol("q_w", "share of the prompts ahead for which a request waits")]
    all_reduce_us: Annotated[Estimate, Symbol("t_ar", "µs of a collective, whatever its size")]
    link: Annotated[Estimate, Symbol("η_l", "share of the link")]
    inter_node_gb_s: Annotated[Estimate, Symbol("l_net", "GB/s of a GPU to other nodes, one direction")]


SERVING_SHARES = tuple(Efficiency.model_fields)
PLAIN = ("matmul", "attention")
"""Figures that depend on the arithmetic of 16-bit weights."""
NARROW = ("matmul_quantized", "experts_bandwidth", "experts_matmul", "quantize_us")
"""Figures that depend on the arithmetic of quantized weights."""


def deciding_rows(at: Conditions, plain: Dtype, narrow: Dtype) -> Mapping[str, EfficiencyRow]:
    """The rows that decide for GPUs that compute in these where weights have 16 bits and where they are quantized, by
    the fields of `Efficiency`."""
    dtypes = dict.fromkeys(PLAIN, plain) | dict.fromkeys(NARROW, narrow)
    kinds = {"matmul_quantized": "matmul"}  # the row that decides it
    return {name: row(kinds.get(name, name), at, dtypes.get(name)) for name in SERVING_SHARES}


@lru_cache(maxsize=1024)
def efficiency(at: Conditions, plain: Dtype, narrow: Dtype) -> Efficiency:
    return Efficiency(**{name: deciding.value for name, deciding in deciding_rows(at, plain, narrow).items()})


class TrainingEfficiency(Shares):
    """Shares of printed peaks that training reaches on a kind of GPU. Without a symbol here, a figure has that of
    `Efficiency`."""

    matmul: Estimate
    uneven: Annotated[
        Estimate, Symbol("η_u", "of that share, what routed experts reach whose sides are no multiple of 128")
    ]
    attention: Estimate
    bandwidth: Estimate
    elementwise: Annotated[
        Estimate, Symbol("e_k", "bytes that kernels between products move for an element of a layer's state")
    ]
    routed: Annotated[
        Estimate,
        Symbol("e_r", "bytes that sorting tokens by their experts moves for an element of each copy of a token"),
    ]
    layer_us: Estimate  # in which the host launches a layer's kernels, forward and backward
    sparse_us: Estimate  # what routed experts add to it
    link: Estimate
    all_reduce_us: Estimate
    overlap: Annotated[Estimate, Symbol("η_o", "share of the exchange between replicas that hides behind compute")]
    overlap_within: Annotated[
        Estimate, Symbol("η_w", "share of the communication within layers that hides behind compute")
    ]
    inter_node_gb_s: Estimate


AS_IN_SERVING = ("bandwidth", "link", "all_reduce_us", "inter_node_gb_s")
"""Figures that training shares with serving; the others have rows."""
BY_DTYPE = ("matmul", "routed")
"""Figures that depend on the type of products."""
SHARES = (*SERVING_SHARES, *(f"{OF_TRAINING}{name}" for name in TrainingEfficiency.model_fields))
"""Names under which figures are stated."""
SHARE_SYMBOLS = symbols_of(Efficiency) | symbols_of(TrainingEfficiency)


def training_rows(at: Conditions, dtype: Dtype) -> Mapping[str, EfficiencyRow]:
    """The rows that decide for GPUs that multiply in a type, in a framework; by the fields of `TrainingEfficiency`."""
    kinds = {
        name: name if name in AS_IN_SERVING else f"{OF_TRAINING}{name}" for name in TrainingEfficiency.model_fields
    }
    return {name: row(kind, at, dtype if name in BY_DTYPE else None) for name, kind in kinds.items()}


def training_efficiency(rows: Mapping[str, EfficiencyRow], edits: Edits) -> TrainingEfficiency:
    """Their figures, with what a reader knows better."""
    return TrainingEfficiency(**{name: row.value for name, row in rows.items()}).edited(edits, OF_TRAINING)


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
