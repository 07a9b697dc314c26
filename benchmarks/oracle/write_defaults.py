"""python -m benchmarks.oracle.write_defaults: what each class of transformers takes for a field that is left out.

Run it in an environment with Hugging Face transformers 5.23; it writes calc/families/defaults.json and, of wrappers
that take something else for their language model than its own class does, calc/families/sections.json.
"""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from calc.families.family_table import FAMILIES, WRAPPED
from calc.families.wrappers import TEXT_FIELDS

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


def section(config: Any) -> tuple[str, dict[str, Any]] | None:
    """The language model's section of a wrapper's config, and the field that it stands in."""
    fields = config.to_dict()
    return next(((name, fields[name]) for name in TEXT_FIELDS if isinstance(fields.get(name), dict)), None)


def unlike(fields: dict[str, Any], own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Sizes and flags that differ from those of the language model's own class, and those that the wrapper gives."""
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, int) and not name.endswith("_id") and name not in COMMON
        if value != own.get(name) or value == given.get(name)
    }


def sections() -> dict[str, dict[str, dict[str, Any]]]:
    """Of wrappers, where their language model's section is left out whole, and where in part."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in sorted(set(WRAPPED) & set(CONFIG_MAPPING)):
        if (default := section(CONFIG_MAPPING[name]())) is None:
            continue
        field, fields = default
        try:
            own = CONFIG_MAPPING[fields["model_type"]]().to_dict()
            partial = section(CONFIG_MAPPING[name](**{field: {"model_type": fields["model_type"]}}))
        except Exception:  # its own check refuses a part, with whatever it raises
            partial = None
        given = getattr(CONFIG_MAPPING[name].sub_configs_defaults.get(field), "init_kwargs", {})
        patterns = {key: value for key, value in given.items() if isinstance(value, str)}
        row = {"absent": unlike(fields, own, given) | patterns, "partial": {}}
        if partial is not None:
            merges = bool(given.keys() & unlike(partial[1], own, {}).keys())
            row["partial"] = unlike(partial[1], own, given if merges else {})
        if any(row.values()):
            found[name] = row
    return found


def write(path: Path, table: Mapping[str, object]) -> None:
    """One line for each name."""
    rows = (f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in table.items())
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(table)} classes in {path}")


def main() -> None:
    table = {
        name: {"fields": defaults(CONFIG_MAPPING[name]), "aliases": dict(CONFIG_MAPPING[name].attribute_map)}
        for name in sorted({family.defaults or name for name, family in FAMILIES.items()} & set(CONFIG_MAPPING))
    }
    write(TARGET, table)
    write(TARGET.with_name("sections.json"), sections())


if __name__ == "__main__":
    main()
