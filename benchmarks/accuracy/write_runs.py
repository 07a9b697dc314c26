"""python -m benchmarks.accuracy.write_runs: measured runs by engine, GPU and parameters of the model, which
calc/time/origin.py reads: those of tests/data/speed.json and of served.json that `time` and `served` compare."""

import json
from collections import Counter
from functools import cache

from benchmarks.accuracy import served, time
from calc import Architecture
from calc.time.origin import FILE


def main() -> None:
    runs: Counter[tuple[str, str, int]] = Counter()
    for row in time.found(time.rows_of(time.ROWS)):
        if isinstance(row, time.Timed) and not row.kind.startswith("training"):
            case = row.case
            runs[time.engine_of(case.row), case.gpu.id, case.architecture.parameters().total] += 1
    rows, configs = served.rows_of(served.ROWS)
    parameters = cache(lambda name: Architecture.from_config(configs[name]).parameters().total)
    for record in rows:
        if served.why_not(record, configs) is None:
            runs[record["engine"], record["gpu"], parameters(served.name_of(record))] += 1
    lines = ",\n".join(f" {json.dumps([*key, count])}" for key, count in sorted(runs.items()))
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
