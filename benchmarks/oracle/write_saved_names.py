"""python -m benchmarks.oracle.write_saved_names: what `save_pretrained` of transformers 5.23 calls the tensors.

It names the encoders of some wrappers, and their language models, otherwise than published checkpoints do. Small models
are built and saved; tests/data/saved_names.json gets each config as it was saved, with the names and shapes of the
file's header. Needs transformers 5.23 and torch.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers import AutoConfig, logging

from benchmarks.oracle import oracle
from benchmarks.oracle.write_counts import TOWER_CONFIGS
from benchmarks.oracle.write_test_data import write
from calc.families.family_table import WRAPPED

RENAMED = "gemma3 idefics2 idefics3 lfm2_vl llava llava_next llava_onevision paligemma smolvlm".split()
"""Wrappers whose class saves other names than were published."""
TEXT = {"num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 300, "pad_token_id": 0}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}


def saved(name: str) -> dict[str, Any]:
    """The config of a small model and its tensors' shapes, as its class saves them."""
    text = {"model_type": WRAPPED[name], **TEXT}
    config = {"model_type": name, "text_config": text, "vision_config": TOWER_CONFIGS[name][-1]}
    settings = AutoConfig.for_model(**config)
    maker = next(auto for auto in oracle.CLASSES[1:] if type(settings) in auto._model_mapping)
    with tempfile.TemporaryDirectory() as folder:
        maker.from_config(settings).save_pretrained(folder)
        written = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
        with safe_open(Path(folder, "model.safetensors"), "pt") as file:
            shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118  no mapping
    return {"id": name, "config": written, "shapes": shapes}


if __name__ == "__main__":
    logging.set_verbosity_error()
    write("saved_names.json", [saved(name) for name in RENAMED])
