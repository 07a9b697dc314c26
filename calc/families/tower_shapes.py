"""Rows of towers whose weights a function lists, and modules that several of them have, by shape."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.tower_parts import listed, listed_apart
from calc.model.tensor import Shape, Shapes
from calc.model.towers.image import NamedShape, placed, with_biases

MAX_LIST = 64  # no encoder has more stages
Lister = Callable[[Fields, Fields], Iterator[NamedShape]]
Statistics = Callable[[Fields, Fields], Shapes]


def images(
    lister: Lister, defaults: Mapping[str, Any], *others: str, statistics: Statistics = lambda c, whole: {}
) -> Tower:
    """A row of encoders for images; `others` are the further sections that it counts."""
    return Tower(
        lambda c, whole: listed(c, lister(c, whole), statistics=statistics(c, whole)),
        defaults,
        ("vision_config", *others),
    )


def sound(
    lister: Lister,
    defaults: Mapping[str, Any],
    *sections: str,
    statistics: Statistics = lambda c, whole: {},
) -> Tower:
    """A row of encoders for sound alone, of the sections that it counts."""
    return Tower(
        lambda c, whole: listed_apart(lister(c, whole), statistics=statistics(c, whole)),
        defaults,
        sections or ("audio_config",),
    )


def sizes(c: Fields, name: str) -> tuple[int, ...]:
    """A list of whole numbers, each of them checked."""
    value = c.get(name)
    if not isinstance(value, list) or not 0 < len(value) <= MAX_LIST:
        sentence = "{name} is {value}; it must be a list of at most {most:,} whole numbers."
        raise ConfigError(Message(sentence, name=name, value=shown(value), most=MAX_LIST), name)
    return tuple(c.within({name: side}).size(name) for side in value)


def qformer(c: Fields, path: str) -> Iterator[NamedShape]:
    """BLIP-2's Q-Former, arXiv:2301.12597; with a second feed-forward where it reads text too."""
    d, f, wide = c.size("hidden_size"), c.size("intermediate_size"), c.size("encoder_hidden_size")
    text, every = c.flag("use_qformer_text_input"), c.size("cross_attention_frequency")
    own, seen = (
        {f"{{}}.attention.{x}": (d, width) for x, width in (("query", d), ("key", side), ("value", side))}
        | {"{}.output.dense": (d, d), "{}.output.LayerNorm": (d,)}
        for side in (d, wide)
    )
    ffn: Shapes = {"intermediate{}.dense": (f, d), "output{}.dense": (d, f), "output{}.LayerNorm": (d,)}
    layer = {name.replace("{}", "attention"): shape for name, shape in own.items()}
    for kind in ("", "_query") if text else ("_query",):
        layer |= {name.replace("{}", kind): shape for name, shape in ffn.items()}
    cross = {name.replace("{}", "crossattention"): shape for name, shape in seen.items()}
    layers = c.size("num_hidden_layers")
    yield from placed(path, with_biases({"layernorm": (d,)}))
    yield from placed(f"{path}.encoder.layer.{{layer}}", with_biases(layer), layers)
    for i in range(0, layers, every):
        yield from placed(f"{path}.encoder.layer.{i}", with_biases(cross))


def each(names: str, shape: Shape, letters: str = "qkv") -> Shapes:
    """Modules of one shape: `self_attn.{}_proj` for q, k and v."""
    return {names.replace("{}", letter): shape for letter in letters}


def norms(width: int, *names: str) -> Shapes:
    return dict.fromkeys(names, (width,))
