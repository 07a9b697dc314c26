"""config -> Architecture: the one door, over the one table keyed by model_type."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from calc.errors import ConfigError, shown
from calc.families.details import read_details
from calc.families.family import Family
from calc.families.fields import MAX_LAYERS, Fields
from calc.families.rotary import rotary_tables
from calc.families.table import FAMILIES, WRAPPERS
from calc.families.towers import read_vision
from calc.families.wrappers import language, with_language
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block, Extra
from calc.model.feedforward import FeedForward
from calc.model.mixers import Mixer

ASSUMED = "assumed_from"
"""Field of a config that is read as another family: the model_type that we do not know."""
PER_LAYER = ("layer_types", "mlp_layer_types")
"""Lists with one word for each layer, which follow the number of layers."""


def read(config: Mapping[str, Any]) -> Architecture:
    """The Architecture that a `config.json`-shaped dict describes. Raises ConfigError."""
    architecture = _build(config, *_open(config))
    _check_sides(architecture)
    return architecture


Architecture.read = read


def _build(config: Mapping[str, Any], family: Family, c: Fields, model_type: str) -> Architecture:
    alike: dict[tuple[tuple[Mixer, ...], FeedForward | None, tuple[str, ...], tuple[Extra, ...], str], list[int]] = {}
    for i in range(family.count(c) if family.count else c.size(family.layers)):
        mixers = family.mixer(c, i)
        mixers = mixers if isinstance(mixers, tuple) else () if mixers is None else (mixers,)
        norms = family.norms if isinstance(family.norms, tuple) else family.norms(c, i)
        alike.setdefault((mixers, family.ffn(c, i), norms, family.layer_extras(c, i), family.path(c, i)), []).append(i)
    max_positions = c.maybe(family.max_positions)
    return Architecture(
        model_type=model_type,
        hidden=c.size(family.hidden),
        vocab=c.size("vocab_size"),
        extra_rows=family.extra_rows,
        tied=family.ties and c.flag("tie_word_embeddings"),
        blocks=tuple(
            Block(
                layers=tuple(where),
                mixers=mixers,
                ffn=ffn,
                norms=norms,
                norm=family.norm,
                extras=extras,
                path=path,
            )
            for (mixers, ffn, norms, extras, path), where in alike.items()
        ),
        shared=family.shared(c),
        names=family.names,
        positions=family.positions(c),
        max_positions=max_positions,
        details=read_details(c),
        rotary=rotary_tables(model_type, c, [mixer for mixers, *_ in alike for mixer in mixers], max_positions),
        d_embedding=c.maybe(family.d_embedding) if family.d_embedding else None,
        final_norm=family.final_norm(c) if family.final_norm else family.norm,
        head_bias=family.head_bias(c),
        kernels=family.kernels,
        extras=family.extras(c),
        prediction=family.prediction(c),
        vision=read_vision(config),
        assumptions=_assumptions(config),
    )


def _check_sides(architecture: Architecture) -> None:
    """Raise ConfigError where a width that is divided leaves nothing: 16 heads of a hidden size of 1."""
    for tensor in architecture.tensors():
        if 0 in tensor.shape:
            raise ConfigError(
                f"{next(tensor.names())} would be {' x '.join(map(str, tensor.shape))}: a width of this config is "
                "smaller than the number of heads or groups that share it; it must be at least as large."
            )


def knows(config: Mapping[str, Any]) -> bool:
    """Whether the config's family is in the table."""
    model_type = config.get("model_type")
    return isinstance(model_type, str) and (model_type in FAMILIES or model_type in WRAPPERS)


def as_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config of a family that we do not know, to be read as a Llama-like decoder. It says so wherever it goes."""
    return {**config, "model_type": "llama", ASSUMED: str(config.get("model_type"))[:40]}


def _assumptions(config: Mapping[str, Any]) -> tuple[str, ...]:
    if ASSUMED not in config:
        return ()
    return (
        f"The family {shown(config[ASSUMED])} is not known: this config is read as a Llama-like decoder. "
        "Every number here hangs on that assumption.",
    )


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that this model's size hangs on, under the config's own names, as the class sees it.

    Raises ConfigError.
    """
    family, c, model_type = _open(config)
    architecture = _build(config, family, c, model_type)
    values = {name: c.get(name) for name in c.defaults if name in c.used}
    attention = next((mixer for block in architecture.blocks for mixer in block.mixers if isinstance(mixer, GQA)), None)
    if attention is not None:
        derived = {"head_dim": attention.d_head, "num_key_value_heads": attention.n_kv}
        values |= {name: value for name, value in derived.items() if name in values and values[name] is None}
    if "n_inner" in values and values["n_inner"] is None:
        values["n_inner"] = 4 * architecture.hidden
    return values


def override(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The config with some fields changed; a list with one word for each layer continues its pattern.

    Raises ConfigError for a field that this family does not read.
    """
    family, c, _ = _open(config)
    own = {c.aliases.get(name, name): value for name, value in changes.items()}
    if changes.get("model_type", config.get("model_type")) != config.get("model_type"):
        raise ConfigError("model_type can't be changed by itself; give a config of the other family.", "model_type")
    for name in own:
        if name not in c.defaults and name not in c.stated:
            close = get_close_matches(name, c.defaults, n=3, cutoff=0.5)
            known = ", ".join(close or list(c.defaults))
            raise ConfigError(f"{shown(name)} is not a field that decides this model's size. Try {known}.", name, close)
    merged = {**c.stated, **own}
    layers = merged.get(family.layers)
    for name in PER_LAYER:
        words = c.stated.get(name)
        if name not in own and isinstance(words, list) and words and type(layers) is int and 0 < layers <= MAX_LAYERS:
            merged[name] = continued(words, layers)
    return with_language(config, merged)


def continued(words: list[Any], length: int) -> list[Any]:
    """The list cut or prolonged to `length` by its shortest repeating pattern."""
    period = next(p for p in range(1, len(words) + 1) if all(words[i] == words[i % p] for i in range(len(words))))
    return [words[i % period] for i in range(length)]


@cache
def _class_defaults() -> dict[str, dict[str, Any]]:
    path = Path(__file__).with_name("defaults.json")
    rows: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def _open(config: Mapping[str, Any]) -> tuple[Family, Fields, str]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"A config must be an object of fields, as config.json is; this is {shown(config)}.")
    text = language(config)
    model_type = text.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError("The config does not say its model_type, for instance “llama” or “qwen3”.", "model_type")
    if model_type not in FAMILIES:
        close = get_close_matches(model_type, FAMILIES, n=5, cutoff=0.4)
        near = f" Near to it we know {', '.join(close)}." if close else " We know llama, qwen3, deepseek_v3 and others."
        raise ConfigError(f"The family {shown(model_type)} is not one we know.{near}", "model_type", close)
    family = FAMILIES[model_type]
    row = _class_defaults().get(family.defaults or model_type, {"fields": {}, "aliases": {}})
    return family, Fields(text, row["fields"] | family.own, row["aliases"] | family.aliases), model_type
