"""What readers of towers share: the list of weights that they make, and fields that several classes have."""

from collections.abc import Iterable, Mapping
from typing import Any

from calc.families.fields import Fields
from calc.model.towers.image import NamedShape
from calc.model.towers.listed import ListedTower


def listed(c: Fields, *parts: Iterable[NamedShape], statistics: Iterable[Iterable[NamedShape]] = ()) -> ListedTower:
    """A tower of the parts, for images as the section c describes them."""
    return ListedTower(
        modules=tuple(weight for part in parts for weight in part),
        statistics=tuple(tensor for part in statistics for tensor in part),
        images=True,
        num_layers=c.maybe("num_hidden_layers"),
        hidden=c.maybe("hidden_size"),
    )


def listed_apart(*parts: Iterable[NamedShape], statistics: Mapping[str, Shape] | None = None) -> ListedTower:
    """A tower for sound alone, or for images of which the config has no section."""
    return ListedTower(
        modules=tuple(weight for part in parts for weight in part),
        statistics=tuple((statistics or {}).items()),
        images=False,
        num_layers=None,
        hidden=None,
    )


def section(whole: Fields, name: str, defaults: Mapping[str, Any] | None = None) -> Fields:
    """A section of the config with the defaults of its class; these alone where it is left out."""
    value = whole.get(name)
    return Fields(value if isinstance(value, Mapping) else {}, defaults or {}, {})


def two(c: Fields, name: str) -> tuple[int, int]:
    """A height and a width, or one number for both."""
    value = c.get(name)
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    first, second = (c.within({name: side}).size(name) for side in pair)
    return first, second


def patches(c: Fields) -> int:
    """Patches of a square image."""
    return (c.size("image_size") // c.size("patch_size")) ** 2
