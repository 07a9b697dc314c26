"""The accelerators, a row each in catalogue/*.json. Figures are facts with addresses; what follows from a rule (a peak
from its clock, a vendor from its generation, a smaller memory of the same chip) is worked out here."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from calc.hardware.generations import Clock, Generation
from calc.hardware.gpu import GPU

HERE = Path(__file__).with_name("catalogue")
FILES = (
    "datacenter",
    "workstation",
    "geforce",
    "amd",
    "intel",
    "apple",
    "huawei",
    "others",
)  # in the order of the pages
METAL_SHARES = (
    (128, 0.84, "https://github.com/antirez/ds4/pull/893"),  # 107.52 of 128 GiB
    (48, 0.75, "https://github.com/ggml-org/llama.cpp/issues/1870"),  # 49152 of 65536 MiB
    (16, 0.74, "https://github.com/AlexsJones/llmfit/pull/754"),  # 11.84 of 16 GiB
    (0, 2 / 3, "https://github.com/abetlen/llama-cpp-python/issues/687"),  # 10922.67 of 16384 MiB, older macOS
)
"""GB from which macOS lets Metal take a share of unified memory (`recommendedMaxWorkingSetSize`): of two versions of
macOS the one observed for the size, 1/4 kept back where only the older was. `iogpu.wired_limit_mb` raises it."""


def generations() -> Mapping[str, Generation]:
    return MappingProxyType({name: Generation(**row) for name, row in _read("generations").items()})


@cache
def gpus() -> Mapping[str, GPU]:
    """All GPUs by id, in the order of the tables."""
    rows = ((name, row) for file in FILES for name, row in _read(file).items())
    by_name = generations()
    return MappingProxyType({gpu.id: gpu for name, row in rows for gpu in _variants(name, row, by_name)})


@cache
def usual_gpus() -> tuple[GPU, ...]:
    """GPUs that are shown first."""
    return tuple(gpu for gpu in gpus().values() if gpu.default)


def _read(file: str) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads((HERE / f"{file}.json").read_text(encoding="utf-8"))
    return rows


def _variants(name: str, row: dict[str, Any], by_name: Mapping[str, Generation]) -> Iterator[GPU]:
    """The GPU of a row, then the same chip with less memory: `also_gb`."""
    smaller = row.pop("also_gb", ())
    generation = by_name[row["generation"]]
    yield _gpu(name, row | {"name": f"{row['name']} {row['memory_gb']}GB"} if smaller else row, generation)
    for gb in smaller:
        yield _gpu(f"{name}-{gb}gb", row | {"name": f"{row['name']} {gb}GB", "memory_gb": gb}, generation)


def _gpu(name: str, row: dict[str, Any], generation: Generation) -> GPU:
    implied: dict[str, Any] = {
        "id": name,
        "vendor": generation.vendor,
        "platform": generation.platform,
        "capability": generation.capability,
        "software": generation.software,
        "formats": generation.native,
    }
    if clock := row.get("clock"):
        implied["tflops"] = generation.peaks(Clock(**clock))
    if "link_gb_s" not in row and row["form"] in ("pcie", "laptop", "soc", "module"):
        implied["topology"] = "pcie only" if row["form"] == "pcie" else "single"
    if generation.platform == "metal":
        share, source = next((share, source) for least, share, source in METAL_SHARES if row["memory_gb"] >= least)
        implied |= {"usable_share": share, "sources": row["sources"] | {"usable": source}}
    return GPU(**(row | implied | {"capability": row.get("capability", generation.capability)}))
