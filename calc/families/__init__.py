"""config -> Architecture: the one door, over the one table keyed by model_type."""

import json
from collections.abc import Collection, Iterator, Mapping, Set
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from calc.budget import budget
from calc.errors import ConfigError, Message, shown
from calc.families.family import Family
from calc.families.family_table import FAMILIES, WRAPPED
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import MAX_LAYERS, PER_LAYER_CONFIG, Fields, number, true, value_of
from calc.families.gguf import RULES
from calc.families.kernel_fields import configured_kernels, read_details
from calc.families.tasks import pools, score, task, without_module
from calc.families.vision_fields import read_vision
from calc.families.wrappers import TIE, joined, language, with_language
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block, Extra
from calc.model.conventions import GGUFRules, Kernels, Names
from calc.model.feedforward import FeedForward
from calc.model.mixers import Mixer

TOP_K, NOT_IN_GGUF = "num_experts_per_tok", GGUFRules()
LEARNED = ("prelu", "xielu")
"""Activations that have weights."""
DEEPEST = 3
"""Sections within sections that an activation may stand in: an omni model's thinker and its encoders."""
MOST_UNREAD = 1000
"""Fields that are not read and may be misspelt: a config has a few dozen."""
ASSUMED = "assumed_from"
"""Field of a config that is read as another family: the model_type that we do not know."""
LayerParts = tuple[tuple[Mixer, ...], FeedForward | None, tuple[str, ...], tuple[Extra, ...], str]
IMAGE_PREFIX = frozenset(("gemma3", "molmo2", "paligemma"))
"""model_type of those whose tokens of an image see each other; Gemma 4's config says it."""
FOURFOLD = ("n_inner", "ffn_hidden_size")
"""Feed-forward widths that are four times the hidden size where a config leaves them null."""
PARTS = ("fields", "aliases", "sections")
"""Parts of a row of defaults: values of fields that a config leaves out, other spellings of fields, and sections."""
CLASS_DEFAULTS, FURTHER_DEFAULTS = (
    json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    for name in ("defaults", "further_defaults")
)
"""Defaults of each transformers class for fields that a config leaves out, and the class's names for checkpoints'
spellings. Further ones, by model_type: of those without a class, whose own code or config.json says them, maybe next to
those of another `class`; and of fields that only checkpoints state."""


def _defaults_text(model_type: str) -> str:
    """A family's row of defaults as JSON text: each reader parses its own lists."""
    further = FURTHER_DEFAULTS.get(model_type, {})
    row = CLASS_DEFAULTS.get(further.get("class", model_type), {})
    return json.dumps({part: {**row.get(part, {}), **further.get(part, {})} for part in PARTS})


DEFAULTS = MappingProxyType({name: _defaults_text(name) for name in FAMILIES})
PER_LAYER = ("layer_types", "mlp_layer_types")
"""Lists with one word for each layer, which follow the number of layers."""


def read(config: Mapping[str, Any]) -> Architecture:
    """The Architecture that a `config.json`-shaped dict describes. Raises ConfigError."""
    return read_with_settings(config)[0]


def _check_second_names(family: Family, c: Fields) -> None:
    """Raise ConfigError where a field says otherwise than those that it follows from: a class takes one here and the
    other there."""
    for name, size in family.follows.items():
        value, expected = c.maybe(name, 0), number(c, size, 0)
        if value not in (None, expected):
            sentence = "{name} is {value:,}; by the other fields of this config it must be {expected:,}."
            raise ConfigError(Message(sentence, name=name, value=value, expected=expected), name, [expected])


