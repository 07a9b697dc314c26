"""python -m benchmarks.accuracy.write_trained TRAINED.json: the measured training steps that the tests hold, every
6th."""

import json
import sys
from pathlib import Path

from benchmarks.accuracy.judged import rows_of

FILE = Path(__file__).parents[2] / "tests" / "data" / "trained.json"
COLUMNS = ("id", "model", "method", "gpu", "n_gpus", "framework", "version", "precision", "mbs", "accumulation")
COLUMNS += ("sequence", "tp", "pp", "cp", "vp", "ep", "fsdp", "recompute", "tokens_s_gpu", "tflops_gpu", "source")
EVERY = 6


def main() -> None:
    rows, configs = rows_of(Path(sys.argv[1]))
    sources = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["sources"]
    sample = rows[::EVERY]
    lines = ",\n".join(
        f"  {json.dumps([sources[row[name]] if name == 'source' else row[name] for name in COLUMNS])}" for row in sample
    )
    texts = ",\n".join(
        f"  {json.dumps(model)}: {json.dumps(configs[model])}" for model in sorted({row["model"] for row in sample})
    )
    text = f'{{\n "columns": {json.dumps(COLUMNS)},\n "rows": [\n{lines}\n ],\n "configs": {{\n{texts}\n }}\n}}\n'
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
