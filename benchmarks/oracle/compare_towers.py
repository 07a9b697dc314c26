"""python -m benchmarks.oracle.compare_towers [WRAPPER ...]: our encoders beside those of the classes, by tensor.

Over the configs in tower_configs.py, of all wrappers or of some. Exits with 1 on any difference. Needs transformers
5.23 and torch, and timm for Gemma 3n and FastVLM.
"""

import re
import sys
import warnings
from typing import Any

from transformers import logging

from benchmarks.oracle import oracle
from benchmarks.oracle.tower_configs import tower_configs
from calc import Architecture

PUBLISHED_LEVEL = re.compile(r"^((?:model\.)?(?:vision|image|video)_tower)(?:\.vision_model)+\.")
"""A level that published checkpoints of CLIP's line have and transformers 5.23 saves no more."""


def same(config: dict[str, Any]) -> bool:
    """Whether each tensor is the class's; what differs is printed."""
    whole, total = oracle.theirs(config, tower=True)
    text, inner = oracle.theirs(config, tower=False)
    theirs = {PUBLISHED_LEVEL.sub(r"\1.", name): shape for name, shape in whole.items() if name not in text}
    architecture = Architecture.from_config(config)
    tensors = [t for t in architecture.tensors() if t.component == "vision"]
    ours = {PUBLISHED_LEVEL.sub(r"\1.", name): t.shape for t in tensors for name in t.names()}
    lines = oracle.differences(ours, theirs)
    count = architecture.parameters().not_in_total["vision"]
    right = not lines and count == total - inner
    mark = "" if right else "  DIFFERENT"
    print(f"{config['model_type']:24} {len(theirs):>6,} {count:>16,} {total - inner:>16,}{mark}")
    for line in list(oracle.of_one_kind(lines))[:24]:
        print(f"    {line}")
    return right


def main() -> int:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    right = [same(config) for config in tower_configs(*sys.argv[1:])]
    print(f"{sum(right)} of {len(right)} equal")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