def _build(config: Mapping[str, Any], family: Family, c: Fields) -> Architecture:
    _check_second_names(family, c)
    layers_by_parts: dict[LayerParts, list[int]] = {}
    for i in range(_layers(family, c)):
        layers_by_parts.setdefault(_layer(family, c.of_layer(i), i), []).append(i)
    model_type, longest = str(c.get("model_type")), family.max_positions
    max_positions = c.maybe(longest) if isinstance(longest, str) else longest(c)
    norm, rotary = value_of(c, family.norm), value_of(c, family.rotary)
    mixers = [mixer for mixers, *_ in layers_by_parts for mixer in mixers]
    names = value_of(c, family.names)
    outside = tuple(extra for weights in family.extras for extra in weights(c))
    scores = not family.pools and pools(c)
    if scores:
        outside += score(c, c.size(family.hidden))
        names, outside = without_module(names, outside) if task(c) == "base" else (names, outside)
    return Architecture(
        model_type=model_type,
        hidden=c.size(family.hidden),
        vocab=number(c, family.vocab),
        extra_rows=number(c, family.extra_rows, 0),
        tied=family.pools or scores or (family.ties and c.flag(TIE)),
        blocks=tuple(
            Block(layers=tuple(where), mixers=mixers, ffn=ffn, norms=norms, norm=norm, extras=extras, path=path)
            for (mixers, ffn, norms, extras, path), where in layers_by_parts.items()
        ),
        shared=family.shared(c) if family.shared else (),
        names=names,
        gguf=RULES.get(model_type, NOT_IN_GGUF),
        pooled=family.pools or scores,
        positions=number(c, family.positions, 0) if family.positions else 0,
        d_positions=None if family.d_positions is None else number(c, family.d_positions),
        max_positions=max_positions,
        details=read_details(c),
        rotary=rotary.tables(c, mixers, max_positions) if rotary else (),
        d_embedding=_embedding_width(family, c),
        final_norm=value_of(c, family.final_norm or norm),
        head_bias=true(c, family.head_bias),
        kernels=configured_kernels(value_of(c, family.kernels), c),
        extras=outside,
        prediction=family.prediction(c) if family.prediction else (),
        vision=read_vision(config),
        image_prefix=_sees_images_whole(config, c),
        assumptions=tuple(_assumptions(config, family, c)),
    )


def _layers(family: Family, c: Fields) -> int:
    """Layers that run, each time that they do."""
    if family.count is None:
        return c.size(family.layers)
    layers = family.count(c)
    if layers > MAX_LAYERS:
        sentence = "This config runs {layers:,} layers, each as often as its cycles say; {most:,} are the most we read."
        raise ConfigError(Message(sentence, layers=layers, most=MAX_LAYERS), family.layers)
    return layers


def _layer(family: Family, c: Fields, i: int) -> LayerParts:
    mixers = family.mixer(c, i)
    return (
        mixers if isinstance(mixers, tuple) else () if mixers is None else (mixers,),
        family.ffn(c, i),
        family.norms if isinstance(family.norms, tuple) else family.norms(c, i),
        tuple(extra for weights in family.layer_extras for extra in weights(c, i)) if family.layer_extras else (),
        family.path(c, i) if family.path else "",
    )


def _embedding_width(family: Family, c: Fields) -> int | None:
    """None where it is the hidden size: a projection stands only between two widths."""
    width = family.d_embedding
    columns = c.maybe(width) if isinstance(width, str) else width if width is None else number(c, width)
    return None if columns == c.size(family.hidden) else columns


def _sees_images_whole(config: Mapping[str, Any], c: Fields) -> bool:
    """Whether attention is both ways within the tokens of an image."""
    bidirectional = {**c.defaults, **c.stated}.get("use_bidirectional_attention")
    return config.get("model_type") in IMAGE_PREFIX or bidirectional == "vision"


def _check_sides(architecture: Architecture) -> None:
    """Raise ConfigError where a width that is divided leaves nothing: 16 heads of a hidden size of 1."""
    for tensor in architecture.tensors():
        if 0 in tensor.shape:
            sentence = (
                "{name} would be {shape}: a width of this config is smaller than the number of heads or groups that "
                "share it; it must be at least as large."
            )
            raise ConfigError(Message(sentence, name=next(tensor.names()), shape=" x ".join(map(str, tensor.shape))))


