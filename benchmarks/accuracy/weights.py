"""python -m benchmarks.accuracy.weights MEASURED.json: weights on a rank, ours against what vLLM logged on loading."""

import sys
from collections import Counter
from statistics import median

from benchmarks.accuracy.records import LeftOut, Run, read, runs
from calc import Architecture, Overhead
from calc.serving.engines.engine import LoadedWeights
from calc.serving.engines.loading import ExpertKernel
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.memory import Serving
from calc.units import GIB


def parts(run: Run) -> LoadedWeights:
    """The fullest stage of the pipeline. Models with a vision encoder are taken to load it."""
    kernel: ExpertKernel = "triton" if "triton" in str(run.record["quant"]) else "marlin"
    architecture = Architecture.from_config(run.config)
    draft = "mtp" if architecture.prediction else "eagle"  # Qwen3-Next's config does not say its own, which is like it
    engine = VLLM(VLLMOptions(mxfp4_kernel=kernel, speculative=draft if run.draft else "none"))
    stages = Serving(architecture, engine, run.precision, run.layout, Overhead()).laid_out.stages
    return max((stage.loaded for stage in stages), key=lambda loaded: loaded.total)


def error(run: Run) -> float:
    return parts(run).total / GIB / float(run.record["measured"]["weights_gib"]) - 1


def summary(name: str, errors: list[float]) -> str:
    if not errors:
        return f"{name}: no records"
    sizes = [abs(e) for e in errors]
    close = sum(e <= 0.005 for e in sizes) / len(sizes)
    return (
        f"{name}: {len(sizes)} records, median {median(sizes):.2%}, largest {max(sizes):.2%}, {close:.0%} within 0.5 %"
    )


def main(path: str) -> None:
    found = list(runs(read(path), "weights_gib"))
    usable = [run for run in found if isinstance(run, Run)]
    print(f"{'model':34}{'format':14}{'tp':>3}{'pp':>3}{'ours GiB':>10}{'logged':>10}{'error':>9}  parts, MiB")
    for run in usable:
        held = parts(run)
        pieces = "  ".join(f"{name} {size / 2**20:.1f}" for name, size in held if size)
        logged = float(run.record["measured"]["weights_gib"])
        print(
            f"{run.record['model']:34}{run.precision.weights:14}{run.layout.tp:>3}{run.layout.pp:>3}"
            f"{held.total / GIB:>10.4f}{logged:>10.4f}{held.total / GIB / logged - 1:>+9.2%}  {pieces}"
        )
    print()
    for reason, count in Counter(row.reason for row in found if isinstance(row, LeftOut)).most_common():
        print(f"left out: {count} x {reason}")
    print(summary("16 bits", [error(run) for run in usable if not run.quantised]))
    print(summary("quantised", [error(run) for run in usable if run.quantised]))


if __name__ == "__main__":
    main(sys.argv[1])
