"""Text to Log, line by line."""

import re
from collections.abc import Iterable, Iterator
from math import log2
from typing import Any, get_args

from calc.errors import ConfigError, Message
from calc.serving.engines import LOGS, StartupLog
from calc.serving.engines.startup_log import LogLine, LogSettings, RefusalKind
from calc.verify.logs.log import Log
from calc.verify.logs.out_of_memory import OutOfMemory, out_of_memory, ran_out, size, training_failure

MAX_CHARACTERS = 1_000_000
MAX_STARTS = 1_000
MAX_LINE = 20_000  # the longest, which lists an engine's settings, has some 5,000
SHORTEST = min(len(wording.words) for log in LOGS.values() for wording in log.lines)  # characters
OOM_LINES = 12  # over which a narrow terminal breaks PyTorch's message
ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
LEAST = ("kv_bytes", "kv_tokens", "blocks", "concurrency", "free", "left")  # less means a fuller rank
OF_RANKS = ("weights", "activations", "non_torch", "cuda_graphs")  # what every rank states, and nothing else does


class Start:
    """One start of an engine, while its lines are read: the first figure of each rank, the first value of a setting."""

    def __init__(self) -> None:
        self.log: StartupLog | None = None
        self.version: str | None = None
        self.settings: dict[str, str] = {}
        self.figures: dict[str, dict[str, int | float]] = {}
        self.drafts: set[str] = set()  # ranks that have loaded a second model, with a cache of its own
        self.refusals: set[RefusalKind] = set()
        self.out_of_memory: OutOfMemory | None = None

    @property
    def is_read(self) -> bool:
        return bool(self.figures or self.refusals or self.out_of_memory)

    @property
    def refusal(self) -> RefusalKind | None:
        """The reason that says most."""
        kinds = set(self.refusals)
        if self.out_of_memory is not None and (kinds or not self.out_of_memory.is_warning):
            kinds.add("out-of-memory")
        return min(kinds, key=get_args(RefusalKind).index, default=None)

    def add(self, log: StartupLog, term: str, rank: str, figure: int | float) -> None:
        self.log = log
        if term in LogSettings.model_fields:
            self.settings.setdefault(term, str(figure))
        else:
            ranks = self.figures.setdefault(term, {})
            if log.repeats and rank in ranks:
                if term == "weights":
                    self.drafts.add(rank)
                elif term == "kv_bytes" and rank not in self.drafts:  # layers with a window have a pool of their own
                    ranks[rank] += figure
            ranks.setdefault(rank, figure)

    def of_most_loaded(self) -> dict[str, Any]:
        """Figure of each term on the most loaded rank."""
        return {
            term: min(ranks.values()) if term in LEAST else max(ranks.values()) for term, ranks in self.figures.items()
        }


def read_log(text: str) -> Log:
    """Read a start-up log of vLLM or SGLang, or PyTorch's out-of-memory message. Raises ConfigError.

    Where several starts stand in it, the last is taken.
    """
    if len(text) > MAX_CHARACTERS:
        sentence = "The text is {length:,} characters long; paste at most {most:,}, around the start."
        raise ConfigError(Message(sentence, length=len(text), most=MAX_CHARACTERS))
    text = ANSI.sub("", text)
    lines = [line[:MAX_LINE] for line in text.splitlines()]
    wordings = [(log, wording) for log in LOGS.values() for wording in log.lines if wording.words in text]
    openings = [(log, words) for log in LOGS.values() for words in log.openings if words in text]
    closings = [(log, words) for log in LOGS.values() for words in log.closings if words in text]
    refusals = [(log, kind, words) for log in LOGS.values() for kind, words in log.refusals if words in text]
    start, starts = Start(), 1
    for number, line in enumerate(lines):
        if len(line) < SHORTEST:
            continue
        opened = next((log for log, words in openings if words in line), None)
        if opened is not None:
            if start.is_read:
                start, starts = Start(), starts + 1
                if starts > MAX_STARTS:
                    raise ConfigError(
                        Message("The log has more than {most:,} starts; paste only the last one.", most=MAX_STARTS)
                    )
            start.log = opened
            version = opened.version and opened.version.search(line)
            start.version = version[1] if version else start.version
        listing = opened or next((log for log, words in closings if words in line), None)
        if listing is not None:
            for name, value in settings(line, listing):
                start.settings.setdefault(name, value)
        for stated_figure in figures(line, wordings):
            start.add(*stated_figure)
        for log, kind, words in refusals:
            if words in line:
                start.log = log
                start.refusals.add(kind)
        if ran_out(line) and (start.out_of_memory is None or start.out_of_memory.is_warning):
            start.out_of_memory = out_of_memory(" ".join(lines[number : number + OOM_LINES])) or start.out_of_memory
    failure = training_failure(text, start.out_of_memory)
    if start.log is None and start.out_of_memory is None and failure is None:
        sentence = (
            "No line of a vLLM or SGLang start-up log or of a CUDA out-of-memory message was found; paste the "
            "lines from the engine's start to its first request, or the whole message."
        )
        raise ConfigError(Message(sentence))
    return finished(start, starts).model_copy(update={"training": failure})


