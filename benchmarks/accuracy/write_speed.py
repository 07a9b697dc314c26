"""python -m benchmarks.accuracy.write_speed SPEED.json: the measured speeds that the tests hold, as a table."""

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "tests" / "data" / "speed.json"
COLUMNS = ("id", "kind", "model", "gpu", "n_gpus", "tp", "precision", "engine", "batch", "input_len", "output_len")
COLUMNS += ("value", "unit", "source", "notes")
NAMED = ("source", "notes", "model")
"""Columns whose texts are listed once."""


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns by name, long texts by their number."""
    texts: dict[str, int] = {}

    def cell(row: dict[str, Any], name: str) -> Any:
        return texts.setdefault(str(row[name]), len(texts)) if name in NAMED else row[name]

    cells = [[cell(row, name) for name in COLUMNS] for row in rows]
    return {"columns": COLUMNS, "texts": list(texts), "rows": cells}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, a table or a list."""
    read = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(read, list):
        return read
    texts = read["texts"]
    return [
        {name: texts[value] if name in NAMED else value for name, value in zip(read["columns"], cells, strict=True)}
        for cells in read["rows"]
    ]


def main() -> None:
    whole = table(rows_of(Path(sys.argv[1])))
    lines = {
        name: ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in whole[name])
        for name in ("texts", "rows")
    }
    columns = json.dumps(whole["columns"])
    text = f'{{\n "columns": {columns},\n "texts": [\n{lines["texts"]}\n ],\n "rows": [\n{lines["rows"]}\n ]\n}}\n'
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
