"""Machines of many GPUs in many formats at once."""

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import numpy as np

from calc.formats import WeightFormat
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.time.alike import Alike
from calc.time.efficiency import Edits, Efficiency, Route, efficiency
from calc.time.roofline import UNKNOWN, Machine, arithmetic, bus_gb_s, path
from calc.time.sizes import Indices

SHARES = tuple(Efficiency.model_fields)
SHARES_OF = attrgetter(*SHARES)
FIGURES = tuple(field.name for field in fields(Machine))


class Cards:
    """GPUs, and what each computes in by format: what does not depend on how many share a layer."""

    def __init__(
        self, gpus: Sequence[GPU], weights: Sequence[WeightFormat], engine: str, node: int, edited: Edits | None = None
    ) -> None:
        self.gpus, self.engine, self.node, self.edited = gpus, engine, node, edited or {}
        plain = [arithmetic("bf16", gpu) for gpu in gpus]
        narrow = [[arithmetic(form, gpu) for gpu in gpus] for form in weights]
        self.bandwidth = np.array([gpu.bandwidth_gb_s * 1e9 for gpu in gpus])
        self.peak = self.peaks(plain)
        self.peak_quantized = np.array([self.peaks(row) for row in narrow])
        kinds = [(gpu.generation, dtype) for gpu, dtype in zip(gpus, plain, strict=True)]
        self.by_kind = Alike.of(
            (*kind, dtype, form)
            for form, row in zip(weights, narrow, strict=True)
            for kind, dtype in zip(kinds, row, strict=True)
        )
        self.kind = np.reshape(self.by_kind.which, self.peak_quantized.shape)
        self.known: dict[int, Any] = {}

    def peaks(self, dtypes: Sequence[Dtype]) -> Any:
        return np.array([gpu.tflops.get(dtype, UNKNOWN) * 1e12 for gpu, dtype in zip(self.gpus, dtypes, strict=True)])

    def of(self, ranks: Any, formats: Indices, kinds: Indices) -> Machine:
        """Rows of a format and a GPU each, of which `ranks` share a layer, one number or [rows], as one machine of
        arrays, [rows, 1]."""
        unlike, which = np.unique(ranks, return_inverse=True)
        known = np.stack([self.known_of(int(kind)) for kind in unlike], axis=1)
        chosen = known[:, which, formats, kinds, None]
        return Machine(**dict(zip(FIGURES, chosen, strict=True)))

    def known_of(self, ranks: int) -> Any:
        """The figures of a machine, [figures, formats, GPUs]."""
        if ranks not in self.known:
            figures = self.figures(ranks)
            self.known[ranks] = np.stack([figures[name] for name in FIGURES])
        return self.known[ranks]

    def shares(self, kind: tuple[str | None, Dtype, Dtype, WeightFormat], ranks: int, over: Route) -> list[float]:
        """Expected shares of GPUs of a generation that compute in these types with weights of a format."""
        generation, plain, narrow, form = kind
        deciding = efficiency(generation, self.engine, plain, narrow, ranks, over, form).edited(self.edited)
        return [share.expected for share in SHARES_OF(deciding)]

    def figures(self, ranks: int) -> dict[str, Any]:
        """What `machine` says of each, as usual, by name: [formats, GPUs]."""
        paths = [path(gpu, ranks, self.node) for gpu in self.gpus]
        routes = tuple(dict.fromkeys(paths))
        table = np.array([[self.shares(kind, ranks, over) for kind in self.by_kind.kinds] for over in routes])
        table = table[[routes.index(over) for over in paths], self.kind]
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
            "latent": share["latent_us"] * 1e-6,
            "linear": share["linear_us"] * 1e-6,
            "indexer": share["indexer_us"] * 1e-6,
            "quantize": share["quantize_us"] * 1e-6,
            "prefill_layer": share["prefill_layer_us"] * 1e-6,
            "prefill_sparse": share["prefill_sparse_us"] * 1e-6,
            "prefill_latent": share["prefill_latent_us"] * 1e-6,
            "prefill_linear": share["prefill_linear_us"] * 1e-6,
            "request": share["request_ms"] * 1e-3,
            "admission": share["admission_ms"] * 1e-3,
            "queue": share["queue"],
            "all_reduce": share["all_reduce_us"] * 1e-6,
            "link": np.where(network, share["inter_node_gb_s"], bus * share["link"]) * 1e9,
        }
