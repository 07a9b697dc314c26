"""python -m benchmarks.oracle.write_counts [FAMILY ...]: counts by the classes of transformers, for tests/data.

Of small configs of every family with its flags drawn at random, of every vision encoder, and of the presets that the
oracle's collection lacks, by component; or of some families and wrappers, where those of others stay as stored. Needs
torch and transformers, and timm for Gemma 3n's and FastVLM's encoders.
"""

import json
import random
import sys
from collections import Counter
from math import prod

from benchmarks.oracle import oracle
from benchmarks.oracle.random_configs import random_config
from benchmarks.oracle.tower_configs import tower_configs
from benchmarks.oracle.write_test_data import DATA, write
from calc import Architecture
from calc.families.family_table import FAMILIES
from presets import models


def small(*names: str, each: int = 3) -> None:
    """Counts of the classes themselves, on the meta device."""
    rows = []
    stored = json.loads((DATA / "small.json").read_text(encoding="utf-8"))
    for name in (name for name in FAMILIES if oracle.has_class(name)):
        if names and name not in names:
            rows += [row for row in stored if Architecture.from_config(row["config"]).model_type == name]
            continue
        chance, found = random.Random(name), 0
        for _ in range(20 * each):
            config = oracle.alone(random_config(name, chance))
            try:
                shapes, total = oracle.theirs(config, tower=False)
            except Exception:  # the class itself refuses this draw, with whatever it raises
                continue
            rows.append({"config": config, "total": total, "stored": sum(map(prod, shapes.values()))})
            found += 1
            if found == each:
                break
    write("small.json", rows)


def towers(*names: str) -> None:
    """Parameters of vision encoders and projectors, by the classes on the meta device, over a small language model."""
    stored = json.loads((DATA / "towers.json").read_text(encoding="utf-8"))
    rows = []
    for config in tower_configs():
        known = next((row for row in stored if row["config"] == json.loads(json.dumps(config))), None)
        if known and names and config["model_type"] not in names:
            rows.append(known)
            continue
        try:
            counts = [oracle.theirs(config, tower=tower)[1] for tower in (True, False)]
        except ImportError as error:  # timm is not there
            print(f"{config['model_type']} stays as it was stored: {str(error).strip().splitlines()[0]}")
            rows += [known] if known else []
            continue
        rows.append({"config": config, "vision": counts[0] - counts[1]})
    write("towers.json", rows)


WHERE = (
    ("embed_tokens", "embedding"),
    ("lm_head", "lm_head"),
    (".self_attn.", "attention"),
    (".linear_attn.", "ssm_linear"),
    (".mlp.experts.", "experts_routed"),
    (".mlp.shared_expert_gate.weight", "router"),
    (".mlp.shared_expert", "experts_shared"),
    (".mlp.gate.weight", "router"),
    (".mlp.", "mlp"),
    ("norm", "norms"),
)
"""What a name holds -> where its parameters are counted; the first that fits. For plain decoders,
DeepSeek-V3 and Qwen3-Next."""


def components() -> None:
    """Parameters of the language model by component, of presets that are neither in oracle.json nor in
    stored_tensors.json, which holds those without a class."""
    listed = ("oracle.json", "stored_tensors.json")
    known = {row["id"] for name in listed for row in json.loads((DATA / name).read_text(encoding="utf-8"))}
    rows = []
    for name, preset in models().items():
        if name in known:
            continue
        shapes, total = oracle.theirs(preset.config, tower=False)
        counts: Counter[str] = Counter()
        for tensor, shape in shapes.items():
            if not tensor.endswith("e_score_correction_bias"):  # a buffer
                counts[next(where for part, where in WHERE if part in tensor)] += prod(shape)
        assert counts.total() == total, name
        rows.append({"id": name, "total": total, "components": dict(counts)})
    write("components.json", rows)


if __name__ == "__main__":
    small(*sys.argv[1:])
    towers(*sys.argv[1:])
    if not sys.argv[1:]:
        components()
