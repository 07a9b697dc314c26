"""The rooms here mirror those of the project. data/ is written by benchmarks/oracle from what others published."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"


def load(name: str) -> Any:
    """A file of data/."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))
