"""Text from outside, turned into a config dict: the way in for files, pasted text and standard input."""

import ast
import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from calc.errors import ConfigError, Message, shown

MAX_CHARACTERS = 8_000_000  # the longest config.json published has 3,087,083: nvidia/MiniMax-M3-NVFP4
MAX_VALUES = 250_000  # each takes up to 200 bytes of memory, however short it is
WHY = {
    "Expecting value": Message("a value is missing"),
    "Expecting property name": Message("a name in double quotes is missing"),
    "Expecting ',' delimiter": Message("a comma is missing"),
    "Expecting ':' delimiter": Message("a colon is missing"),
    "Extra data": Message("more follows after its end"),
    "Unterminated string": Message("a text begins that has no end"),
    "Invalid control character": Message("a text holds a control character"),
    "Invalid \\": Message("a backslash is followed by what it can't escape"),
    "Illegal trailing comma": Message("a comma stands before a closing bracket"),
}
"""Python's JSON errors in plain words."""
CLASS_NAME = re.compile(r"^\s*\w+Config\s*(?=\{)")
"""Text before the braces, where a config of transformers is printed."""
FENCE = re.compile(r"^\s*```\w*\n(.*?)\n?\s*```\s*$", re.DOTALL)
"""Around the braces, where a page shows code."""
PYTHON_KEY = re.compile(r"^\s*\{\s*'")
UNREADABLE = Message("something can't be read")
MAX_PYTHON = 100_000  # of a dict of Python, whose reader takes ten times as long
BYTE_ORDER_MARK = "\ufeff"  # with which some editors begin a file
LARGEST_EXACT = 2**53  # up to which floats tell whole numbers apart
MAX_DEPTH = 50  # lists and objects in one another; quantized checkpoints have six


def parse_config(text: str) -> dict[str, Any]:
    """A config.json as a dict, in its fence of Markdown or without, or what Python prints of one:
    `print(model.config)`, a dict. Raises ConfigError."""
    check_length(text, MAX_CHARACTERS)
    bare = CLASS_NAME.sub("", FENCE.sub(r"\1", text.removeprefix(BYTE_ORDER_MARK)), count=1)
    if len(bare) <= MAX_PYTHON and PYTHON_KEY.search(bare):
        # where it is no dict of Python either, what is wrong with it as JSON is said
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            bare = json.dumps(ast.literal_eval(bare.strip()))
    return parse_json(bare, MAX_CHARACTERS, MAX_VALUES)


def check_length(text: str, longest: int) -> None:
    """Raise ConfigError for a text of more characters than are read."""
    if len(text) > longest:
        raise ConfigError(
            Message(
                "The text is {length:,} characters long; {longest:,} is the most that we read.",
                length=len(text),
                longest=longest,
            )
        )


def check_values(text: str, most: int) -> None:
    """Raise ConfigError for JSON of more values than are read: each takes memory, however short it is."""
    values = sum(map(text.count, ",[{"))
    if values > most:
        raise ConfigError(
            Message(
                "The text has {values:,} commas and opening brackets; {most:,} are the most that we read.",
                values=values,
                most=most,
            )
        )


def whole(text: str) -> int | float:
    """A number of JSON with a point in it: 896.0, as some programs write 896, is a whole number."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < LARGEST_EXACT else value


def parse_json(text: str, longest: int, most: int) -> dict[str, Any]:
    """A JSON object of at most `longest` characters and `most` values as a dict, which can be written again. Raises
    ConfigError."""
    check_length(text, longest)
    check_values(text, most)
    if not text.strip():
        raise ConfigError(Message("There is no text; a config.json is an object of fields in braces."))
    try:
        value = json.loads(text, parse_float=whole)
    except json.JSONDecodeError as error:
        raise ConfigError(
            Message(
                "This is not JSON: in line {line:,}, column {column:,}, {why}.",
                line=error.lineno,
                column=error.colno,
                why=what_is_wrong(text, error),
            )
        ) from None
    except (RecursionError, ValueError):
        raise ConfigError(Message("This JSON is nested too deep or holds a number too long to be a config.")) from None
    if not isinstance(value, dict):
        raise ConfigError(
            Message("A config.json is an object of fields in braces; this is {value}.", value=shown(value))
        )
    if nested(value, MAX_DEPTH):
        raise ConfigError(
            Message(
                "This JSON is nested too deep to be a config; {most} levels are the most that we read.", most=MAX_DEPTH
            )
        )
    if "\\u" in text or not text.isascii():
        written(value)
    return value


def what_is_wrong(text: str, error: json.JSONDecodeError) -> Message:
    """Complaint of Python's reader of JSON; before version 3.13 it knows no comma too many, and it never asks what
    stands where it stopped."""
    before, rest = text[: error.pos].strip(), text[error.pos :].strip()
    if not before:
        return Message("an object of fields in braces should begin, not {start}", start=shown(rest.partition("\n")[0]))
    if rest.startswith(("//", "/*", "#")):
        return Message("a comment begins, which JSON does not have")
    if text[: error.pos].rstrip().endswith(",") and text[error.pos : error.pos + 1] in ("}", "]"):
        return WHY["Illegal trailing comma"]
    return next((why for start, why in WHY.items() if error.msg.startswith(start)), UNREADABLE)


def nested(value: Any, depth: int) -> bool:
    """Whether lists and objects stand in one another more than `depth` deep."""
    level = [value]
    for _ in range(depth):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        level = [inner for inner in level if isinstance(inner, dict | list)]
    return bool(level)


def written(config: Mapping[str, Any]) -> bytes:
    """A config as JSON without spaces. Raises ConfigError."""
    try:
        return json.dumps(config, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        raise ConfigError(
            Message("The text contains half of a surrogate pair ({half}); write the whole character.", half=half)
        ) from None


def parse_value(text: str) -> Any:
    """The value of one field as JSON has it (8, true, null, ["a"]); anything else is text."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError, ValueError):
        return text


def pack(config: Mapping[str, Any]) -> str:
    """A config as a word that an address can bear."""
    return base64.urlsafe_b64encode(zlib.compress(written(config), 9)).decode().rstrip("=")


def unpack(word: str) -> dict[str, Any]:
    """The config that `pack` made a word of. Raises ConfigError."""
    try:
        packed = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        text = zlib.decompressobj().decompress(packed, MAX_CHARACTERS).decode()
    except (binascii.Error, zlib.error, ValueError):
        raise ConfigError(
            Message("The packed config is damaged; copy the whole address, or paste the config again.")
        ) from None
    return parse_config(text)


def config_file(config: Mapping[str, Any]) -> str:
    """A config as a file: the design on screen, for transformers and for engines."""
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"
