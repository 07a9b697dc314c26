"""docs/gpus.md: the catalogue as a page. `python -m docs.gpu_table > docs/gpus.md`"""

from collections.abc import Iterable, Mapping
from itertools import groupby

from calc.hardware.engine_rules import runs
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.hardware.gpus import generations, gpus
from calc.hardware.mig import partitionings, slices
from calc.serving.engines import ENGINES
from calc.units import GIB

HEAD = """# GPUs

Written by `python -m docs.gpu_table > docs/gpus.md` from `calc/hardware/catalogue`. What no address confirms
is left out (–).

- **Memory**: as sold, in GB; MiB in all as the driver's tool prints it (where that was not observed, the label
  counts); GiB that a process can hope for (in italics: 98.5 % of the total, or the system's share of unified memory).
- **Peaks**: dense, with fp32 accumulate, in TFLOPS (TOPS for int8). A peak with a clock in the catalogue is units x
  FLOP per clock and unit x boost clock; the rates are below.
- **W**: board power.
- **Link**: GB/s from GPU to GPU, both directions together, and how many GPUs reach each other over it.
- **Engines**: by the rules at the end.
"""
SLICES = """A part of one GPU under MIG, written as the GPU's id, a colon and NVIDIA's profile. MiB as the driver prints
them, all of which CUDA sees; bandwidth by the memory slices, peaks by the multiprocessors; no link to another slice: a
model is on one. Drivers differ by some hundred MiB. Price: the share of the GPU's.
"""
CUT = ("id", "MiB", "memory slices", "multiprocessors", "instances", "GB/s", "bf16", "price", "sources")
PEAKS = ("fp32", "bf16 (else fp16)", "fp8", "int8", "fp4")
MEMORY = ("GB", "MiB", "usable GiB", "GB/s")
COLUMNS = ("id", "name", "year", "form", "capability", *MEMORY, "W", *PEAKS, "link", "PCIe", "engines", "sources")


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for vendor, rows in groupby(sorted(gpus().values(), key=lambda gpu: _order(gpu.vendor)), lambda gpu: gpu.vendor):
        parts += [f"## {vendor}\n", _table(COLUMNS, (_row(gpu) for gpu in rows))]
    parts += ["## MIG slices\n", SLICES, _table(CUT, (_slice(gpu) for gpu in slices().values()))]
    parts += ["## Rates\n", "FLOP per clock and unit (multiprocessor, compute unit or Xe core).\n"]
    rates = ((name, g.flop_per_clock, g.source) for name, g in generations().items() if g.flop_per_clock)
    parts.append(_table(("generation", "rates", "source"), ((n, _pairs(r), _link("source", s)) for n, r, s in rates)))
    parts += ["## Engines\n", _table(("engine", "platform", "needs", "source"), _engines())]
    return "\n".join(parts)


def _order(vendor: str) -> int:
    return list(dict.fromkeys(gpu.vendor for gpu in gpus().values())).index(vendor)


def _row(gpu: GPU) -> tuple[str, ...]:
    usable = f"{gpu.usable_bytes / GIB:.2f}"
    half: Dtype = "bf16" if "bf16" in gpu.tflops else "fp16"
    peaks = [
        f"{gpu.tflops[dtype]:,g}" if dtype in gpu.tflops else "–" for dtype in ("fp32", half, "fp8", "int8", "fp4")
    ]
    link = "" if gpu.link_gb_s is None else f"{gpu.link_gb_s:g} "
    reach = "" if gpu.link_gpus is None else f" of {gpu.link_gpus}"
    return (
        f"`{gpu.id}`",
        gpu.name,
        str(gpu.year),
        gpu.form,
        gpu.capability or "–",
        f"{gpu.memory_gb:g}",
        "–" if gpu.memory_mib is None else f"{gpu.memory_mib:,}",
        usable if gpu.usable_mib else f"*{usable}*",
        f"{gpu.bandwidth_gb_s:,g}",
        "–" if gpu.tdp_w is None else f"{gpu.tdp_w:,}",
        *peaks,
        f"{link}{gpu.topology or ''}{reach}".strip() or "–",
        gpu.pcie or "–",
        ", ".join(engine.title for engine in ENGINES.values() if runs(gpu, engine.support)),
        ", ".join(_link(fact, source) for fact, source in gpu.sources.items()),
    )


def _slice(gpu: GPU) -> tuple[str, ...]:
    assert gpu.slice is not None
    cut, half = gpu.slice, gpu.tflops["bf16"]
    return (
        f"`{gpu.id}`",
        f"{gpu.memory_mib:,}",
        f"{cut.memory_slices}/{cut.of_memory_slices}",
        f"{cut.sms}/{cut.of_sms}",
        str(cut.instances),
        f"{gpu.bandwidth_gb_s:,g}",
        f"{half:,.1f}",
        f"{cut.share:.0%}",
        _link("profiles", partitionings()[cut.gpu].source),
    )


def _engines() -> Iterable[tuple[str, ...]]:
    for engine in ENGINES.values():
        for platform, needs in engine.support.platforms.items():
            asks = [f"compute capability {needs.least}"] if needs.least else []
            asks += [f"{needs.before} in older versions"] if needs.before else []
            asks += [", ".join(sorted(needs.among))] if needs.among else []
            asks += [needs.plugin] if needs.plugin else []
            yield engine.title, platform, "; ".join(asks) or "–", _link("source", needs.source)


def _link(word: str, source: str) -> str:
    return f"[{word}]({source})" if source.startswith("https://") else f"{word} {source}"


def _pairs(rates: Mapping[Dtype, int]) -> str:
    return ", ".join(f"{dtype} {rate:,}" for dtype, rate in rates.items())


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (f"| {' | '.join(cells)} |" for cells in (columns, ("---",) * len(columns), *rows))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