def knows(config: Mapping[str, Any]) -> bool:
    """Whether the config's family is in the table."""
    model_type = config.get("model_type")
    return isinstance(model_type, str) and (model_type in FAMILIES or model_type in WRAPPED)


def as_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config of a family that we do not know, to be read as a Llama-like decoder. It says so wherever it goes."""
    return {**config, "model_type": "llama", ASSUMED: str(config.get("model_type"))[:40]}


def _assumptions(config: Mapping[str, Any], family: Family, c: Fields) -> Iterator[Message]:
    if ASSUMED in config:
        yield Message(
            "The family {family} is not known: this config is read as a Llama-like decoder. Every number here depends "
            "on that assumption.",
            family=shown(config[ASSUMED]),
        )
    if not any(c.states(name) for name in (family.hidden, family.layers, "vocab_size")):
        yield Message("This config states no size: each one is the default of its class in transformers.")
    for name, near in _misspelt(c):
        sentence = "This config states {name}, which is not read, and not {near}, whose default stands. Is it misspelt?"
        yield Message(sentence, name=shown(name), near=near)
    if TOP_K in c.used and c.get(TOP_K) is None:
        sentence = (
            "This config does not say {name}, and its class builds the model without: all parameters are counted, of "
            "the active ones those of one expert in each layer."
        )
        yield Message(sentence, name=TOP_K)
    for name, activation in _learned_activations(config, c.used):
        yield Message(
            "{name} is {activation}, which has learned scalars of its own: they are not counted.",
            name=shown(name),
            activation=activation,
        )
    if family.assumption is not None:
        yield family.assumption


def _learned_activations(
    section: Mapping[str, Any], used: Set[str], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Fields that ask for an activation with weights, where the family does not read them; in sections, too."""
    for name, value in section.items():
        if isinstance(value, Mapping) and len(path) < DEEPEST:
            yield from _learned_activations(value, used, (*path, str(name)))
        elif value in LEARNED and name not in used:
            yield ".".join((*path[-1:], str(name))), value


def _misspelt(c: Fields) -> Iterator[tuple[str, str]]:
    """Fields that nothing reads, in sections too, and the one that each may be meant for."""
    stated = {name: c.stated.get(name) for name in c.sections}
    sections = [(f"{name}.", own, c.sections[name]) for name, own in stated.items() if isinstance(own, Mapping)]
    for path, own, known in (("", c.stated, c.defaults), *sections):
        for name in islice((name for name in own if name not in known and (path or name not in c.used)), MOST_UNREAD):
            if (near := _meant(name, known)) is not None and near not in own:
                yield f"{path}{name}", f"{path}{near}"


