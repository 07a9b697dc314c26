"""Vocabulary of encoders for images and sound: rows, layers, sections with their defaults, and lists of weights."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families.fields import MAX_LAYERS, Fields
from calc.model.tensor import Shape, Shapes, biased
from calc.model.vision import TEXT, ListedTower, NamedShape, TowerBuffer

MAX_WEIGHTS = 50_000  # dots3-note's has the most different ones, 2,700
PROJECTOR = "multi_modal_projector"
GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    json.loads(Path(__file__).with_name("encoder_defaults.json").read_text(encoding="utf-8"))
)
"""Defaults of fields that a config leaves out (transformers 5.23 `configuration_*.py`): of `encoders` that several
models share, by the model_type of their section; and of `wrappers`, by model_type and section, "" for the whole."""
Lister = Callable[[Fields, Fields], Iterable[NamedShape]]
"""Weights and buffers, made from the encoder's section and the whole config."""


@dataclass(frozen=True, eq=False)
class Tower:
    """Reader of encoders for images and sound, from their section and the whole config."""

    read: Callable[[Fields, Fields], ListedTower | None]
    sections: tuple[str, ...] = ("vision_config",)  # of the encoders that it counts; none: its fields are the config's


@dataclass(frozen=True)
class Layer:
    """Names and biases of one layer of a transformer that encodes images or sound; by default CLIP's and SigLIP's."""

    qkv: str = "self_attn.{}_proj"  # with {}: three matrices; without: one
    letters: tuple[str, str, str] = ("q", "k", "v")
    out: str = "self_attn.out_proj"
    mlp: tuple[str, ...] = ("mlp.fc1", "mlp.fc2")  # three names: gate, up, down; none: listed apart
    norms: tuple[str, ...] = ("layer_norm1", "layer_norm2")
    head_norms: tuple[str, ...] = ()  # over the dimension of a head; never with a bias
    scales: tuple[str, ...] = ()  # parameters as wide as the layer
    bias: bool = True  # of all parts but those that say otherwise
    qkv_bias: bool | None = None
    key_bias: bool = True  # only Whisper's line has none where queries and values have one
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    norm_bias: bool | None = None

    def shapes(self, d: int, f: int, *, q: int | None = None, kv: int | None = None, d_head: int = 0) -> Shapes:
        """Shape of each weight in a layer d wide, whose feed-forward is f wide: queries [q, d], keys and values
        [kv, d]; q is d and kv is q where they are left out."""
        q = d if q is None else q
        kv = q if kv is None else kv
        attention: Shapes = {self.qkv: (q + 2 * kv, d)}
        if "{}" in self.qkv:
            names = [self.qkv.replace("{}", letter) for letter in self.letters]
            attention = {name: (side, d) for name, side in zip(names, (q, kv, kv), strict=True)}
        parts: tuple[tuple[Shapes, bool | None], ...] = (
            (attention, self.qkv_bias),
            ({self.out: (d, q)}, self.out_bias),
            ({name: (d, f) if name == self.mlp[-1] else (f, d) for name in self.mlp}, self.mlp_bias),
            (dict.fromkeys(self.norms, (d,)), self.norm_bias),
            (dict.fromkeys(self.head_norms, (d_head,)), False),
        )
        tensors: Shapes = dict.fromkeys(self.scales, (d,))
        for modules, bias in parts:
            tensors |= biased(self.bias if bias is None else bias, modules)
        if not self.key_bias:
            tensors.pop(f"{self.qkv.replace('{}', self.letters[1])}.bias", None)
        return tensors


FUSED = Layer(qkv="attn.qkv", out="attn.proj", norms=("norm1", "norm2"))
"""Queries, keys and values in one matrix, under timm's names."""


def images(lister: Lister, *others: str) -> Tower:
    """A row of encoders for images; `others` are the further sections that it counts."""
    return Tower(lambda c, whole: listed(c, lister(c, whole)), ("vision_config", *others))


def by_sections(lister: Lister, *sections: str) -> Tower:
    """A row of encoders for sound alone, or for images of which the config has no vision_config."""
    return Tower(lambda c, whole: listed(None, lister(c, whole)), sections)


def listed(c: Fields | None, tensors: Iterable[NamedShape]) -> ListedTower:
    """A tower for images as the section c describes them; None: for sound, or for images without a section. Raises
    ConfigError for more tensors than an encoder may have."""
    modules: list[NamedShape] = []
    buffers: list[NamedShape] = []
    for tensor in tensors:
        if tensor[2] > MAX_LAYERS or len(modules) + len(buffers) == MAX_WEIGHTS:
            sentence = (
                "The encoder of this config would have more than {layers:,} equal layers or {weights:,} different "
                "weights; it must have fewer."
            )
            raise ConfigError(Message(sentence, layers=MAX_LAYERS, weights=MAX_WEIGHTS))
        (buffers if isinstance(tensor, TowerBuffer) else modules).append(tensor)
    return ListedTower(
        modules=tuple(modules),
        buffers=tuple(buffers),
        images=c is not None,
        num_layers=c and c.maybe("num_hidden_layers"),
        hidden=c and c.maybe("hidden_size"),
        deepstack=0 if c is None else count(c, "deepstack_visual_indexes"),
    )


