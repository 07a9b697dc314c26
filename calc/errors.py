"""Base of every module: values that never change, sentences for people, and the one error that an input ends in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_serializer


class Frozen(BaseModel):
    """A value: never changed after it is made, and nothing in it that was not asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Outside(str):
    """Text that somebody else wrote, as a value of a sentence: a page shows its signs and never follows them."""

    __slots__ = ()


class Message(BaseModel):
    """A sentence for people: a whole template and the values that fill it, so that a page can say it in any language.

    `str()` and JSON are the English sentence. A value may be a Message itself. Where a number decides between singular
    and plural it is called `n` and `plural` is the template for more than one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    template: str
    plural: str | None = None
    values: dict[str, Any] = {}

    def __init__(self, template: str, /, *, plural: str | None = None, **values: Any) -> None:
        super().__init__(template=template, plural=plural, values=values)

    @property
    def english(self) -> str:
        """The English template for its number."""
        return self.template if self.plural is None or self.values["n"] == 1 else self.plural

    def __str__(self) -> str:
        return self.english.format(**self.values)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __hash__(self) -> int:
        return hash(self.template)

    @model_serializer
    def _as_text(self) -> str:
        return str(self)


class ConfigError(ValueError):
    """Fault of an input and its remedy, in a sentence for people.

    `field` is the config field or option at fault; `nearest` are valid values close to the one given.
    """

    def __init__(
        self, message: Message | str, field: str | None = None, nearest: Sequence[int | float | str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message if isinstance(message, Message) else Message("{text}", text=message)
        self.field = field
        self.nearest = tuple(nearest)


class Refusal(NamedTuple):
    """Why something can't be done, the config field or option at fault, and valid values close to the one given."""

    message: Message
    field: str | None = None
    nearest: Sequence[int | float | str] = ()


def printable(text: str) -> str:
    """The text with an escape for each character that would steer a terminal instead of being seen."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def shown(value: object) -> str | Message:
    """A wrong value as a sentence can bear it: short, in quotation marks when it is text."""
    if isinstance(value, str):
        text = printable(value[:41])
        return Outside(f"“{text[:40]}…”" if len(text) > 40 else f"“{text}”")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if abs(value) < 10**18:
            return f"{value:,}"
        return Message("a number of {digits:,} digits", digits=value.bit_length() * 301 // 1000 + 1)
    if isinstance(value, float):
        return f"{value:g}"
    return Message("an object") if isinstance(value, Mapping) else Message("a list")
