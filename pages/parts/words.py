"""Numbers for people. B of parameters is 10^9; GiB and MiB are powers of two, as GPUs count."""

from calc.units import GIB, MIB

KIB = 2**10


def count(n: int) -> str:
    """Parameters: 671.03 B, 494.03 M."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:,.2f} {unit}"
    return f"{n}"


def size(nbytes: int) -> str:
    """Bytes in the largest binary unit that leaves a whole part."""
    for unit, base in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(nbytes) >= base:
            return f"{nbytes / base:,.2f} {unit}"
    return f"{nbytes:,} B"


def gib(nbytes: int) -> str:
    return f"{nbytes / GIB:,.2f} GiB"


def tokens(n: int) -> str:
    """A power-of-two context as people say it: 8k, 128k, 1M; otherwise in full."""
    if n >= 2**20 and n % 2**20 == 0:
        return f"{n // 2**20}M"
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n:,}"


def layers(indices: tuple[int, ...]) -> str:
    """Layer numbers as people write them: layers 3 to 60; 12 layers from 0 in steps of 2; else how many."""
    first, last, number = indices[0], indices[-1], len(indices)
    if number == 1:
        return f"layer {first}"
    step = indices[1] - first
    if indices == tuple(range(first, last + 1, step)):
        return f"layers {first} to {last}" if step == 1 else f"layers {first}, {first + step}, … {last}"
    return f"{number} layers from {first} to {last}"
