"""Families with which an engine has rules of its own, by engine and rule: `families.toml`, which says what each is."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from calc.errors import Message, Refusal
from calc.hardware.parallel import Layout
from calc.hardware.shards import OutsideRules
from calc.model.architecture import Architecture
from calc.model.tensor import Component

TABLE = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
FAMILIES = {
    engine: {rule: frozenset(names.split()) for rule, names in rules.items() if isinstance(names, str)}
    for engine, rules in TABLE.items()
}


def families(engine: str, rule: str) -> frozenset[str]:
    """Families, by model_type, for which a rule of an engine holds."""
    return FAMILIES[engine][rule]


def versions(engine: str, rule: str) -> dict[str, tuple[int, ...] | None]:
    """Version from or up to which a rule of an engine holds for each family; None: there is none."""
    return {
        family: None if version == "never" else tuple(map(int, version.split(".")))
        for version, names in TABLE[engine][rule].items()
        for family in names.split()
    }


def class_family(model: Architecture) -> str:
    """The family by which an engine chooses its class: that of the whole model where it has an encoder."""
    return model.model_type if model.vision is None else model.vision.wrapper or model.model_type


def undivided(engine: str, title: str, model: Architecture, layout: Layout, ranks: int) -> Iterator[Refusal]:
    """Why an engine's class of a model does not run on several pipeline stages, tensor-parallel ranks, or copies of its
    attention. `ranks`: those that the engine calls tensor-parallel."""
    rules, family = FAMILIES[engine], class_family(model)
    if layout.pp > 1 and family in rules.get("one_stage", ()):
        sentence = "{engine}'s class of {family} does not run on pipeline stages (pp)."
        yield Refusal(Message(sentence, engine=title, family=family), "pp", [1])
    if layout.pp > 1 and model.tied and model.model_type in rules.get("tied_on_one_stage", ()):
        sentence = "{engine}'s class of {family} has no head on the last pipeline stage (pp) where it is the embedding."
        yield Refusal(Message(sentence, engine=title, family=family), "pp", [1])
    if layout.tp > 1 and family in rules.get("one_rank", ()):
        sentence = "{engine}'s class of {family} does not divide over tensor-parallel ranks (tp)."
        yield Refusal(Message(sentence, engine=title, family=family), "tp", [1])
    if layout.dp > 1 and model.experts and family in rules.get("one_copy", ()):
        sentence = "{engine}'s class of {family} does not run with copies of the attention (dp)."
        yield Refusal(Message(sentence, engine=title, family=family), "dp", [1])
    if ranks > 1 and model.model_type in rules["experts_as_many_as_ranks"]:
        most = max((moe.n_experts for moe in model.experts), default=ranks)
        if ranks > most:
            sentence = (
                "{engine}'s class of {family} needs as many routed experts as tensor-parallel ranks: {n:,} are fewer "
                "than {ranks:,}."
            )
            message = Message(sentence, engine=title, family=model.model_type, n=most, ranks=ranks)
            yield Refusal(message, "tp" if layout.tp > most else "dp")


ON_EVERY_STAGE: dict[str, Component] = {
    "embedding_on_every_stage": "embedding",
    "head_on_every_stage": "lm_head",
    "norm_on_every_stage": "norms",
    "rest_on_every_stage": "other",
}


def outside_rules(engine: str, family: str) -> OutsideRules:
    """Weights outside the layers that an engine's class of a family makes on pipeline stages."""
    rules = FAMILIES.get(engine, {})
    return OutsideRules(
        frozenset(component for rule, component in ON_EVERY_STAGE.items() if family in rules.get(rule, ())),
        family in rules.get("own_head", ()),
        family in rules.get("own_head_on_stages", ()),
    )


def divided_rows(engine: str, family: str) -> frozenset[str]:
    """Modules outside the layers, by name, whose rows an engine's class of a family divides over the ranks."""
    rules = TABLE.get(engine, {}).get("divided_rows", {})
    return frozenset(module for module, names in rules.items() if family in names.split())


def unserved(engine: str, model: Architecture) -> str | None:
    """The family that an engine has no class for, of the whole model with its encoder or of the language model; None
    where it has one."""
    wrapper = "" if model.vision is None else model.vision.wrapper
    if wrapper and wrapper not in families(engine, "with_images"):
        return wrapper
    return None if model.model_type in families(engine, "served") else model.model_type
