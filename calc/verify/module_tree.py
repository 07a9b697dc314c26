"""The text of `print(model)` in PyTorch as a tree of modules.

A module prints as `Kind(what it says of itself)`; one that has parts as `Kind(`, a line `(name): ...` for each part,
and `)`; equal neighbours in a list once, as `(0-27): 28 x Kind(...)` (`__repr__` of torch.nn.Module and ModuleList).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from calc.errors import ConfigError, Message, shown

MAX_CHARACTERS = 1_000_000  # 60 layers, each unlike the one before, print a tenth of it
MAX_DEPTH = 100
MAX_REPEATS = 10_000
MAX_WORD = 200  # characters of a name or class

Repeats = tuple[tuple[int, int], ...]

# Every repetition is possessive and ends where the next begins, so that no text takes more than a few passes.
LINE = r"""
    \((?P<name>[^(){}\s]{1,200}+)\):\s*+
    (?: (?:(?P<count>\d++)[ ]x[ ])?+
        (?: None\b | (?P<kind>[A-Za-z_][\w.]{0,199}+)\(
            (?: (?P<own> [^()]*+ (?: \([^()]*+\)(?!:) [^()]*+ )*+ ) \) )?+ )
      | Parameter[ ]containing:[ ]\[(?P<parameter>[^\[\]]*+)\] )
"""
"""A part of a module: with `own` if it ends on the spot, with `kind` alone if its parts follow."""
PART = re.compile(LINE, re.VERBOSE)
TOKEN = re.compile(f"{LINE} | [()]", re.VERBOSE)
"""A part, or else a lone bracket."""
NESTED = re.compile(r"\(([^()]*+)\)")
RANGE = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)
CLASS = re.compile(r"[\w.]{1,200}+\Z")

WRAPPERS = frozenset(
    """
    CheckpointWrapper DataParallel DeepSpeedEngine DistributedDataParallel FullyShardedDataParallel LoraModel
    OptimizedModule PeftModel PeftModelForCausalLM
    """.split()
)
"""Modules that hold one other, the checkpoint's own."""
WRAPPED = ("base_layer", "original_module")  # the checkpoint's own weights, where an adapter stands next to them


@dataclass
class Module:
    """A printed module, or a bare parameter: its kind is then `Parameter`."""

    kind: str
    """Class; empty for the whole where only parts of it were given."""
    name: str = ""
    """Name in the checkpoint, without wrappers; `{}` stands for each index that repeats."""
    repeats: Repeats = ()
    """First and last index for each `{}`."""
    printed: list[str] = field(default_factory=list)  # of itself, without brackets and the commas inside them
    parts: list["Module"] = field(default_factory=list)
    last: int = -1  # highest index among its parts

    @property
    def arguments(self) -> tuple[list[str], dict[str, str]]:
        """Arguments in its brackets: sizes without a name (`2048`, `14 14`), and values with one."""
        words = [word.strip().removeprefix("torch.Size").strip("[] ") for word in "".join(self.printed).split(",")]
        named = [word.partition("=") for word in words if "=" in word]
        sizes = [word for word in words if "=" not in word and (word[:1].isdecimal() or word[:1] == "-")]
        return sizes, {name: value for name, _, value in named}

    @property
    def count(self) -> int:
        return times(self.repeats)

    @property
    def place(self) -> str:
        """Place, short enough for a sentence."""
        place = spoken(self.name, self.repeats) or self.kind
        return place if len(place) <= MAX_WORD else f"…{place[-MAX_WORD:]}"

    def within(self) -> Iterator["Module"]:
        """This module and all in it, as printed."""
        yield self
        for part in self.parts:
            yield from part.within()


def times(repeats: Repeats) -> int:
    return prod(last - first + 1 for first, last in repeats)


def spoken(name: str, repeats: Repeats) -> str:
    """A name with the ranges of its indices: model.layers.0-27.mlp."""
    return name.format(*(f"{first}-{last}" for first, last in repeats))


