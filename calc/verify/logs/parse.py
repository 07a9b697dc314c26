"""Text to Log, line by line."""

import re
from collections.abc import Iterable, Iterator
from math import log2
from typing import Any

from calc.errors import ConfigError, Message
from calc.verify.logs.lines import (
    ANSI,
    BYTES,
    FIELDS,
    LINES,
    OOM_PATTERNS,
    OOM_WORDS,
    RANK,
    SETTING,
    SETTINGS_TOO,
    STARTS,
    VERSION,
    Line,
    Term,
)
from calc.verify.logs.log import Engine, Log, OutOfMemory, Settings

MAX_CHARACTERS = 1_000_000
MAX_STARTS = 1_000
MAX_LINE = 20_000  # the longest, which lists an engine's settings, has some 5,000
SHORTEST = min(len(wording.words) for wording in LINES)  # characters
OOM_LINES, OOM_CHARACTERS = 12, 2_000  # a narrow terminal breaks PyTorch's message of 600 characters over several lines
LEAST = ("kv_bytes", "kv_tokens", "blocks", "concurrency", "free")  # less means a fuller rank
OF_RANKS: tuple[Term, ...] = (
    "weights",
    "activations",
    "non_torch",
    "cuda_graphs",
)  # what every rank states, and nothing else does


class Start:
    """One start of an engine, while its lines are read: the first figure of each rank, the first value of a setting."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.version: str | None = None
        self.settings: dict[str, str] = {}
        self.figures: dict[Term, dict[str, int | float]] = {}
        self.drafts: set[str] = set()  # ranks on which SGLang has loaded a second model, with a cache of its own
        self.out_of_memory: OutOfMemory | None = None

    def add(self, engine: Engine, term: Term, rank: str, figure: int | float) -> None:
        self.engine = engine
        if term in Settings.model_fields:
            self.settings.setdefault(term, str(figure))
        else:
            ranks = self.figures.setdefault(term, {})
            if engine == "sglang" and rank in ranks:
                if term == "weights":
                    self.drafts.add(rank)
                elif term == "kv_bytes" and rank not in self.drafts:  # layers with a window have a pool of their own
                    ranks[rank] += figure
            ranks.setdefault(rank, figure)

    def fullest(self) -> dict[str, Any]:
        """Of each term the figure of the fullest rank."""
        return {
            term: min(ranks.values()) if term in LEAST else max(ranks.values()) for term, ranks in self.figures.items()
        }


def read_log(text: str) -> Log:
    """Read a start-up log of vLLM or SGLang, or PyTorch's out-of-memory message. Raises ConfigError.

    Where several starts stand in it, the last is taken.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            Message(
                "The text is {length:,} characters long; paste the {most:,} around the start.",
                length=len(text),
                most=MAX_CHARACTERS,
            )
        )
    text = ANSI.sub("", text)
    lines = [line[:MAX_LINE] for line in text.splitlines()]
    wordings = [wording for wording in LINES if wording.words in text]
    openings = [opening for opening in STARTS if opening[1] in text]
    start, starts = Start(), 1
    for number, line in enumerate(lines):
        if len(line) < SHORTEST:
            continue
        engine = next((engine for engine, words in openings if words in line), None)
        if engine is not None:
            if start.figures or start.out_of_memory:
                start, starts = Start(), starts + 1
                if starts > MAX_STARTS:
                    raise ConfigError(
                        Message("The log has more than {most:,} starts; paste the last one alone.", most=MAX_STARTS)
                    )
            start.engine = engine
            version = VERSION.search(line)
            start.version = version[1] if version else start.version
        if engine is not None or any(words in line for words in SETTINGS_TOO):
            for name, value in settings(line):
                start.settings.setdefault(name, value)
        for found in figures(line, wordings):
            start.add(*found)
        if OOM_WORDS in line and start.out_of_memory is None:
            start.out_of_memory = out_of_memory(" ".join(lines[number : number + OOM_LINES]))
    if start.engine is None and start.out_of_memory is None:
        raise ConfigError(
            Message(
                "No line of a vLLM or SGLang start-up log or of a CUDA out-of-memory message was found; paste the "
                "lines from the engine's start to its first request, or the whole message."
            )
        )
    return finished(start, starts)