def defaults_of(model_type: str, section: str) -> Mapping[str, Any]:
    """Defaults of a section of a wrapper's config; "" for the fields of the whole."""
    defaults: Mapping[str, Any] = DEFAULTS["wrappers"].get(model_type, {}).get(section, {})
    return defaults


def section(whole: Fields, path: str) -> Fields:
    """A section of the config, or one within it (a.b), with the defaults of its class; these alone where it is left
    out."""
    value: object = whole.stated
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return Fields(value if isinstance(value, Mapping) else {}, defaults_of(str(whole.get("model_type")), path), {})


def count(c: Fields, name: str) -> int:
    """Layers in a list, one that stands there twice counted twice."""
    return len(c.get(name)) if c.indices(name) else 0


def height_and_width(c: Fields, name: str) -> tuple[int, int]:
    """A height and a width, or one number for both."""
    value = c.get(name)
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    first, second = (c.within({name: side}).size(name) for side in pair)
    return first, second


def numbers(c: Fields, name: str, least: int = 1) -> list[int]:
    """A list of whole numbers that must be there."""
    value = c.get(name)
    if not isinstance(value, list) or not value:
        sentence = "{name} is {value}; it must be a list of whole numbers."
        raise ConfigError(Message(sentence, name=name, value=shown(value)), name)
    return [c.within({name: number}).size(name, least) for number in value]


def patches(c: Fields) -> int:
    """Patches of a square image."""
    return (c.size("image_size") // c.size("patch_size")) ** 2


def patch(c: Fields, channels: str = "num_channels", *, frames: bool = False) -> Shape:
    """The convolution that makes a vector of a patch, [hidden, channels, side, side], over a number of frames too where
    the encoder takes several."""
    over = (c.size("temporal_patch_size"),) if frames else ()
    return (c.size("hidden_size"), c.size(channels), *over, *[c.size("patch_size")] * 2)


def flat_patch(c: Fields, channels: str = "num_channels") -> Shape:
    """The matrix that makes a vector of a patch's numbers, [hidden, channels · side²]."""
    return c.size("hidden_size"), c.size(channels) * c.size("patch_size") ** 2


def two_matrices(seen: int, wide: int = TEXT, out: int = TEXT) -> Shapes:
    """LLaVA's projector, arXiv:2310.03744: from what it sees through a width to the language model's."""
    return {"linear_1": (wide, seen), "linear_2": (out, wide)}


def merged_width(c: Fields, field: str = "hidden_size") -> int:
    """Width of the patches that one token stands for, joined."""
    return c.size(field) * c.size("spatial_merge_size") ** 2


def head_widths(c: Fields) -> tuple[int, int, int]:
    """Width of the queries, of the keys, and of one head: the hidden size over the heads, unless it is stated."""
    d, heads = c.sizes("hidden_size", "num_attention_heads")
    d_head = c.maybe("head_dim") or d // heads
    return heads * d_head, (c.maybe("num_key_value_heads") or heads) * d_head, d_head


def layers(
    c: Fields,
    path: str,
    layer: Layer,
    f: int | None = None,
    copies: str = "num_hidden_layers",
    *,
    q: int | None = None,
    kv: int | None = None,
    d_head: int = 0,
) -> Iterator[NamedShape]:
    """Layers of one kind, whose feed-forward is f wide, or as `intermediate_size` says."""
    f = c.size("intermediate_size") if f is None else f
    shapes = layer.shapes(c.size("hidden_size"), f, q=q, kv=kv, d_head=d_head)
    yield from placed(f"{path}.{{layer}}", shapes, c.size(copies))


def renamed(rows: Iterable[NamedShape], names: Mapping[str, str]) -> Iterator[NamedShape]:
    """All rows, with other words in place of these."""
    for name, shape, copies in rows:
        for word, other in names.items():
            name = name.replace(word, other)
        yield name, shape, copies


def each(names: str, shape: Shape, letters: Iterable[str] = "qkv") -> Shapes:
    """Modules of one shape: `self_attn.{}_proj` for q, k and v."""
    return {names.replace("{}", letter): shape for letter in letters}


def norms(width: int, *names: str) -> Shapes:
    """Vectors of one width: norms without their biases."""
    return dict.fromkeys(names, (width,))


def batch_statistics(path: str, width: int, layers: int) -> Iterator[TowerBuffer]:
    """Buffers of the norms over a batch: mean, variance and a counter."""
    statistics: Shapes = {"running_mean": (width,), "running_var": (width,), "num_batches_tracked": ()}
    yield from buffers(path, statistics, layers)


def buffers(path: str, shapes: Shapes, copies: int = 1) -> Iterator[TowerBuffer]:
    """Tensors under a path that are no parameters."""
    return (TowerBuffer(*row) for row in placed(path, shapes, copies))


def placed(path: str, shapes: Shapes, copies: int = 1) -> Iterator[NamedShape]:
    """Weights under a path, each held by so many layers; none where there are no layers."""
    for name, shape in shapes.items() if copies else ():
        yield f"{path}.{name}" if path else name, shape, copies
