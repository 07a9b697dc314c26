"""python -m benchmarks.accuracy.write_served SERVED.json: the measured servers that the tests hold, every 25th of those
whose config is short."""

import json
import sys
from pathlib import Path

from benchmarks.accuracy.judged import rows_of
from benchmarks.accuracy.served import name_of, why_not

FILE = Path(__file__).parents[2] / "tests" / "data" / "served.json"
COLUMNS = ("model", "weights", "gpu", "engine", "kv", "tp", "pp", "dp", "ep", "mode", "isl", "osl", "lengths", "load")
COLUMNS += ("concurrency", "speculation", "doubt", "ttft_ms", "tpot_ms", "source")
EVERY, LONGEST = 25, 2500


def main() -> None:
    rows, configs = rows_of(Path(sys.argv[1]))
    short = {name: config for name, config in configs.items() if len(json.dumps(config)) < LONGEST}
    sample = [row for row in rows if why_not(row, short) is None][::EVERY]
    named = {name_of(row) for row in sample}
    sources = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["sources"]
    lines = ",\n".join(
        f"  {json.dumps([sources[row[name]] if name == 'source' else row[name] for name in COLUMNS])}" for row in sample
    )
    texts = ",\n".join(f"  {json.dumps(name)}: {json.dumps(short[name])}" for name in sorted(named))
    text = f'{{\n "columns": {json.dumps(COLUMNS)},\n "rows": [\n{lines}\n ],\n "configs": {{\n{texts}\n }}\n}}\n'
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
