"""A log's machine in place of our ranges: its CUDA graphs, what it holds outside PyTorch, and its pass at start."""

from calc.hardware.overhead import Overhead, Range
from calc.serving.engines import LOGS
from calc.serving.report import Report
from calc.units import GIB
from calc.verify.logs.log import Log

LONGEST = 120
"""Characters of a log's name."""


def calibrated(log: Log, ours: Report) -> Overhead | None:
    """The overhead that a log states, in GiB a GPU; None where it states none. A pass that takes less than ours changes
    nothing: ours is of the largest one that the settings allow."""
    if log.engine not in LOGS:
        return None
    graphs = [size for size in (log.cuda_graphs, log.graphs_estimated) if size is not None]
    ranges = {
        "libraries": _range([] if log.non_torch is None else [log.non_torch]),
        "cuda_graphs": _range(graphs),
        "peak_gap": _range(_gap(log, ours)),
    }
    stated = {name: span for name, span in ranges.items() if span is not None}
    return Overhead(**stated, overhead_log=name_of(log)) if stated else None


def _range(sizes: list[int]) -> Range | None:
    """Least and most of what is stated; a driver's difference below zero is of another process."""
    known = [round(size / GIB, 2) for size in sizes if size >= 0]
    return Range(low=min(known), high=max(known)) if known else None


def _gap(log: Log, ours: Report) -> list[int]:
    """Bytes by which its pass at start took more than ours."""
    stated = log.activations
    if stated is None or not ours.kv_budget:
        return []
    more = stated - min((budget.profile for budget in ours.kv_budget), key=lambda profile: abs(profile - stated))
    return [more] if more > 0 else []


def name_of(log: Log) -> str:
    """The engine, its version and the model, as far as the log says."""
    engine = " ".join(filter(None, (LOGS[log.engine].engine.title, log.version)))
    name = ", ".join(filter(None, (engine, log.settings.model)))
    return "".join(sign for sign in name if sign.isprintable())[:LONGEST]