def _meant(name: str, fields: Collection[str]) -> str | None:
    """The field that this one is a misspelling of: no field of the configs in tests/data is as near to another."""
    near = get_close_matches(name, fields, n=1, cutoff=0.85)
    return near[0] if near else None


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that this model's size depends on, under the config's own names, as the class sees it.

    Raises ConfigError.
    """
    return read_with_settings(config)[1]


@budget()
def read_with_settings(config: Mapping[str, Any]) -> tuple[Architecture, dict[str, Any]]:
    """The Architecture and its `settings`, read once. Raises ConfigError."""
    family, c = _open(config)
    architecture = _build(config, family, c)
    _check_sides(architecture)
    values = {name: c.get(name) for name in c.defaults if name in c.used}
    attention = next((mixer for block in architecture.blocks for mixer in block.mixers if isinstance(mixer, GQA)), None)
    if attention is not None:
        derived = {"head_dim": attention.d_head, "num_key_value_heads": attention.n_kv}
        values |= {name: value for name, value in derived.items() if name in values and values[name] is None}
    values |= {name: 4 * architecture.hidden for name in FOURFOLD if name in values and values[name] is None}
    return architecture, values


@budget()
def override(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The config with some fields changed; a list with one word for each layer continues its pattern.

    Raises ConfigError for a field that this family does not read.
    """
    family, c = _open(config)
    own = {c.aliases.get(name, name): value for name, value in changes.items()}
    if changes.get("model_type", config.get("model_type")) != config.get("model_type"):
        message = Message("model_type can't be changed by itself; give a config of the other family.")
        raise ConfigError(message, "model_type")
    for name in own:
        if name not in c.defaults and name not in c.stated:
            close = get_close_matches(name, c.defaults, n=3, cutoff=0.5)
            sentence = "{name} is not a field that decides this model's size. Try {known}."
            message = Message(sentence, name=shown(name), known=", ".join(close or list(c.defaults)))
            raise ConfigError(message, name, close)
    merged = {**c.stated, **own}
    layers = merged.get(family.layers)
    for name in PER_LAYER:
        words = c.stated.get(name)
        if name not in own and isinstance(words, list) and words and type(layers) is int and 0 < layers <= MAX_LAYERS:
            merged[name] = continued(words, layers)
    single, stated = c.single_layers(), c.stated.get(family.layers)
    if single and PER_LAYER_CONFIG not in own and type(layers) is int and type(stated) is int:
        words = continued([single.get(i, {}) for i in range(stated)], layers)
        merged[PER_LAYER_CONFIG] = {str(i): fields for i, fields in enumerate(words) if fields}
    return with_language(config, merged)


def with_experts(config: Mapping[str, Any], number_of: int, chosen: int) -> dict[str, Any] | None:
    """The config of the same layers with so many experts, of which those that a token passes through, with the shared
    one where the family has it, are together as wide as the feed-forward was; None where it has experts, or its family
    none of the same layers that has.

    Raises ConfigError.
    """
    family, c = _open(config)
    mixture = FAMILIES.get(family.mixture or "")
    if mixture is None or config.get("model_type") not in FAMILIES:
        return None
    assert isinstance(family.ffn, Dense)
    assert isinstance(mixture.ffn, Experts)
    width, experts = number(c, family.ffn.width), mixture.ffn
    each = max(1, width // (chosen if experts.shared_width is None else chosen + 1))
    sizes = {experts.n: number_of, experts.top_k: chosen, experts.width: each}
    if experts.shared_width is not None:
        sizes[experts.shared_width] = max(1, width - chosen * each)
    made = {**c.stated, "model_type": family.mixture, **sizes}
    before, after = (read(fields).parameters().components for fields in (config, made))
    return made if all(after.get(name) == before.get(name) for name in ("embedding", "attention", "norms")) else None


def continued(words: list[Any], length: int) -> list[Any]:
    """The list cut or prolonged to `length` by its shortest repeating pattern."""
    period = next(p for p in range(1, len(words) + 1) if all(words[i] == words[i % p] for i in range(len(words))))
    return [words[i % period] for i in range(length)]


def _open(config: Mapping[str, Any]) -> tuple[Family, Fields]:
    if not isinstance(config, Mapping):
        sentence = "A config must be an object of fields, as config.json is; this is {value}."
        raise ConfigError(Message(sentence, value=shown(config)))
    text = language(config)
    model_type = text.get("model_type")
    if not isinstance(model_type, str):
        message = Message("The config does not say its model_type, for instance “llama” or “qwen3”.")
        raise ConfigError(message, "model_type")
    if model_type not in FAMILIES:
        close = get_close_matches(model_type, FAMILIES, n=5, cutoff=0.7)
        sentence = "The family {model_type} is not known; llama, qwen3, deepseek_v3 and others are."
        if close:
            sentence = "The family {model_type} is not known. Similar families: {near}."
        message = Message(sentence, model_type=shown(model_type), near=", ".join(close))
        raise ConfigError(message, "model_type", close)
    family = FAMILIES[model_type]
    text = joined(text, family.section)
    row = json.loads(DEFAULTS[model_type])
    return family, Fields(text, {TIE: False, **row["fields"]}, row["aliases"], row["sections"])
