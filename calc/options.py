"""Values that a field of a model takes, read off the field: a link, a control and the command line say the same."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from calc.errors import ConfigError, Frozen, Message, shown
from calc.hardware.overhead import Range
from calc.units import decimal

Model = TypeVar("Model", bound=Frozen)
WHOLE = re.compile(r"-?[0-9]{1,30}")
DECIMAL = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?")
SWITCH = {"true": True, "false": False}
FEW = 8
"""Choices that a sentence names; of more it names the first ones."""


class OneOf:
    """Metadata of a text field whose choices are the keys of a table."""

    def __init__(self, choices: Collection[str]) -> None:
        self.choices = choices

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: str) -> str:
        if value not in self.choices:
            raise ValueError(value)
        return value


class Option:
    """One field that a reader may set."""

    def __init__(self, name: str, field: FieldInfo) -> None:
        self.name, self.field, self.description = name, field, field.description
        self.default = field.get_default(call_default_factory=True)
        self.optional = self.default is None
        """Whether it may be left to whoever knows better."""
        self.kinds, metadata = alternatives(field.annotation), field.metadata
        tables = (item.choices for item in metadata if isinstance(item, OneOf))
        listed = (word for kind in self.kinds if get_origin(kind) is Literal for word in words(kind))
        self.choices: tuple[Any, ...] = tuple(next(tables, listed))
        """The values that it may have; none where it is a number or free text."""
        self.is_switch, self.is_whole, self.is_range = (kind in self.kinds for kind in (bool, int, Range))
        self.is_number = self.is_whole or float in self.kinds
        above, below = (limit_of(metadata, kind) for kind in (Gt, Lt))
        self.open_below, self.open_above = above is not None, below is not None
        self.least = above if self.open_below else limit_of(metadata, Ge)
        """The smallest number; None where there is no limit. With `open_below` it is just not reached."""
        self.most = below if self.open_above else limit_of(metadata, Le)
        """The largest number; None where there is no limit. With `open_above` it is just not reached."""

    @property
    def expected(self) -> Message:
        """Valid values, as a sentence without a full stop."""
        known: dict[str, Any] = {"name": self.name}
        if self.choices:
            some, more = ", ".join(map(str, self.choices[:FEW])), len(self.choices) - FEW
            if self.is_number:
                return Message("{name} is {some} or a whole number", **known, some=some)
            if more > 0:
                return Message("{name} is one of {some} and {more:,} more", **known, some=some, more=more)
            return Message("{name} is one of {some}", **known, some=some)
        if self.is_switch:
            return Message("{name} is true or false", **known)
        if self.is_range:
            return Message("{name} is a range such as {example}", **known, example="0.25-0.6")
        if not self.is_number:
            return Message("{name} is a text such as {example}", **known, example=(self.field.examples or ["…"])[0])
        if self.least is not None and self.most is None and self.open_below:
            return Message("{name} is a number above {least:g}", **known, least=self.least)
        if self.least is None or self.most is None:
            return Message("{name} is a number", **known)
        limits: dict[str, Any] = {"least": self.least, "most": self.most}
        if self.is_whole:
            return Message("{name} is a whole number from {least:,} to {most:,}", **known, **limits)
        if self.open_below:
            return Message("{name} is a number above {least:g} and up to {most:g}", **known, **limits)
        if self.open_above:
            return Message("{name} is a number from {least:g} and below {most:g}", **known, **limits)
        return Message("{name} is a number from {least:g} to {most:g}", **known, **limits)

    @cached_property
    def _type(self) -> TypeAdapter[Any]:
        kind, limits = self.field.annotation, self.field.metadata
        constrained: Any = Annotated[(kind, *limits)] if limits else kind
        return TypeAdapter(constrained)

    def checked(self, value: Any) -> Any:
        """The value where the field takes it. Raises ValueError."""
        return self._type.validate_python(value)

    def parse(self, text: str) -> Any:
        """The value that a text means. Raises ValueError."""
        known = {str(choice): choice for choice in self.choices} or (SWITCH if self.is_switch else {})
        if text in known:
            return known[text]
        if known and not self.is_number:
            raise ValueError(text)
        if self.is_number and not (WHOLE if self.is_whole else DECIMAL).fullmatch(text):
            raise ValueError(text)
        return self.checked(text)

    def written(self, value: Any) -> str:
        """The text that means a value."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return decimal(value) if isinstance(value, float) else str(value)


def limit_of(metadata: Iterable[Any], kind: type) -> Any:
    """The number of a limit of this kind (Ge(ge=1): 1); None where there is none."""
    return next((getattr(item, kind.__name__.lower()) for item in metadata if isinstance(item, kind)), None)


def alternatives(annotation: Any) -> list[Any]:
    """The types that a field may have, None apart."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    return [annotation]


def words(literal: Any) -> list[Any]:
    """The values of a Literal and of those in it."""
    return [word for part in get_args(literal) for word in (words(part) if get_origin(part) is Literal else [part])]


@lru_cache(maxsize=64)
def options(model: type[Frozen]) -> Mapping[str, Option]:
    """The fields of a model by name."""
    fields = model.model_fields.items()
    return MappingProxyType({name: Option(field.serialization_alias or name, field) for name, field in fields})


def checked(value: Model) -> Model:
    """A model whose fields were set one by one, checked as a whole. Raises ConfigError."""
    return made(type(value), dict(value))


def made(model: type[Model], values: Mapping[str, Any]) -> Model:
    """A model of some values from outside. Raises ConfigError."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problem = refusal(model, error)
    raise problem  # without pydantic's error as its context: the garbage collector can't see what that one refers to


def refusal(model: type[Frozen], error: ValidationError) -> ConfigError:
    """A model's objection to its values, as a sentence about a field."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return ConfigError(cause.message, cause.field, cause.nearest)
    if not first["loc"] or first["loc"][0] not in model.model_fields:
        said = first["msg"].removeprefix("Value error, ")
        return ConfigError(Message("{said}.", said=f"{said[:1].upper()}{said[1:]}"))
    option = options(model)[str(first["loc"][0])]
    nearest = [
        limit
        for limit in (option.least, option.most)
        if limit is not None and not option.open_below and not option.open_above
    ]
    sentence = Message("{value} can't be taken: {expected}.", value=shown(first["input"]), expected=option.expected)
    return ConfigError(sentence, option.name, nearest)
