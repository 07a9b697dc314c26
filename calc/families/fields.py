"""The fields of a config, each checked as it is read."""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from calc.budget import spend
from calc.errors import ConfigError, Message, shown

T = TypeVar("T")
MAX_SIZE = 2**31  # no dimension of a real model comes near
MAX_LAYERS = 1024  # DeepNet has the most, 1,000 (arXiv:2203.00555)
MAX_PREDICTION_LAYERS = 16  # no published model has more than three
MAX_COPIES = 1024  # of parts that repeat, such as the parts of a table
PER_LAYER_CONFIG = "per_layer_config"


class Fields:
    """A config as its class sees it: what is stated, else the class's default. Every read is checked."""

    def __init__(
        self,
        config: Mapping[str, Any],
        defaults: Mapping[str, Any],
        aliases: Mapping[str, str],
        sections: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        # defaults name some fields as checkpoints do and transformers only maps: an alias points to the default's name
        self.aliases = {alias: name for alias, name in aliases.items() if alias not in defaults} | {
            name: alias for alias, name in aliases.items() if alias in defaults and name not in defaults
        }
        self.stated = {self.aliases.get(name, name): value for name, value in config.items()}
        self.defaults, self.sections = defaults, sections
        self.used: set[str] = set()  # what was asked for
        self._checked: dict[str, Any] = {}  # lists, which every layer asks for
        self._once: dict[Hashable, Any] = {}

    def get(self, name: str) -> Any:
        """The value stated, else the class's default, unchecked."""
        spend()
        name = self.aliases.get(name, name)
        self.used.add(name)
        return self.stated[name] if name in self.stated else self.defaults.get(name)

    def states(self, name: str) -> bool:
        """Whether the config itself says something, be it null."""
        return self.aliases.get(name, name) in self.stated

    def with_stated(self, name: str, value: Any) -> "Fields":
        """The config with one field stated otherwise."""
        return self.with_all_stated({name: value})

    def with_all_stated(self, values: Mapping[str, Any]) -> "Fields":
        """The config with some fields stated otherwise."""
        other = Fields({**self.stated, **values}, self.defaults, self.aliases, self.sections)
        other.used = self.used
        return other

    def of_layer(self, layer: int) -> "Fields":
        """The config as layer i sees it: what `per_layer_config` says of it goes before what all layers share."""
        own = self.single_layers().get(layer)
        return self if not own else self.once(("layer", repr(own)), lambda: self.with_all_stated(own))

    def single_layers(self) -> Mapping[int, Mapping[str, Any]]:
        """Fields of single layers, as transformers 5.23 gathers them in `per_layer_config`, by layer."""
        return self.once(PER_LAYER_CONFIG, self._single_layers)

    def _single_layers(self) -> Mapping[int, Mapping[str, Any]]:
        listed = self.get(PER_LAYER_CONFIG) or {}
        if not isinstance(listed, Mapping) or not all(isinstance(own, Mapping) for own in listed.values()):
            sentence = "{name} is {value}; it must be an object with the fields of some layers, by layer number."
            raise ConfigError(Message(sentence, name=PER_LAYER_CONFIG, value=shown(listed)), PER_LAYER_CONFIG)
        for layer in listed:
            if not (isinstance(layer, str) and re.fullmatch(r"[0-9]{1,4}", layer)):
                sentence = "{name} holds {word}; its keys must be layer numbers."
                raise ConfigError(Message(sentence, name=PER_LAYER_CONFIG, word=shown(layer)), PER_LAYER_CONFIG)
        return {int(layer): own for layer, own in listed.items()}

    def within(self, section: object) -> "Fields":
        """Fields that have no defaults of their own; none where they are left out."""
        return Fields(section if isinstance(section, Mapping) else {}, {}, {})

    def section(self, name: str) -> "Fields":
        """A section of the config, with the defaults of its class; these alone where it is left out."""
        return Fields(section_of(self.get(name), name), self.sections.get(name, {}), {})

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """One object for all layers that are alike."""
        if key not in self._once:
            self._once[key] = make()
        value: T = self._once[key]
        return value

    def maybe(self, name: str, least: int = 1) -> int | None:
        """A whole number of at least `least`, or None where the config says null and the class takes that."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(
                Message("{name} is {value}; it must be a whole number.", name=name, value=shown(value)), name
            )
        most = MAX_BY_FIELD.get(self.aliases.get(name, name), MAX_SIZE)
        if not least <= value <= most:
            sentence = "{name} is {value}; it must lie between {least:,} and {most:,}."
            message = Message(sentence, name=name, value=shown(value), least=least, most=most)
            raise ConfigError(message, name, [least if value < least else most])
        return value

    def size(self, name: str, least: int = 1) -> int:
        """A whole number that must be there."""
        value = self.maybe(name, least)
        if value is None:
            sentence = "The config does not say {name}, which this family needs: a whole number."
            raise ConfigError(Message(sentence, name=name), name)
        return value

    def sizes(self, *names: str) -> tuple[int, ...]:
        """Whole numbers that must be there, in the order of the names."""
        return tuple(map(self.size, names))

    def flag(self, name: str) -> bool:
        """True or false; a field that is not there is false."""
        value = self.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(
                Message("{name} is {value}; it must be true or false.", name=name, value=shown(value)), name
            )
        return value

    def real(self, name: str) -> float:
        """A number of a sensible size that need not be whole."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1000:
            sentence = "{name} is {value}; it must be a number such as 2.625."
            raise ConfigError(Message(sentence, name=name, value=shown(value)), name)
        return value

    def indices(self, name: str) -> frozenset[int]:
        """A list of layer indices; none when absent."""
        if name not in self._checked:
            value = self.get(name) or []
            if not isinstance(value, list) or not all(type(index) is int for index in value):
                sentence = "{name} is {value}; it must be a list of layer numbers."
                raise ConfigError(Message(sentence, name=name, value=shown(value)), name)
            self._checked[name] = frozenset(value)
        indices: frozenset[int] = self._checked[name]
        return indices

    def mark(self, name: str, layer: int) -> bool | None:
        """Whether a list marks a layer, by 1 or true; None where the field is no list, or one that ends before it."""
        value = self.get(name)
        return bool(value[layer]) if isinstance(value, list) and layer < len(value) else None

    def per_layer(self, name: str, layers: int, allowed: Sequence[str]) -> list[str] | None:
        """One word for each layer, or None when the config does not list them."""
        if name in self._checked:
            kinds: list[str] = self._checked[name]
            return kinds
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            sentence = "{name} is {value}; it must be a list with one word for each layer."
            raise ConfigError(Message(sentence, name=name, value=shown(value)), name)
        if len(value) != layers:
            sentence = "{name} lists {listed:,} layers, but the model has {layers:,}."
            raise ConfigError(Message(sentence, name=name, listed=len(value), layers=layers), name)
        for word in value:
            if word not in allowed:
                raise unknown_word(word, allowed, name)
        self._checked[name] = value
        return list(value)


def section_of(value: object, field: str) -> Mapping[str, Any]:
    """The fields of a section; none where it is left out or null. Raises ConfigError where it is anything else."""
    if value is None or isinstance(value, Mapping):
        return value or {}
    message = Message("{field} is {value}; it must be an object of fields.", field=field, value=shown(value))
    raise ConfigError(message, field)


MAX_BY_FIELD = dict.fromkeys(
    (
        *("num_hidden_layers", "n_layer", "num_layers", "n_layers", "layers", "depth", "num_global_layers"),
        *("num_layers_per_stack", "H_cycles", "L_cycles"),
    ),
    MAX_LAYERS,
)
MAX_BY_FIELD |= dict.fromkeys(
    ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"), MAX_PREDICTION_LAYERS
)
MAX_BY_FIELD |= dict.fromkeys(
    ("inner_group_num", "altup_num_inputs", "split_ngram_parts", "heads_per_ngram", "ngram_size"), MAX_COPIES
)
"""The largest value of fields that count layers, or what is listed one by one."""

# What a row of the table may say of a config: the name of a field, or the value itself where the class has none

Flag = bool | str | Callable[[Fields], bool]
Size = int | str | Callable[[Fields], int]
ShapeOf = tuple[Size, ...]


def true(c: Fields, flag: Flag) -> bool:
    """Value of a flag in a config."""
    if isinstance(flag, bool):
        return flag
    return c.flag(flag) if isinstance(flag, str) else flag(c)


@dataclass(frozen=True, eq=False)
class If(Generic[T]):
    """One value where a flag of the config is true, another where not."""

    flag: Flag
    yes: T
    no: T

    def __call__(self, c: Fields, layer: int = 0) -> T:
        return self.yes if true(c, self.flag) else self.no


def value_of(c: Fields, value: T | Callable[[Fields], T]) -> T:
    """A value that is the same for all configs of a family, or follows from the config."""
    return value(c) if callable(value) else value


def number(c: Fields, size: Size, least: int = 1) -> int:
    """Value of a size in a config: a whole number that must be there."""
    if isinstance(size, int):
        return size
    return c.size(size, least) if isinstance(size, str) else size(c)


def stated_or(field: str, otherwise: Size) -> Size:
    """A size that configs may state, and what it is where one leaves it out or says null."""
    return lambda c: c.maybe(field) or number(c, otherwise)


@dataclass(frozen=True, eq=False)
class AlikeInAllLayers(Generic[T]):
    """Base of readers whose value is one object for all layers of a config."""

    def __call__(self, c: Fields, layer: int = 0) -> T:
        return c.once(self, lambda: self.read(c))

    def read(self, c: Fields) -> T:
        """Value of any layer."""
        raise NotImplementedError


def nearest_divisors(of: int, near: int) -> list[int]:
    """The closest divisor of a number on each side of a value that does not divide it."""
    divisors = [d for d in range(1, min(of, 65536) + 1) if of % d == 0]
    below, above = [d for d in divisors if d < near], [d for d in divisors if d > near]
    return below[-1:] + above[:1]


# What kind of layer i is


def unknown_word(word: object, allowed: Sequence[str], name: str = "layer_types") -> ConfigError:
    """Error where a field holds a word that its class gives no meaning."""
    sentence = "{name} holds {word}; it must be one of {allowed}."
    return ConfigError(Message(sentence, name=name, word=shown(word), allowed=", ".join(allowed)), name)


LAYER_KINDS = (
    *("reference_sliding_attention", "minimax_m3_sparse", "full_attention", "indexed_attention", "attention"),
    *("sliding_attention", "chunked_attention", "linear_attention", "mamba", "conv"),
)
WINDOWED_KINDS = ("sliding_attention", "chunked_attention")
RECURRENT_KINDS = ("linear_attention", "mamba", "conv")
MLP_KINDS = ("dense", "sparse")

LayerRule = Callable[[Fields, int], bool]
"""Whether something holds for layer i."""


def kind(c: Fields, layer: int, allowed: Sequence[str] = LAYER_KINDS) -> str | None:
    """The word for a layer in `layer_types`, which decides wherever a config lists it; None where it does not."""
    kinds = c.per_layer("layer_types", c.size("num_hidden_layers"), allowed)
    return kinds[layer] if kinds else None
