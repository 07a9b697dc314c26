"""Command-line options made of the fields of calc's models: name, type, choices and help are the field's own."""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from calc.errors import ConfigError, Frozen, Message, printable, shown
from calc.options import Option, made, options
from calc.serving.engines import ENGINES
from calc.time import USUAL, Cluster, stated_price, stated_share, without_effect
from presets import preset_id

BAD_QUESTION = 2
"""Exit status of a question that can't be answered, as argparse has it."""
Model = TypeVar("Model", bound=Frozen)


def bad_question(sentence: str, field: str | None = None, nearest: Sequence[Any] = (), **values: Any) -> ConfigError:
    """Error of a question that can't be answered, with its sentence, and the option that it is about."""
    return ConfigError(Message(sentence, **values), field, nearest)


def unreadable(name: str, error: OSError) -> ConfigError:
    return bad_question("The file {name} can't be read: {why}.", name=shown(name), why=error.strerror)


ENGINE_FIELDS = sorted({name for engine in ENGINES.values() for name in engine.options_type.model_fields})
"""Names of all engines' options."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        short = re.sub(r"\S{60,}", lambda word: f"{word[0][:40]}…", printable(message))
        self.exit(2, f"{short[:1].upper()}{short[1:]}. See {self.prog} --help.\n")


def of_model(prog: str, about: str) -> Parser:
    """A parser of a command about one model."""
    p = Parser(prog=prog, description=about, allow_abbrev=False)
    p.add_argument(
        "model",
        type=preset_id,
        metavar="MODEL",
        help="a preset id, a checkpoint's folder or its config.json, - for standard input, or a Hub id",
    )
    p.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the config")
    p.add_argument("--assume", choices=["llama"], help="read a family that is not known as a Llama-like decoder")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    return p


def as_json(answer: BaseModel, **more: Any) -> str:
    """An answer as it is printed with --json, with further fields."""
    return json.dumps(answer.model_dump(mode="json") | more, indent=1, ensure_ascii=False)


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
            option = options(model)[name]
            parser.add_argument(*words, dest=name, default=argparse.SUPPRESS, help=described(option), **typed(option))


def described(option: Option) -> str:
    """The field's description and default, for argparse."""
    text = (option.description or "").rstrip(".").replace("%", "%%")
    if option.optional or option.is_switch:
        return text
    return f"{text} (default {option.default})"


def typed(option: Option) -> dict[str, Any]:
    """Arguments of argparse for a field's type."""
    if option.is_switch:
        return {"action": argparse.BooleanOptionalAction}
    if option.choices and option.is_number:
        return {"metavar": f"N|{'|'.join(map(str, option.choices))}", "type": read(option)}
    if option.choices:
        return {"choices": option.choices, "type": type(option.choices[0])}
    if option.is_number:
        return {"metavar": "N", "type": int if option.is_whole else float}
    return {"metavar": "WORD"}


def read(option: Option) -> Callable[[str], Any]:
    """A number or a word of a field, from its text."""

    def value(text: str) -> Any:
        try:
            return option.parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{option.expected}, not {text}") from None

    return value


def filled(model: type[Model], given: Mapping[str, Any]) -> Model:
    """The model with what the command line says of its fields. Raises ConfigError."""
    return made(model, {name: given[name] for name in model.model_fields if name in given})


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share",
        action="append",
        metavar="NAME=LOW/EXPECTED/HIGH",
        help="your share of a printed peak, instead of the usual one: bandwidth=0.7/0.8/0.9, or with --train "
        "training_matmul=0.5/0.6/0.7",
    )
    parser.add_argument("--node", type=int, metavar="N", help=f"GPUs of a node (default {USUAL.gpus_per_node})")


def counted(given: Mapping[str, Any], name: str, usual: int) -> int:
    """A number from 1 on; the usual one where none is given. Raises ConfigError."""
    number = given[name]
    if number is not None and number < 1:
        raise bad_question("--{name} is at least {least}.", name, [1], name=name.replace("_", "-"), least=1)
    return usual if number is None else number


def refuse_idle(names: Iterable[str], given: Mapping[str, Any], *, train: bool) -> None:
    """Raise ConfigError for one of these options that is given, where they have no effect: with --train or without."""
    sentence = "{flag} has no effect with --train." if train else "{flag} takes effect only with --train."
    for name in names:
        if given.get(name) is not None:
            raise bad_question(sentence, name, flag=flag(name))


def stated_cluster(given: Mapping[str, Any]) -> Cluster:
    """The reader's nodes, shares and prices. Raises ConfigError, also for shares without effect."""
    prices, shares = dict(map(stated_price, given.get("price", ()))), dict(map(stated_share, given["share"] or ()))
    idle = without_effect(shares, training=given["train"])
    if idle is not None:
        raise ConfigError(idle, "share")
    return Cluster(counted(given, "node", USUAL.gpus_per_node), shares, prices)
