"""python -m benchmarks.oracle.stored_checkpoints CHECKPOINT_BYTES.json: what stored checkpoints weigh, for tests.

CHECKPOINT_BYTES.json has `configs` by model, with the hf_quant_config.json that lies beside some, and `rows` with the
bytes of each part. Of the rows that are asked as a config only those that are quantized are kept. Module lists of
many names are written as patterns, `{"{patterns}": {"layers.{0..2}.mlp": ...}}`, which `spelled_out` undoes."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "tests" / "data" / "checkpoint_bytes.json"
PARTS = ("text", "multi_token_prediction", "vision")
KV_FP8 = re.compile(r'"kv_cache_(?:quant_algo|scheme)": ?(?:"FP8"|\{[^}]*"num_bits": ?8)')
"""How a checkpoint asks for a cache in fp8."""


def spelled_out(value: Any) -> Any:
    """A config with each name of a list in full."""
    if isinstance(value, Mapping):
        if list(value) == ["{patterns}"]:
            return {name: how for pattern, how in value["{patterns}"].items() for name in names(pattern)}
        return {key: spelled_out(inner) for key, inner in value.items()}
    return [spelled_out(inner) for inner in value] if isinstance(value, list) else value


def names(pattern: str) -> Iterator[str]:
    """Those that a pattern stands for: ranges are inclusive, commas separate them."""
    *pairs, last = re.findall(r"([^{]*)(?:\{([^}]*)\})?", pattern)
    for numbers in product(*([*ranged(braces)] if braces else [""] for _, braces in pairs)):
        yield "".join(text + number for (text, _), number in zip(pairs, numbers, strict=True)) + last[0]


def ranged(braces: str) -> Iterator[str]:
    for part in braces.split(","):
        first, _, end = part.partition("..")
        yield from map(str, range(int(first), int(end or first) + 1))


def rows(truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows that have figures: a preset or a config, the bytes of each part, and the cache that is asked for."""
    for row in truth["rows"]:
        if "computed" not in row:
            continue
        parts = {part: row["computed"][part] for part in PARTS}
        if row["ask"] == "preset":
            yield {"preset": row["preset"], **parts, "kv": "bf16"}
        elif row["kind"] != "16 bit":
            stored = truth["configs"][row["config"]]
            own = '"quantization_config"' in json.dumps(stored["config"])
            files = {name: stored[name] for name in ("config", *(() if own else ("hf_quant_config",)))}
            kv = "fp8" if KV_FP8.search(json.dumps(files)) else "bf16"
            yield {"id": row["id"], "kind": row["kind"], **files, **parts, "kv": kv}


def main() -> None:
    truth = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    lines = ",\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows(truth))
    DATA.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
