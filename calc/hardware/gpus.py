"""The accelerators, a row each in gpus.toml."""

import tomllib
from functools import cache
from pathlib import Path

from calc.hardware.gpu import GPU


@cache
def gpus() -> dict[str, GPU]:
    """All GPUs by id, in the order of the table."""
    rows = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))
    return {name: GPU(id=name, **row) for name, row in rows.items()}


def usual_gpus() -> list[GPU]:
    """Those that are shown first."""
    return [gpu for gpu in gpus().values() if gpu.default]
