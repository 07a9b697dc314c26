"""python -m benchmarks.oracle.write_defaults: what each class of transformers takes for a field that is left out.

Run it in an environment with Hugging Face transformers 5.23; it writes calc/families/defaults.json and, of wrappers
that take something else for their language model than its own class does, calc/families/sections.json. In
calc/families/encoder_defaults.json, whose fields are those that a reader of towers asks for, it writes what the classes
take for them; a field that is new there may stand with any value. What no class has, because the model's code is its
own or the reader's name for a thing is, stays.
"""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from calc.families import FURTHER_DEFAULTS
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


def refreshed(section: type | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with what the class of a section takes for each that is left out, where it has them. A field that is
    null may stay so, for a reader that makes it of others, or be what the class fills in."""
    if section is None:
        return dict(fields)
    known, made = {field.name: field.default for field in dataclasses.fields(section)}, section().to_dict()
    found = dict(fields)
    for name, stated in fields.items():
        own = name if name in known else section.attribute_map.get(name)
        if own in known:
            filled = known[own] is dataclasses.MISSING or (known[own] is None and made[own] is not None and stated)
            found[name] = made[own] if filled else known[own] if known[own] is not None else stated
    return found


def encoder_defaults(known: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Defaults of encoders by model_type, and of wrappers by model_type and section."""
    ours, theirs = known["encoders"], {*known["encoders"]} & {*CONFIG_MAPPING}
    encoders = ours | {name: refreshed(CONFIG_MAPPING[name], fields) for name, fields in ours.items() if name in theirs}
    wrappers = {}
    for name, rows in known["wrappers"].items():
        whole = CONFIG_MAPPING[name]() if name in CONFIG_MAPPING else None
        wrappers[name] = {path: refreshed(class_within(whole, path), fields) for path, fields in rows.items()}
    return {"encoders": encoders, "wrappers": wrappers}


def class_within(config: Any, path: str) -> type | None:
    """The class of a section by its path; None where there is none."""
    for name in filter(None, path.split(".")):
        config = getattr(config, name, None)
    return None if config is None else type(config)


def write_encoders(path: Path) -> None:
    """One line for each name of a table."""
    known = json.loads(path.read_text(encoding="utf-8"))
    tables = (
        f"{json.dumps(kind)}: {{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        for kind, rows in encoder_defaults(known).items()
    )
    path.write_text("{\n" + "\n},\n".join(tables) + "\n}\n}\n", encoding="utf-8")


def write(path: Path, table: Mapping[str, object]) -> None:
    """One line for each name."""
    rows = (f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in table.items())
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(table)} classes in {path}")


def main() -> None:
    table = {
        name: {"fields": defaults(CONFIG_MAPPING[name]), "aliases": dict(CONFIG_MAPPING[name].attribute_map)}
        for name in sorted(
            {FURTHER_DEFAULTS.get(name, {}).get("class", name) for name in FAMILIES} & set(CONFIG_MAPPING)
        )
    }
    write(TARGET, table)
    write(TARGET.with_name("sections.json"), sections())
    write_encoders(TARGET.with_name("encoder_defaults.json"))


if __name__ == "__main__":
    main()
