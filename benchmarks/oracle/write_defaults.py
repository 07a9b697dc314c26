"""python -m benchmarks.oracle.write_defaults: what each class of transformers takes for a field that is left out.

Run it in an environment with Hugging Face transformers 5.23; it writes calc/families/defaults.json.
"""

import dataclasses
import importlib.util
import json
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from calc.families.family_table import FAMILIES

TARGET = Path(__file__).parents[2] / "calc" / "families" / "defaults.json"
COMMON = """
return_dict output_hidden_states dtype chunk_size_feed_forward is_encoder_decoder architectures id2label label2id
problem_type transformers_version output_attentions bos_token_id eos_token_id pad_token_id initializer_range use_cache
rope_parameters output_router_logits hidden_act hidden_activation activation activation_function pretraining_tp
""".split()  # fields of every class, or nothing to do with a size


def defaults(config_class: type) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            continue
        if field.name in COMMON or isinstance(value, float) or field.name.endswith("_token_id"):
            continue
        if isinstance(value, int | str | list | tuple | None):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    source = importlib.util.find_spec(config_class.__module__.replace("configuration", "modeling"))
    text = Path(source.origin).read_text(encoding="utf-8") if source and source.origin else ""
    if "head_dim" not in found and 'getattr(config, "head_dim"' in text:
        found["head_dim"] = None
    return found


def main() -> None:
    table = {
        name: {"fields": defaults(CONFIG_MAPPING[name]), "aliases": dict(CONFIG_MAPPING[name].attribute_map)}
        for name in sorted({family.defaults or name for name, family in FAMILIES.items()} & set(CONFIG_MAPPING))
    }
    rows = (f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in table.items())
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(table)} classes in {TARGET}")


if __name__ == "__main__":
    main()
