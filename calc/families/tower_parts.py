"""Common parts of towers' readers: the list of weights that they make, and fields that several classes have."""

from collections.abc import Iterable, Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families.fields import MAX_LAYERS, Fields
from calc.model.towers.listed import ListedTower
from calc.model.towers.named_shapes import NamedShape

MAX_WEIGHTS = 50_000  # dots3-note's has the most different ones, 2,700
Parts = Iterable[Iterable[NamedShape]]


def listed(c: Fields, *parts: Iterable[NamedShape], statistics: Parts = ()) -> ListedTower:
    """A tower of the parts, for images as the section c describes them; statistics are no parameters."""
    return ListedTower(
        modules=joined(parts),
        statistics=joined(statistics),
        images=True,
        num_layers=c.maybe("num_hidden_layers"),
        hidden=c.maybe("hidden_size"),
        deepstack=count(c, "deepstack_visual_indexes"),
    )


def not_counted(*parts: Iterable[NamedShape], statistics: Parts = ()) -> ListedTower:
    """A tower for sound alone, or for images of which the config has no vision_config."""
    return ListedTower(modules=joined(parts), statistics=joined(statistics), images=False, num_layers=None, hidden=None)


def joined(parts: Parts) -> tuple[NamedShape, ...]:
    """The weights of all parts, as long as they are no more than an encoder may have. Raises ConfigError."""
    weights: list[NamedShape] = []
    for weight in (weight for part in parts for weight in part):
        if weight[2] > MAX_LAYERS or len(weights) == MAX_WEIGHTS:
            sentence = (
                "The encoder of this config would have more than {layers:,} equal layers or {weights:,} different "
                "weights; it must have fewer."
            )
            raise ConfigError(Message(sentence, layers=MAX_LAYERS, weights=MAX_WEIGHTS))
        weights.append(weight)
    return tuple(weights)


def section(whole: Fields, name: str, defaults: Mapping[str, Any] | None = None) -> Fields:
    """A section of the config with the defaults of its class; these alone where it is left out."""
    value = whole.get(name)
    return Fields(value if isinstance(value, Mapping) else {}, defaults or {}, {})


def count(c: Fields, name: str) -> int:
    """Layers in a list, one that stands there twice counted twice."""
    return len(c.get(name)) if c.indices(name) else 0


def two(c: Fields, name: str) -> tuple[int, int]:
    """A height and a width, or one number for both."""
    value = c.get(name)
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    first, second = (c.within({name: side}).size(name) for side in pair)
    return first, second


def patches(c: Fields) -> int:
    """Patches of a square image."""
    return (c.size("image_size") // c.size("patch_size")) ** 2


def numbers(c: Fields, name: str, least: int = 1) -> list[int]:
    """A list of whole numbers that must be there."""
    value = c.get(name)
    if not isinstance(value, list) or not value:
        sentence = "{name} is {value}; it must be a list of whole numbers."
        raise ConfigError(Message(sentence, name=name, value=shown(value)), name)
    return [c.within({name: number}).size(name, least) for number in value]
