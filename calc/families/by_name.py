"""Configs of models by name, for models that stand beside another. Who has models brings them in."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.model.architecture import Architecture

Find = Callable[[str], Mapping[str, Any] | None]
SOURCES: list[Find] = []
"""Where a config may be found; the first that knows the name has it."""


@lru_cache(maxsize=64)
def model_named(name: str, field: str) -> Architecture:
    """The model of a name that stands in a field. Raises ConfigError where nobody knows it."""
    for find in SOURCES:
        if (config := find(name)) is not None:
            return Architecture.from_config(config)
    raise ConfigError(Message("{name} is no model that is known here; presets are.", name=shown(name)), field)
