"""Models that wrap a language model: where its own config lies within theirs."""

from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families.family_table import FAMILIES, WRAPPED, WRAPPERS

TEXT_FIELDS = ("text_config", "llm_config", "language_config", "thinker_config")
TIE = "tie_word_embeddings"


def language(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model alone, with a model_type that the table may hold. Raises ConfigError."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in WRAPPERS:
        return config
    field = _field(config)
    section = config if field is None else _section(config, field)
    own = section.get("model_type") if field is not None else None
    known = isinstance(own, str) and (own in FAMILIES or own in WRAPPERS)
    tied = next((part[TIE] for part in (config, section) if TIE in part), WRAPPERS[model_type].tied)
    return language({**section, "model_type": own if known else WRAPPED[model_type], TIE: tied})


def joined(config: Mapping[str, Any], field: str | None) -> Mapping[str, Any]:
    """The config with the fields of a section among its own; a tie is its own to say. Raises ConfigError."""
    if field is None or field not in config:
        return config
    inner = {name: value for name, value in _section(config, field).items() if name != TIE}
    return {**inner, **{name: value for name, value in config.items() if name != field}}


def with_language(config: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """The config with another language model in its place."""
    field = _field(config) if config.get("model_type") in WRAPPERS else None
    if field is None:
        return {**text, "model_type": config.get("model_type")}
    section = config[field]
    inner = with_language(section, text) if isinstance(section, Mapping) and _field(section) else dict(text)
    return {**config, field: inner}


def _section(config: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    section = config[field] or {}
    if not isinstance(section, Mapping):
        message = Message("{field} is {value}; it must be an object of fields.", field=field, value=shown(section))
        raise ConfigError(message, field)
    return section


def _field(config: Mapping[str, Any]) -> str | None:
    return next((field for field in TEXT_FIELDS if field in config), None)
