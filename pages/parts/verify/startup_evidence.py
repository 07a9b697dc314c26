"""Results of `python -m benchmarks.accuracy.startup_evidence`: start-up logs next to our budget, lengths that it
printed when it refused, and a court of configurations that start and that do not."""

from collections.abc import Iterable, Mapping
from functools import cache
from statistics import median
from typing import Literal

from calc.errors import Frozen, Message
from calc.serving import Word
from pages.parts.verify.evidence import FOLDER

FILE = FOLDER / "startups.json"
NO: tuple[Word, ...] = ("does not fit", "does not run")
FITTED = Message(
    "Fitted on these logs: the bytes of a CUDA graph ({first} starts from vLLM 0.12 on, {old} of older versions, "
    "{second} of its second runner), ranges of memory outside PyTorch ({outside} starts that print it), and the pass "
    "that is profiled up to 0.16 ({profiled} logs). All else follows from the engine's source and the model. About as "
    "many logs and configurations are kept back and were not used.",
    first=7,
    old=4,
    second=8,
    outside=23,
    profiled=10,
)


class StartedLog(Frozen):
    """A start-up log and ours of it, in GiB."""

    engine: str
    version: str | None
    model: str
    gpu: str
    gpus: int
    total: float
    cache: float
    cache_low: float
    cache_high: float
    cache_logged: float | None
    weights_agree: bool
    graphs: float
    graphs_logged: float | None
    source: str

    @property
    def error(self) -> float | None:
        """Our cache more than the log's, as a share of the GPU; None where the log does not state it, or which modules
        stay in 16 bits."""
        if self.cache_logged is None or not self.weights_agree:
            return None
        return (self.cache - self.cache_logged) / self.total

    @property
    def is_inside(self) -> bool:
        """Whether the log's cache lies in our range, to the digits that it prints."""
        return self.cache_logged is not None and self.cache_low - 0.005 <= self.cache_logged <= self.cache_high + 0.005

    @property
    def graphs_error(self) -> float | None:
        return None if self.graphs_logged is None else self.graphs - self.graphs_logged

    @property
    def minor(self) -> str | None:
        """0.11 of 0.11.2."""
        return None if self.version is None else ".".join(self.version.split(".")[:2])


class Length(Frozen):
    """The longest request that an engine printed when it refused a longer one, and ours."""

    version: str | None
    model: str
    gpu: str | None
    printed: int
    of_bytes: int  # that the log's own bytes hold
    end_to_end: int | None  # that we plan from its settings; None: the log does not state its GPU
    source: str


class Cell(Frozen):
    """So many configurations of an engine that start, or do not, by our word."""

    engine: str
    starts: bool
    word: Word
    count: int


class Miss(Frozen):
    """A configuration that starts and of which we say that it does not fit or run, or the reverse."""

    model: str
    gpu: str
    gpus: int
    engine: str
    starts: bool
    word: Word
    source: str


class LogsLeftOut(Frozen):
    reason: str
    count: int


class Startups(Frozen):
    """All of them."""

    logs: tuple[StartedLog, ...]
    lengths: tuple[Length, ...]
    court: tuple[Cell, ...]
    misses: tuple[Miss, ...]
    left_out: tuple[LogsLeftOut, ...]

    def by_version(self) -> Mapping[tuple[str, str | None], list[StartedLog]]:
        """Logs by engine and version, in the order of versions."""
        by_release: dict[tuple[str, str | None], list[StartedLog]] = {}
        for log in sorted(self.logs, key=lambda log: (log.engine, number(log.minor))):
            by_release.setdefault((log.engine, log.minor), []).append(log)
        return by_release

    def judged(self, *, starts: bool, fits: bool, engine: str | None = None) -> int:
        """Configurations in a cell of the court; what is tight counts as one that fits."""
        return sum(
            cell.count
            for cell in self.court
            if cell.starts == starts and (cell.word not in NO) == fits and engine in (None, cell.engine)
        )


def number(version: str | None) -> tuple[int, ...]:
    """To sort versions by."""
    return () if version is None else tuple(map(int, version.split(".")))


class StartupSummary(Frozen):
    """Errors of some logs: of the cache as shares of the GPU, of graphs in GiB."""

    records: int
    median: float
    p90: float
    inside: int
    graphs: int
    graphs_median: float | None
    graphs_p90: float | None


def summary(logs: Iterable[StartedLog]) -> StartupSummary | None:
    """None where no log states its cache."""
    every = list(logs)
    errors = sorted(abs(log.error) for log in every if log.error is not None)
    graphs = sorted(abs(log.graphs_error) for log in every if log.graphs_error is not None)
    if not errors:
        return None
    return StartupSummary(
        records=len(errors),
        median=median(errors),
        p90=percentile(errors, 90),
        inside=sum(log.error is not None and log.is_inside for log in every),
        graphs=len(graphs),
        graphs_median=median(graphs) if graphs else None,
        graphs_p90=percentile(graphs, 90) if graphs else None,
    )


def percentile(ordered: list[float], share: int) -> float:
    """The smallest that no more than the rest of 100 exceed."""
    return ordered[-(-share * len(ordered) // 100) - 1]


Given = Literal["of_bytes", "end_to_end"]


def length_errors(lengths: Iterable[Length], given: Given) -> list[float]:
    """Shares of what was printed, ascending."""
    return sorted(abs(ours / row.printed - 1) for row in lengths if (ours := getattr(row, given)) is not None)


@cache
def startups() -> Startups:
    return Startups.model_validate_json(FILE.read_bytes())