def module_tree(text: str) -> tuple[Module, str]:
    """The first module tree in a text, and the text that follows it. Raises ConfigError."""
    if len(text) > MAX_CHARACTERS:
        sentence = "The text is {length:,} characters long; a printed model has at most {most:,}."
        raise ConfigError(Message(sentence, length=len(text), most=MAX_CHARACTERS))
    first = next(printed_parts(text), None)
    if first is None:
        raise ConfigError(
            Message("No printed model in this text: it has lines like (lm_head): Linear(in_features=768, ...).")
        )
    before, _, printed = text[: first.start()].rpartition("(")
    kind = CLASS.search(before[-MAX_WORD:]) if ")" not in printed else None
    root = Module(kind[0], printed=[printed]) if kind else Module("")
    path, nested, end = (
        [root],
        0,
        first.start(),
    )  # modules that we are in; brackets open in what the last says of itself
    for part in TOKEN.finditer(text, end):
        module = path[-1]
        printed, end = text[end : part.start()], part.end()
        if printed and not printed.isspace():
            module.printed.append(printed.replace(",", " ") if nested else printed)
        if part["name"]:
            inner = _part(module, part)
            if inner is not None:
                module.parts.append(inner)
                if part["kind"] and part["own"] is None:
                    path.append(inner)
                    nested = 0
        elif part[0] == "(":
            nested += 1
        elif nested:
            nested -= 1
        else:
            path.pop()
            if not path:
                break
        if len(path) + nested > MAX_DEPTH:
            raise ConfigError(
                Message("The modules are nested more than {most} deep at {place}.", most=MAX_DEPTH, place=module.place)
            )
    if not path and not root.kind:
        raise ConfigError(Message("A bracket closes that was never opened; copy the print-out from its first line on."))
    if path and (root.kind or len(path) > 1):
        raise ConfigError(
            Message("The print-out breaks off inside {place}; copy it up to its last bracket.", place=path[-1].place)
        )
    return root, text[end:]


def printed_parts(text: str) -> Iterator[re.Match[str]]:
    return PART.finditer(text)


def _part(module: Module, part: re.Match[str]) -> Module | None:
    """The part of a module that a line shows; None where the line says None."""
    name, repeats = _index(module, part["name"], part["count"])
    if module.kind in WRAPPERS or name in WRAPPED:
        name = module.name
    elif module.name:
        name = f"{module.name}.{name}"
    repeats = module.repeats + repeats
    if part["parameter"] is not None:  # torch.float32 of size 10x10
        _, _, size = part["parameter"].partition(" of size ")
        return Module("Parameter", name, repeats, [size.partition(" ")[0].replace("x", " ")])
    if part["kind"] is None:
        return None
    own = NESTED.sub(lambda inner: inner[1].replace(",", " "), part["own"] or "")
    return Module(part["kind"], name, repeats, [own])


def _index(module: Module, name: str, count: str | None) -> tuple[str, Repeats]:
    """The name of a part, `{}` for a range of indices, and that range."""
    between = RANGE.fullmatch(name)
    if between is None and count is None:
        if name.isascii() and name.isdecimal() and len(name) <= 6:
            _advance(module, int(name), int(name))
        return name, ()
    if between is None or count != str(int(between[2]) - int(between[1]) + 1):
        sentence = "({name}) in {place} must be like (0-27): 28 x, a range and its length."
        raise ConfigError(Message(sentence, name=shown(name), place=module.place))
    first, last = int(between[1]), int(between[2])
    if last - first >= MAX_REPEATS:
        sentence = "({name}) in {place} repeats {count} times; at most {most:,} times are read."
        raise ConfigError(Message(sentence, name=name, place=module.place, count=count, most=MAX_REPEATS))
    _advance(module, first, last)
    return "{}", ((first, last),)


def _advance(module: Module, first: int, last: int) -> None:
    if not module.last < first <= last:
        sentence = "Index {first:,} in {place} comes after {last:,}; indices count upwards."
        raise ConfigError(Message(sentence, first=first, place=module.place, last=module.last))
    module.last = last