def figures(
    line: str, wordings: Iterable[tuple[StartupLog, LogLine]]
) -> Iterator[tuple[StartupLog, str, str, int | float]]:
    """Log, term, rank and figure, of every figure in a line."""
    for log, (term, words, pattern) in wordings:
        if words in line:
            match = pattern.search(line)
            if match is not None:
                ranks = log.rank.findall(line, 0, match.start())
                yield log, term, ranks[-1].strip() if ranks else "", figure(match)


def figure(match: re.Match[str]) -> int | float:
    """The sum of the sizes, in bytes, or the count, or the number."""
    groups = match.groupdict()
    if "count" in groups:
        return int(groups["count"].replace(",", ""))
    if "number" in groups:
        return float(groups["number"])
    return sum(size(match, name) for name in "abc" if name in groups)


def settings(line: str, log: StartupLog) -> Iterator[tuple[str, str]]:
    """Fields of LogSettings and their values as text, without those that are left to the engine."""
    for match in log.setting.finditer(line):
        name, value = log.fields[match[1]], match[2] or match[3]
        if value != "None" and (name, value) != ("dtype", "auto"):
            yield name, value


def setting(name: str, value: str) -> str | int | float | bool | None:
    """The value as the field's type has it; None where it is something else."""
    kinds = str(LogSettings.model_fields[name].annotation)
    if name == "speculative":
        return True
    if "bool" in kinds:
        return {"True": True, "False": False}.get(value)
    if "int" in kinds:
        return int(value) if re.fullmatch("[0-9]{1,12}", value) else None
    if "float" in kinds:
        return float(value) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", value) else None
    return value.removeprefix("torch.")


def finished(start: Start, starts: int) -> Log:
    """The log of a start, one of so many in the text."""
    figures_read = start.of_most_loaded()
    log_settings = LogSettings(**{name: setting(name, value) for name, value in start.settings.items()})
    if "blocks" in figures_read:
        figures_read.setdefault("kv_tokens", figures_read["blocks"] * tokens_a_block(start, log_settings, figures_read))
    if "torch_peak" in figures_read and "weights" in figures_read:
        figures_read.setdefault("activations", figures_read["torch_peak"] - figures_read["weights"])
    if "consumed" in figures_read and "weights" in figures_read:
        figures_read.setdefault("non_torch", figures_read["consumed"] - figures_read["weights"])
    if "graphs_estimated" in figures_read and "activations" in figures_read and "graphs_charged" not in figures_read:
        figures_read["activations"] = max(0, figures_read["activations"] - figures_read["graphs_estimated"])
    ranks = max((len(start.figures[term]) for term in OF_RANKS if term in start.figures), default=1)
    notes: list[Message] = []
    if starts > 1:
        notes.append(Message("The log has {starts:,} starts; these are the figures of the last.", starts=starts))
    if ranks > 1:
        sentence = "{ranks:,} ranks report: of each size the largest is taken, and the least cache."
        notes.append(Message(sentence, ranks=ranks))
    if start.drafts:
        notes.append(Message("A second model was loaded, a draft model; its weights and its cache are not counted."))
    return Log(
        engine=start.log.engine.name if start.log else "torch",
        version=start.version,
        settings=log_settings,
        **{name: value for name, value in figures_read.items() if name in Log.model_fields},
        ranks=ranks,
        starts=starts,
        refusal=start.refusal,
        out_of_memory=start.out_of_memory,
        notes=tuple(notes),
    )


def tokens_a_block(start: Start, log_settings: LogSettings, figures_read: dict[str, Any]) -> int:
    """Tokens a block: as stated; or as the concurrency has it, a power of two; or the engine's default."""
    if log_settings.block_size is not None:
        return log_settings.block_size
    if figures_read.get("concurrency") and figures_read.get("concurrency_length") and figures_read["blocks"]:
        tokens = figures_read["concurrency"] * figures_read["concurrency_length"] / figures_read["blocks"]
        return int(2 ** min(max(round(log2(tokens)), 0), 12))
    return start.log.block_size if start.log else 1
