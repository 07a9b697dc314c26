"""docs/families.md: every family and what it was checked against. `python -m benchmarks.families > docs/families.md`"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calc.families.family_table import FAMILIES, WRAPPED
from calc.families.gguf import ARCHITECTURES
from presets import models

MAKERS = Path(__file__).with_name("makers.toml")
DATA = Path(__file__).parents[1] / "tests" / "data"
HEAD = """# Families

Written by `python -m benchmarks.families > docs/families.md` from the rows of `calc/families` and from what the tests
hold them against.

- **Random configs**: small configs with flags drawn at random, counted by the class in Hugging Face transformers 5.23
  on the meta device (`tests/data/small.json`); `python -m benchmarks.oracle --random N` also compares the name and
  shape of every tensor.
- **Published configs**: counted by the same classes, by component, with the cache and the state
  (`tests/data/oracle.json`).
- **Published totals**: of the files on a model's page, to the parameter. Where a page states only sizes of files, ours
  agree to the last digit shown (`presets/models`, `tests/data/published.json`).
"""
COLUMNS = ("Family", "Maker", "Wrapped by", "GGUF", "Random configs", "Published configs", "Published totals")
HUB = "https://huggingface.co/"


def load(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return rows


def family_of(config: Mapping[str, Any]) -> str:
    """The row that reads a config's language model."""
    name: str = config["model_type"]
    while name in WRAPPED:
        name = WRAPPED[name]
    return name


def page() -> str:
    table = tomllib.loads(MAKERS.read_text(encoding="utf-8"))
    makers = {family: maker for maker, families in table.items() for family in families.split()}
    small, counted = load("small.json"), load("oracle.json")
    presets = [(p.id, f"{HUB}{p.id}", p.config) for p in models().values() if p.source.startswith("http")]
    published = [*presets, *((row["id"], row["source"], row["config"]) for row in load("published.json"))]

    def row(name: str) -> Iterator[str]:
        yield f"`{name}`"
        yield makers[name]
        yield ", ".join(f"`{wrapper}`" for wrapper in WRAPPED if family_of({"model_type": wrapper}) == name)
        yield ", ".join(f"`{header}`" for header, read_as in ARCHITECTURES.items() if read_as == name)
        yield str(sum(family_of(each["config"]) == name for each in small) or "")
        yield str(sum(family_of(each["config"]) == name for each in counted) or "")
        yield ", ".join(f"[{model}]({source})" for model, source, config in published if family_of(config) == name)

    lines = [COLUMNS, ("---",) * len(COLUMNS), *(tuple(row(name)) for name in sorted(FAMILIES, key=str.lower))]
    rows = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{HEAD}\n{len(FAMILIES)} families, {len(WRAPPED)} models that wrap one.\n\n{rows}\n"


if __name__ == "__main__":
    print(page(), end="")
