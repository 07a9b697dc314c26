"""Weights on a rank, ours beside what vLLM logged on loading."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.accuracy import records
from benchmarks.accuracy.cases import version_of
from benchmarks.accuracy.found import Comparison, Found, LeftOut
from benchmarks.accuracy.records import Run
from calc import Architecture, Overhead
from calc.serving.engines.sizes import LoadedWeights
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.memory import Serving
from calc.units import GIB


def parts(run: Run) -> LoadedWeights:
    """The most loaded stage of the pipeline. Models with a vision encoder are taken to load it."""
    quant = str(run.record["quant"])
    kernel = next((name for name in ("triton", "marlin") if name in quant), None)
    architecture = Architecture.from_config(run.config)
    draft = "mtp" if architecture.prediction else "eagle"  # Qwen3-Next's config does not say its own, which is like it
    speculative, version = draft if run.draft else "none", version_of(run.record["version"])
    engine = VLLM(VLLMOptions(mxfp4_kernel=kernel, speculative=speculative, version=version))
    stages = Serving.of(architecture, engine, run.precision, run.layout, Overhead()).laid_out.stages
    return max((stage.loaded for stage in stages), key=lambda loaded: loaded.total)


def loaded_weights(rows: list[Mapping[str, Any]]) -> Iterator[Found]:
    """What vLLM logs on loading."""
    for run in records.runs(rows, "weights_gib"):
        name = f"{run.record['model']}, {run.record.get('quant')}"
        if isinstance(run, records.LeftOut):
            yield LeftOut(kind="weights", name=name, reason=run.reason)
            continue
        logged = float(run.record["measured"]["weights_gib"])
        yield Comparison(
            kind="weights, quantized" if run.quantized else "weights, 16 bits",
            name=f"{name}, {run.layout.gpus} GPUs" if run.layout.gpus > 1 else name,
            predicted=parts(run).total / GIB,
            measured=logged,
            unit="GiB",
            source=run.record["url"],
        )
