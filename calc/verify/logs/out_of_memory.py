"""PyTorch's message that memory ran out, of 2.1 on and before it. Its sizes are binary
(c10/cuda/CUDACachingAllocator.cpp)."""

import re

from calc.errors import Frozen
from calc.serving.engines.startup_log import SIZE
from calc.units import GIB, MIB

OOM_WORDS = "out of memory. Tried to allocate "
CHARACTERS = 2_000  # a narrow terminal breaks a message of 600 characters over several lines
BYTES = {"bytes": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB, "KB": 2**10, "MB": MIB, "GB": GIB}
WORDINGS = {
    "tried": (r"Tried to allocate SIZE",),
    "total": (r"has a total capac(?:i)?ty of SIZE", r"; SIZE total capacity"),
    "free": (r"of which SIZE is free", r"; SIZE free"),
    "allocated": (r"allocated memory SIZE is allocated by PyTorch", r"; SIZE already allocated"),
    "reserved": (r"SIZE is reserved by PyTorch but unallocated", r"; SIZE cached"),
    "in_use": (r"this process has SIZE memory in use",),
    "others": (r"Process [0-9]{1,10} has SIZE memory in use",),
    "pool": (r"; SIZE reserved in total by PyTorch",),
}
PATTERNS = {
    name: tuple(re.compile(wording.replace("SIZE", SIZE.replace("NAME", "a")), re.ASCII) for wording in wordings)
    for name, wordings in WORDINGS.items()
}
RETRY_WORDS = "memory allocation failed with OOM on device "
RETRY = re.compile(
    RETRY_WORDS + r"[0-9]{1,4} while trying to allocate ([0-9]{1,18}) bytes "
    r"\(free: ([0-9]{1,18}), total: ([0-9]{1,18})\)",
    re.ASCII,
)
"""A warning of PyTorch, after which it frees what it has cached and tries again."""


class OutOfMemory(Frozen):
    """PyTorch's message, in bytes."""

    tried: int
    total: int | None = None
    free: int | None = None
    in_use: int | None = None  # by this process; where a container hides its number, by all that are listed
    allocated: int | None = None  # by PyTorch
    reserved: int | None = None  # by PyTorch, but not allocated
    is_warning: bool = False  # PyTorch tries again


def size(match: re.Match[str], name: str = "a") -> int:
    """Bytes of a size. Engines, too, divide by 2^30 whatever they write: vLLM GiB, and GB before 0.8; SGLang GB
    (`get_available_gpu_memory`, memory_pool.py)."""
    return round(float(match[name]) * BYTES[match[f"{name}_unit"]])


def ran_out(line: str) -> bool:
    return OOM_WORDS in line or RETRY_WORDS in line


def out_of_memory(text: str) -> OutOfMemory | None:
    """PyTorch's message, which begins within the text."""
    warning = RETRY.search(text)
    if warning is not None and OOM_WORDS not in text:
        tried, free, total = map(int, warning.groups())
        return OutOfMemory(tried=tried, free=free, total=total, is_warning=True)
    message = OOM_WORDS + text.partition(OOM_WORDS)[2].partition(OOM_WORDS)[0][:CHARACTERS]
    matched = {
        name: [size(match) for wording in wordings for match in wording.finditer(message)]
        for name, wordings in PATTERNS.items()
    }
    if not matched["tried"]:
        return None
    first = {name: sizes[0] if sizes else None for name, sizes in matched.items()}
    allocated, reserved, pool = first["allocated"], first["reserved"], first["pool"]
    if reserved is None and pool is not None and allocated is not None:
        reserved = pool - allocated
    return OutOfMemory(
        tried=matched["tried"][0],
        total=first["total"],
        free=first["free"],
        in_use=first["in_use"] or sum(matched["others"]) or None,
        allocated=allocated,
        reserved=reserved,
    )
