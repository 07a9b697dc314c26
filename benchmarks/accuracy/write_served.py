"""python -m benchmarks.accuracy.write_served SERVED.json: the measured servers that the tests hold, of those whose
config is short: every 25th that prefills and decodes on the same GPUs, and every 4th that does not."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.accuracy.judged import rows_of
from benchmarks.accuracy.served import Server, name_of, predicted

DATA = Path(__file__).parents[2] / "tests" / "data"
COLUMNS = ("model", "weights", "gpu", "engine", "kv", "tp", "pp", "dp", "ep", "mode", "isl", "osl", "lengths", "load")
COLUMNS += ("concurrency", "speculation", "doubt", "ttft_ms", "tpot_ms", "source")
OF_SIDES = ("engine_version", "n_gpus", "prefill", "decode")
EVERY, EVERY_APART, LONGEST = 25, 4, 2500


def main() -> None:
    path = Path(sys.argv[1])
    rows, configs = rows_of(path)
    short = {name: config for name, config in configs.items() if len(json.dumps(config)) < LONGEST}
    sources = json.loads(path.read_text(encoding="utf-8"))["sources"]
    rows = [{**row, "source": sources[row["source"]]} for row in rows]
    judged = [server.row for server in predicted(rows, short) if isinstance(server, Server)]
    write("served", COLUMNS, judged[::EVERY], short)
    apart = [row for row in rows if row["mode"] == "disaggregated" and name_of(row) in short]
    write("disaggregated", (*COLUMNS, *OF_SIDES), apart[::EVERY_APART], short)


def write(
    name: str, columns: Iterable[str], rows: Iterable[Mapping[str, Any]], configs: Mapping[str, Mapping[str, Any]]
) -> None:
    """Rows, a line each, and the configs that they name."""
    lines = ",\n".join(f"  {json.dumps([row[column] for column in columns])}" for row in rows)
    named = sorted({name_of(row) for row in rows})
    texts = ",\n".join(f"  {json.dumps(one)}: {json.dumps(configs[one])}" for one in named)
    text = f'{{\n "columns": {json.dumps(columns)},\n "rows": [\n{lines}\n ],\n "configs": {{\n{texts}\n }}\n}}\n'
    (DATA / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
