"""python -m benchmarks.accuracy.write_rl RL_STEPS.json: tracked steps of TRL losses that tests and docs hold, without
what was alive at their peaks."""

import json
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "tests" / "data" / "rl_steps.json"
COLUMNS = ("model", "trl", "method", "recipe", "optimizer", "micro_batch", "prompt", "completion", "checkpointing")
COLUMNS += ("lora", "accumulation", "reference", "logits", "completion_only", "packing", "ranks", "fsdp_style")
COLUMNS += ("scored_tokens", "trained", "phases")


def main() -> None:
    facts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows = [
        row | {"lora": row["lora"] and row["lora"]["r"], "phases": [*row["phases"].values()]}
        for row in map(ordered, facts["rows"])
    ]
    phases = [*ordered(facts["rows"][0])["phases"]]
    lines = ",\n".join(f"  {json.dumps([row[name] for name in COLUMNS])}" for row in rows)
    configs = ",\n".join(f"  {json.dumps(name)}: {json.dumps(config)}" for name, config in facts["configs"].items())
    head = f' "columns": {json.dumps(COLUMNS)},\n "phases": {json.dumps(phases)},\n'
    FILE.write_text(f'{{\n{head} "rows": [\n{lines}\n ],\n "configs": {{\n{configs}\n }}\n}}\n', encoding="utf-8")


def ordered(row: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """A row with its phases in one order, those alone that are judged."""
    return row | {"phases": {name: size for name, size in sorted(row["phases"].items()) if name != "at_head"}}


if __name__ == "__main__":
    main()
