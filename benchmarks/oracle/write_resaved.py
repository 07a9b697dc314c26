"""python -m benchmarks.oracle.write_resaved FOLDER: configs as transformers saves them, with exact counts.

`save_pretrained` of transformers 5.23 writes other configs than were published: it gathers what differs between layers
in `per_layer_config`, and states what was left out. FOLDER holds such files; the classes whose layers differ add their
defaults. Each is built on the meta device. Writes tests/data/resaved.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.oracle.write_ties import class_of

DATA = Path(__file__).parents[2] / "tests" / "data"
UNLIKE = ("diffusion_gemma", "dots3_note", "gemma4_text", "step3p7_text", "step3p7")
"""Model types whose layers differ in size."""
TOWERS = ("vision", "audio", "projector", "embed_vision", "embed_audio", "connector", "image_newline")


def counted(config: dict[str, Any]) -> dict[str, Any]:
    """The config with the parameters of its language model, a tied head once."""
    built = class_of(config["model_type"])
    with torch.device("meta"):
        model: Any = built(CONFIG_MAPPING[config["model_type"]].from_dict(config))  # type: ignore[misc]
    model.tie_weights()
    named = model.named_parameters()
    total = sum(one.numel() for name, one in named if not any(tower in name for tower in TOWERS))
    return {"config": config, "total": total}


def main(folder: str) -> None:
    configs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))}
    for name in UNLIKE:
        if name in CONFIG_MAPPING and class_of(name) is not None:
            configs[name] = json.loads(CONFIG_MAPPING[name]().to_json_string(use_diff=False))
    rows = []
    for name, config in configs.items():
        try:
            rows.append({"id": name, **counted(config)})
        except Exception as error:  # a class that its own default config does not build
            print(f"{name} is left out: {error!r}")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (DATA / "resaved.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(rows)} rows in {DATA / 'resaved.json'}")


if __name__ == "__main__":
    main(sys.argv[1])
