from collections.abc import Mapping, Sequence
from typing import Any

from calc.errors import ConfigError, shown

MAX_SIZE = 2**31  # no dimension of a real model comes near
MAX_LAYERS = 1024  # DeepNet has the most, 1,000 (arXiv:2203.00555)
MAX_PREDICTION_LAYERS = 16  # no published model has more than three


class Fields:
    """A config as its class sees it: what is stated, else the class's default. Every read is checked."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any], aliases: Mapping[str, str]) -> None:
        # defaults name some fields as checkpoints do and transformers only maps: an alias points to the default's name
        self.aliases = {alias: name for alias, name in aliases.items() if alias not in defaults} | {
            name: alias for alias, name in aliases.items() if alias in defaults and name not in defaults
        }
        self.stated = {self.aliases.get(name, name): value for name, value in config.items()}
        self.defaults = defaults
        self.used: set[str] = set()  # what was asked for
        self._checked: dict[str, Any] = {}  # lists, which every layer asks for

    def get(self, name: str) -> Any:
        """The value stated, else the class's default, unchecked."""
        name = self.aliases.get(name, name)
        self.used.add(name)
        return self.stated[name] if name in self.stated else self.defaults.get(name)

    def with_stated(self, name: str, value: Any) -> "Fields":
        """The same config with one field stated otherwise."""
        other = Fields({**self.stated, name: value}, self.defaults, {})
        other.used = self.used
        return other

    def within(self, section: Mapping[str, Any]) -> "Fields":
        """A section of the config, which has no defaults of its own."""
        return Fields(section, {}, {})

    def maybe(self, name: str, least: int = 1) -> int | None:
        """A whole number of at least `least`, or None where the config says null and the class takes that."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} is {shown(value)}; it must be a whole number.", name)
        most = MOST.get(self.aliases.get(name, name), MAX_SIZE)
        if not least <= value <= most:
            near = least if value < least else most
            raise ConfigError(f"{name} is {shown(value)}; it must lie between {least:,} and {most:,}.", name, [near])
        return value

    def size(self, name: str, least: int = 1) -> int:
        """A whole number that must be there."""
        value = self.maybe(name, least)
        if value is None:
            raise ConfigError(f"The config does not say {name}, which this family needs: a whole number.", name)
        return value

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {shown(value)}; it must be true or false.", name)
        return value

    def indices(self, name: str) -> frozenset[int]:
        """A list of layer indices; none when absent."""
        if name not in self._checked:
            value = self.get(name) or []
            if not isinstance(value, list) or not all(type(index) is int for index in value):
                raise ConfigError(f"{name} is {shown(value)}; it must be a list of layer numbers.", name)
            self._checked[name] = frozenset(value)
        indices: frozenset[int] = self._checked[name]
        return indices

    def per_layer(self, name: str, layers: int, allowed: Sequence[str]) -> list[str] | None:
        """One word for each layer, or None when the config does not list them."""
        if name in self._checked:
            kinds: list[str] = self._checked[name]
            return kinds
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ConfigError(f"{name} is {shown(value)}; it must be a list with one word for each layer.", name)
        if len(value) != layers:
            raise ConfigError(f"{name} lists {len(value)} layers, but the model has {layers}.", name)
        for word in value:
            if word not in allowed:
                raise ConfigError(f"{name} holds {shown(word)}; it must be one of {', '.join(allowed)}.", name)
        self._checked[name] = value
        return list(value)


MOST = dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), MAX_LAYERS) | dict.fromkeys(
    ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"), MAX_PREDICTION_LAYERS
)
"""The largest value of fields that count layers."""
