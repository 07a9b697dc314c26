"""Machines of many GPUs in many formats at once."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from calc.formats import WeightFormat
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.time.efficiency import Edits, Efficiency, efficiency
from calc.time.roofline import UNKNOWN, Machine, arithmetic, bus_gb_s, path
from calc.time.sizes import Indices

SHARES = tuple(Efficiency.model_fields)
FIGURES = tuple(field.name for field in fields(Machine))


class Cards:
    """GPUs, and what each computes in by format: what does not hang on how many share a layer."""

    def __init__(
        self, gpus: Sequence[GPU], weights: Sequence[WeightFormat], engine: str, node: int, edited: Edits | None = None
    ) -> None:
        self.gpus, self.engine, self.node, self.edited = gpus, engine, node, edited or {}
        self.plain = [arithmetic("bf16", gpu) for gpu in gpus]
        self.narrow = [[arithmetic(form, gpu) for gpu in gpus] for form in weights]
        self.bandwidth = np.array([gpu.bandwidth_gb_s * 1e9 for gpu in gpus])
        self.peak = self.peaks(self.plain)
        self.peak_quantized = np.array([self.peaks(row) for row in self.narrow])
        self.known: dict[int, Any] = {}

    def peaks(self, dtypes: Sequence[Dtype]) -> Any:
        return np.array([gpu.tflops.get(one, UNKNOWN) * 1e12 for gpu, one in zip(self.gpus, dtypes, strict=True)])

    def of(self, ranks: int, formats: Indices, kinds: Indices) -> Machine:
        """Rows of a format and a GPU each, so many of which share a layer, as one machine of arrays, [rows, 1]."""
        if ranks not in self.known:
            figures = self.figures(ranks)
            self.known[ranks] = np.stack([figures[name] for name in FIGURES])
        chosen = self.known[ranks][:, formats, kinds, None]
        return Machine(**dict(zip(FIGURES, chosen, strict=True)))

    def figures(self, ranks: int) -> dict[str, Any]:
        """What `machine` says of each, as usual, by name: [formats, GPUs]."""
        paths = [path(gpu, ranks, self.node) for gpu in self.gpus]
        kinds = [(gpu.generation, plain, over) for gpu, plain, over in zip(self.gpus, self.plain, paths, strict=True)]
        rows: dict[tuple[Any, ...], int] = {}
        index = [
            [rows.setdefault((kind, one), len(rows)) for kind, one in zip(kinds, narrow, strict=True)]
            for narrow in self.narrow
        ]
        found = [
            efficiency(generation, self.engine, plain, narrow, ranks, over).edited(self.edited)
            for (generation, plain, over), narrow in rows
        ]
        table = np.array([[getattr(one, name).expected for name in SHARES] for one in found])[np.array(index)]
        share = {name: table[..., i] for i, name in enumerate(SHARES)}
        bus = np.array([bus_gb_s(gpu, over) for gpu, over in zip(self.gpus, paths, strict=True)])
        network = np.array([over == "network" for over in paths])
        return {
            "peak": self.peak * share["matmul"],
            "peak_quantized": self.peak_quantized * share["matmul_quantized"],
            "peak_experts": self.peak_quantized * share["experts_matmul"],
            "peak_attention": self.peak * share["attention"],
            "bandwidth": self.bandwidth * share["bandwidth"],
            "bandwidth_quantized": self.bandwidth * share["bandwidth_quantized"],
            "bandwidth_experts": self.bandwidth * share["experts_bandwidth"],
            "bandwidth_cache": self.bandwidth * share["cache"],
            "layer": share["layer_us"] * 1e-6,
            "sparse": share["sparse_us"] * 1e-6,
            "prefill_layer": share["prefill_layer_us"] * 1e-6,
            "prefill_sparse": share["prefill_sparse_us"] * 1e-6,
            "request": share["request_ms"] * 1e-3,
            "all_reduce": share["all_reduce_us"] * 1e-6,
            "link": np.where(network, share["inter_node_gb_s"], bus * share["link"]) * 1e9,
        }