def figures(line: str, wordings: Iterable[Line]) -> Iterator[tuple[Engine, Term, str, int | float]]:
    """Engine, term, rank and figure, of every figure in a line."""
    for engine, term, words, pattern in wordings:
        if words in line:
            match = pattern.search(line)
            if match is not None:
                ranks = RANK.findall(line, 0, match.start())
                yield engine, term, ranks[-1].strip() if ranks else "", figure(match)


def figure(match: re.Match[str]) -> int | float:
    """The sum of the sizes, in bytes, or the count, or the number."""
    groups = match.groupdict()
    if "count" in groups:
        return int(groups["count"].replace(",", ""))
    if "number" in groups:
        return float(groups["number"])
    return sum(size(match, name) for name in "abc" if name in groups)


def size(match: re.Match[str], name: str = "a") -> int:
    """Bytes of a size."""
    return round(float(match[name]) * BYTES[match[f"{name}_unit"]])


def settings(line: str) -> Iterator[tuple[str, str]]:
    """Fields of Settings and their values as text, without those that are left to the engine."""
    for match in SETTING.finditer(line):
        name, value = FIELDS[match[1]], match[2] or match[3]
        if value != "None" and (name, value) != ("dtype", "auto"):
            yield name, value


def setting(name: str, value: str) -> str | int | float | bool | None:
    """The value as the field's type has it; None where it is something else."""
    kinds = str(Settings.model_fields[name].annotation)
    if name == "speculative":
        return True
    if "bool" in kinds:
        return {"True": True, "False": False}.get(value)
    if "int" in kinds:
        return int(value) if re.fullmatch("[0-9]{1,12}", value) else None
    if "float" in kinds:
        return float(value) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", value) else None
    return value.removeprefix("torch.")


def out_of_memory(text: str) -> OutOfMemory | None:
    """PyTorch's message, which begins within the text."""
    message = OOM_WORDS + text.partition(OOM_WORDS)[2].partition(OOM_WORDS)[0][:OOM_CHARACTERS]
    found = {
        name: [size(match) for wording in wordings for match in wording.finditer(message)]
        for name, wordings in OOM_PATTERNS.items()
    }
    if not found["tried"]:
        return None
    first = {name: sizes[0] if sizes else None for name, sizes in found.items()}
    allocated, reserved, pool = first["allocated"], first["reserved"], first["pool"]
    if reserved is None and pool is not None and allocated is not None:
        reserved = pool - allocated
    return OutOfMemory(
        tried=found["tried"][0],
        total=first["total"],
        free=first["free"],
        in_use=first["in_use"] or sum(found["others"]) or None,
        allocated=allocated,
        reserved=reserved,
    )


def finished(start: Start, starts: int) -> Log:
    found = start.fullest()
    asked = Settings(**{name: setting(name, value) for name, value in start.settings.items()})
    if "blocks" in found:
        found.setdefault("kv_tokens", found["blocks"] * block_size(asked, found))
    if "torch_peak" in found and "weights" in found:
        found.setdefault("activations", found["torch_peak"] - found["weights"])
    ranks = max((len(start.figures[term]) for term in OF_RANKS if term in start.figures), default=1)
    notes = {
        Message("The log has {starts:,} starts; these are the figures of the last.", starts=starts): starts > 1,
        Message("{ranks:,} ranks report: of each size the largest is taken, and the least cache.", ranks=ranks): ranks
        > 1,
        Message("A second model was loaded, a draft model; its weights and its cache are not counted."): bool(
            start.drafts
        ),
    }
    return Log(
        engine=start.engine or "torch",
        version=start.version,
        settings=asked,
        **{name: value for name, value in found.items() if name in Log.model_fields},
        ranks=ranks,
        starts=starts,
        out_of_memory=start.out_of_memory,
        notes=tuple(note for note, holds in notes.items() if holds),
    )


def block_size(asked: Settings, found: dict[str, Any]) -> int:
    """Tokens a block: as stated; or as the concurrency has it, a power of two; or 16, vLLM's default on GPUs."""
    if asked.block_size is not None:
        return asked.block_size
    if found.get("concurrency") and found.get("concurrency_length") and found["blocks"]:
        tokens = found["concurrency"] * found["concurrency_length"] / found["blocks"]
        return int(2 ** min(max(round(log2(tokens)), 0), 12))
    return 16
