"""Tasks of checkpoints, by the name of the class in `architectures`: a vector of a text, scores, or words."""

from collections.abc import Mapping
from typing import Any, Literal

from calc.families.family import extras
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.conventions import Names

Task = Literal["base", "words", "scores", "token_scores"]
"""The states, of which one vector is pooled; words in place of masks; scores of the text; or of each token."""
SUFFIXES: tuple[tuple[str, Task], ...] = (
    ("ForMaskedLM", "words"),
    ("ForSequenceClassification", "scores"),
    ("ForTokenClassification", "token_scores"),
)
POOLING = ("Model", *(suffix for suffix, _ in SUFFIXES))
"""Endings of classes that make no logits of a next token."""
GENERATES = ("LMHeadModel", "ChatGLMModel", "AquilaModel")
"""Classes of decoders that make logits of the next token although they are called “Model” (vLLM `registry.py`)."""
NEXT_TOKEN = ("ForCausalLM", "LMHeadModel")
USUAL_LABELS = 2
"""Labels of a config that names none (transformers `configuration_utils.py`)."""


def class_of(c: Fields) -> str:
    """The first class that a config names; empty where it names none."""
    classes = c.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else ""
    return first if isinstance(first, str) else ""


def task(c: Fields) -> Task:
    """The task of an encoder, by the suffix of its class; “base” where there is none."""
    name = class_of(c)
    return next((task for suffix, task in SUFFIXES if name.endswith(suffix)), "base")


def labels(c: Fields) -> int:
    """Scores that are made."""
    stated = c.get("id2label")
    if isinstance(stated, dict) and stated:
        return len(stated)
    return c.maybe("num_labels") or USUAL_LABELS


def pools(c: Fields) -> bool:
    """Whether a decoder's class makes a vector or scores of a text: as vLLM takes its name (`config/model.py`)."""
    name = class_of(c)
    return task(c) in ("scores", "token_scores") or (name.endswith("Model") and not name.endswith(GENERATES))


def with_base_class(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose class makes logits of the next token, with the class that makes the states they would be of:
    Qwen3ForCausalLM becomes Qwen3Model. Others stay."""
    name = class_of(Fields(config, {}, {}))
    stem = next((name.removesuffix(suffix) for suffix in NEXT_TOKEN if name.endswith(suffix)), None)
    return dict(config) if stem is None else {**config, "architectures": [f"{stem}Model"]}


def score(c: Fields, hidden: int) -> tuple[Extra, ...]:
    """The matrix behind a decoder that scores (transformers `modeling_layers.py`)."""
    return extras("other", {"score.weight": (labels(c), hidden)}) if task(c) != "base" else ()


def without_module(names: Names, outside: tuple[Extra, ...]) -> tuple[Names, tuple[Extra, ...]]:
    """Names of a decoder's weights as the class without a head saves them, which is the module that others keep it
    in."""
    first, _, rest = names.module.partition(".")
    plain = tuple(extra.model_copy(update={"name": extra.name.removeprefix(f"{first}.")}) for extra in outside)
    return names.but(module=rest), plain
