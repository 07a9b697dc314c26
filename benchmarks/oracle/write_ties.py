"""python -m benchmarks.oracle.write_ties: which `tie_word_embeddings` of a config ties the head of a wrapped model.

A class may ask its own config, its language model's, either, or none. Each is built on the meta device with both stated
true, false and left out, and the head compared with the embedding. Run it in an environment with Hugging Face
transformers 5.23 and its optional packages (Pillow, timm); it writes calc/families/ties.json.
"""

import json
import random
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.oracle.flip_values import cut
from benchmarks.oracle.oracle import OUTER
from benchmarks.oracle.random_configs import random_config
from calc.families.family_table import WRAPPED
from calc.families.wrappers import TEXT_FIELDS, TIE, TIES

TARGET = Path(__file__).parents[2] / "calc" / "families" / "ties.json"
STATED = (True, False, None)
CLASSES = (
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES,
)

Answers = dict[tuple[bool | None, bool | None], bool]
"""Whether the head is tied, by what the config and the language model's section state."""


def class_of(name: str) -> type | None:
    """The class of a model_type that has a head."""
    found = next((classes[name] for classes in CLASSES if name in classes), None)
    if found is None or name not in CONFIG_MAPPING:
        return None
    loaded: type = getattr(transformers, found if isinstance(found, str) else found[0])
    return loaded


def section_of(config: dict[str, Any]) -> str | None:
    """The field that holds the language model's config."""
    return next((field for field in TEXT_FIELDS if isinstance(config.get(field), dict)), None)


def is_tied(model: Any) -> bool:
    """Whether the head is the embedding."""
    model.tie_weights()
    heads = (module for name, module in model.named_modules() if name.split(".")[-1] == "lm_head")
    head = model.get_output_embeddings() or next(heads)
    return head.weight is model.get_input_embeddings().weight


def buildable(name: str, built: Any) -> dict[str, Any]:
    """The default config of a class, or, where the class can't be built so, one with a small language model."""
    chance, last = random.Random(name), None
    for draw in range(30):
        stated = cut(CONFIG_MAPPING[name]().to_dict()) if draw == 1 else {}
        stated |= {"text_config": random_config(WRAPPED[name], chance), **OUTER.get(name, {})} if draw > 1 else {}
        try:
            config = CONFIG_MAPPING[name](**stated)
            with torch.device("meta"):
                built(config)
        except Exception as error:  # whatever the class raises
            last = error
        else:
            found: dict[str, Any] = config.to_dict()
            return found
    assert last is not None
    raise last


def answers(name: str, built: Any, field: str) -> Answers:
    found: Answers = {}
    default = buildable(name, built)
    for own, text in product(STATED, STATED):
        config = deepcopy(default)
        for part, stated in ((config, own), (config[field], text)):
            part.pop(TIE, None)
            if stated is not None:
                part[TIE] = stated
        with torch.device("meta"):
            found[own, text] = is_tied(built(CONFIG_MAPPING[name].from_dict(config)))
    return found


def rule_of(name: str, found: Answers) -> dict[str, object]:
    """The rule that gives these answers, and what the config's own field is where it is left out."""
    for rule, own, text in product(TIES, (False, True), (False, True)):
        expected = {
            stated: TIES[rule](own if stated[0] is None else stated[0], text if stated[1] is None else stated[1])
            for stated in found
        }
        if expected == found:
            return {"rule": rule, "own": own}
    raise ValueError(f"{name}: no rule gives {found}")


def main() -> None:
    rows = []
    for name in WRAPPED:
        built = class_of(name)
        field = None if built is None else section_of(CONFIG_MAPPING[name]().to_dict())
        if built is None or field is None:
            continue
        try:
            found = answers(name, built, field)
        except Exception as error:  # a class that can't be built here
            print(f"{name} is left out: {error!r}")
            continue
        rows.append(f"{json.dumps(name)}: {json.dumps(rule_of(name, found))}")
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(rows)} of {len(WRAPPED)} wrappers in {TARGET}")


if __name__ == "__main__":
    main()
