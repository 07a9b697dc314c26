"""Command-line options made of the fields of calc's models: name, type, choices and help are the field's own."""

import argparse
import re
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from calc.errors import ConfigError, Frozen, Message, shown

FALSE = "--no-"
"""What stands before the name of a switch that is on by default, to turn it off."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        short = re.sub(r"\S{60,}", lambda word: f"{word[0][:40]}…", message)
        self.exit(2, f"{short[:1].upper()}{short[1:]}. See {self.prog} --help.\n")


def flag(name: str) -> str:
    """A field as the command line spells it."""
    return f"--{name.replace('_', '-')}"


def add_fields(
    parser: argparse._ActionsContainer,
    model: type[Frozen],
    names: Iterable[str] | None = None,
    aliases: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """An option for each field, unset where it is not given: its default is the model's own."""
    known = {word for action in parser._actions for word in action.option_strings}
    for name in model.model_fields if names is None else names:
        words = [flag(name), *(aliases or {}).get(name, ())]
        if known.isdisjoint(words):
            field = model.model_fields[name]
            parser.add_argument(*words, dest=name, default=argparse.SUPPRESS, help=described(field), **typed(field))


def described(field: FieldInfo) -> str:
    """The field's description and default, for argparse."""
    text = (field.description or "").rstrip(".").replace("%", "%%")
    if field.default is None or isinstance(field.default, bool):
        return text
    return f"{text} (default {field.default})"


def typed(field: FieldInfo) -> dict[str, Any]:
    """What argparse must know of a field's type."""
    kinds = alternatives(field.annotation)
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if words and all(isinstance(word, int) for word in words):
        return {"type": int, "choices": words}
    if words:
        return {"choices": words}
    number = next((kind for kind in (int, float) if kind in kinds), None)
    return {"metavar": "N", "type": number} if number else {"metavar": "WORD"}


def alternatives(annotation: Any) -> list[Any]:
    """The types that a field may have, None apart."""
    if get_origin(annotation) in (Union, UnionType):
        return [kind for kind in get_args(annotation) if kind is not NoneType]
    return [annotation]


def filled(model: type[Frozen], given: Mapping[str, Any]) -> Any:
    """The model with what the command line says of its fields. Raises ConfigError."""
    try:
        return model(**{name: given[name] for name in model.model_fields if name in given})
    except ValidationError as error:
        raise ConfigError(sentence(error)) from None


def sentence(error: ValidationError) -> Message:
    """What pydantic has against a value, as a sentence. What a model has against its fields together begins with the
    name of one."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    if not first["loc"]:
        return Message("{said}.", said=said)
    name = flag(str(first["loc"][0]))
    return Message("{name} is {value}: {said}.", name=name, value=shown(first["input"]), said=said)
