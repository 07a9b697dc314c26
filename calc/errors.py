from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """What is wrong with an input and what would be right, in a sentence for people.

    `field` is the config field or option at fault; `nearest` are valid values close to the one given.
    """

    def __init__(self, message: str, field: str | None = None, nearest: Sequence[int | str] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.nearest = tuple(nearest)


class Frozen(BaseModel):
    """A value: never changed after it is made, and nothing in it that was not asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def shown(value: object) -> str:
    """A wrong value as a sentence can bear it: short, in quotation marks when it is text."""
    if isinstance(value, str):
        return f"“{value[:40]}…”" if len(value) > 40 else f"“{value}”"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**18 else f"a number of {value.bit_length() * 301 // 1000 + 1} digits"
    if isinstance(value, float):
        return f"{value:g}"
    return "an object" if isinstance(value, Mapping) else "a list"
