"""Models that wrap a language model: where its own config lies within theirs."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from calc.families.family_table import FAMILIES, WRAPPED
from calc.families.fields import section_of

TEXT_FIELDS = ("text_config", "llm_config", "language_config", "thinker_config")
TIE = "tie_word_embeddings"
TIES: Mapping[str, Callable[[bool, bool], bool]] = {
    "never": lambda own, text: False,
    "own": lambda own, text: own,
    "text": lambda own, text: text,
    "either": lambda own, text: own or text,
}
"""Whether a head is tied, by what a config says itself and what the language model's section says."""

TIE_RULES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    json.loads(Path(__file__).with_name("ties.json").read_text(encoding="utf-8"))
)
"""The rule of TIES that each class of transformers follows, and what its own field is where it is left out."""
TIED = ("gemma3n",)
"""Wrappers without such a rule that tie where nothing is stated."""
SECTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    json.loads(Path(__file__).with_name("sections.json").read_text(encoding="utf-8"))
)
"""A wrapper's own defaults for fields of the language model's section, where they differ from those of the language
model's class: with the section left out whole, and in part."""


def language(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model alone, with a model_type that the table may hold. Raises ConfigError."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in WRAPPED:
        return config
    field = _field(config)
    section = config if field is None else section_of(config[field], field)
    own = section.get("model_type") if field is not None else None
    known = isinstance(own, str) and (own in FAMILIES or own in WRAPPED)
    defaults = SECTIONS.get(model_type, {}).get("absent" if field is None else "partial", {})
    merged = {**defaults, **section, "model_type": own if known else WRAPPED[model_type]}
    return language({**merged, **_tie(model_type, config, section)})


def _tie(model_type: str, config: Mapping[str, Any], section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that tell the language model of its tie; none where its own word, or its class's, stands. Of a wrapper
    without a class in transformers the config goes before the section."""
    if model_type not in TIE_RULES:
        return {TIE: next((part[TIE] for part in (config, section) if TIE in part), model_type in TIED)}
    rule, own = TIE_RULES[model_type].values()
    stated = config.get(TIE, own)
    if not isinstance(stated, bool):
        return {TIE: stated}  # which is refused where it is read
    untied, tied = (TIES[rule](stated, text) for text in (False, True))
    return {TIE: tied} if tied == untied else {}


def joined(config: Mapping[str, Any], field: str | None) -> Mapping[str, Any]:
    """The config with the fields of a section among its own; a tie is its own to say. Raises ConfigError."""
    if field is None or field not in config:
        return config
    inner = {name: value for name, value in section_of(config[field], field).items() if name != TIE}
    return {**inner, **{name: value for name, value in config.items() if name != field}}


def with_language(config: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """The config with another language model in its place; both say the same of its tie, whichever is asked."""
    field = _field(config) if config.get("model_type") in WRAPPED else None
    if field is None:
        return {**text, "model_type": config.get("model_type")}
    section = config[field]
    inner = with_language(section, text) if isinstance(section, Mapping) and _field(section) else dict(text)
    return {**config, field: inner} | ({TIE: text[TIE]} if TIE in text else {})


def _field(config: Mapping[str, Any]) -> str | None:
    return next((field for field in TEXT_FIELDS if field in config), None)
