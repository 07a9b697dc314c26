"""Rows of towers whose weights a function lists, and modules that several of them have, by shape."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.tower_parts import listed, not_counted
from calc.model.tensor import Shape, Shapes
from calc.model.towers.named_shapes import NamedShape

Lister = Callable[[Fields, Fields], Iterator[NamedShape]]


def images(lister: Lister, defaults: Mapping[str, Any], *others: str, statistics: Lister | None = None) -> Tower:
    """A row of encoders for images; `others` are the further sections that it counts."""
    return Tower(
        lambda c, whole: listed(c, lister(c, whole), statistics=(statistics(c, whole),) if statistics else ()),
        defaults,
        ("vision_config", *others),
    )


def sound(lister: Lister, defaults: Mapping[str, Any], *sections: str, statistics: Lister | None = None) -> Tower:
    """A row of encoders for sound alone, of the sections that it counts."""
    return Tower(
        lambda c, whole: not_counted(lister(c, whole), statistics=(statistics(c, whole),) if statistics else ()),
        defaults,
        sections or ("audio_config",),
    )


def with_defaults(whole: Fields, defaults: Mapping[str, Any]) -> Fields:
    """The whole config, with what its class assumes."""
    return Fields(whole.stated, defaults, {})


def each(names: str, shape: Shape, letters: str = "qkv") -> Shapes:
    """Modules of one shape: `self_attn.{}_proj` for q, k and v."""
    return {names.replace("{}", letter): shape for letter in letters}


def norms(width: int, *names: str) -> Shapes:
    return dict.fromkeys(names, (width,))
