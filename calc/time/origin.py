"""Origin of a time: measured runs that the constants of its engine and GPU were fitted to, or arithmetic alone.

measured_runs.json counts them by engine, GPU and model, whose name here is its number of parameters: a fine-tuned model
runs as fast as what it was made from. `python -m benchmarks.accuracy.write_runs` writes it.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from calc.errors import Frozen, Message
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus
from calc.model.architecture import Architecture

FILE = Path(__file__).with_name("measured_runs.json")
Basis = Literal["measured", "generation", "computed"]


class Origin(Frozen):
    """Evidence for a time."""

    basis: Basis
    rows: int  # measured runs of this model on this GPU, or of any model on its generation, under this engine

    @property
    def sentence(self) -> Message:
        match self.basis:
            case "measured":
                return Message("Fitted to {n:,} measured runs of this model on this GPU and engine.", n=self.rows)
            case "generation":
                return Message(
                    "Fitted to {n:,} measured runs of this engine on this generation of GPUs, none of them of this "
                    "model on this GPU.",
                    n=self.rows,
                )
        return Message("Computed: no run of this engine on this generation of GPUs was measured.")


COMPUTED = Origin(basis="computed", rows=0)


@cache
def runs_of_models() -> Mapping[tuple[str, str, int], int]:
    """Measured runs by engine, GPU and parameters of the model."""
    table = json.loads(FILE.read_text(encoding="utf-8"))
    return MappingProxyType({(engine, gpu, parameters): runs for engine, gpu, parameters, runs in table})


@cache
def runs_of_generations() -> Mapping[tuple[str, str | None], int]:
    """Measured runs by engine and generation of GPUs."""
    runs: dict[tuple[str, str | None], int] = {}
    for (engine, gpu, _), count in runs_of_models().items():
        key = engine, gpus()[gpu].generation
        runs[key] = runs.get(key, 0) + count
    return MappingProxyType(runs)


def origin(architecture: Architecture, gpu: GPU, engine: str) -> Origin:
    """Evidence for the times of a model on a GPU under an engine."""
    parameters = architecture.parameters().total
    if rows := runs_of_models().get((engine, gpu.id, parameters)):
        return Origin(basis="measured", rows=rows)
    rows = runs_of_generations().get((engine, gpu.generation), 0) if gpu.generation else 0
    return Origin(basis="generation", rows=rows) if rows else COMPUTED
