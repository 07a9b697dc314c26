"""python benchmarks/write_test_data.py ORACLE.json: cut the oracle down to what the tests need, in tests/data.

The oracle counts models by instantiating their classes of Hugging Face transformers 5.23 on the meta device, from
published configs, and holds the totals published for their checkpoints.
"""

import json
import sys
from pathlib import Path

from calc.families.table import FAMILIES, WRAPPERS

TARGET = Path(__file__).parents[1] / "tests" / "data" / "oracle.json"


def main(oracle: str) -> None:
    rows = [
        {
            "id": model["id"],
            "config": model["config_raw"],
            "total": model["text_total"],
            "active": model["active"],
            "components": {name: n for name, n in model["groups"].items() if name != "vision_audio"},
            "persistent_buffers": (model["buffers"] or {}).get("persistent", 0),
            "multi_token_prediction": (model["mtp"] or {}).get("params", 0),
            "vision": model["groups"].get("vision_audio", 0),
            "cached_full": model["kv_cache"]["unique_per_token_full"],
            "cached_sliding": model["kv_cache"]["unique_per_token_sliding"],
            "windows": model["kv_cache"]["windows"],
            "state": model["kv_cache"]["state_elems"],
        }
        for model in json.loads(Path(oracle).read_text(encoding="utf-8"))
        if model["model_type"] in FAMILIES or model["model_type"] in WRAPPERS
    ]
    TARGET.write_text(
        "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n", encoding="utf-8"
    )
    print(f"{len(rows)} models in {TARGET}")


if __name__ == "__main__":
    main(sys.argv[1])
