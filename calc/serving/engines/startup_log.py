"""Wordings of an engine's start-up log: one row each, with the term, the words that announce it, and what follows.

Patterns begin with fixed words and every gap is bounded, so that reading takes time in proportion to the text,
whatever it is.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Self

from calc.errors import Frozen, Message
from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.options import made
from calc.serving.engines.engine import Engine

RefusalKind = Literal["free-memory", "state-blocks", "length", "no-cache", "out-of-memory", "unknown"]
"""Why a server did not start, the reason that says most first."""
DECIMAL = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
SIZE = r"(?P<NAME>-?DECIMAL) ?(?P<NAME_unit>bytes|[KMG]i?B)".replace("DECIMAL", DECIMAL)
COUNT = r"(?P<count>[0-9][0-9,]{0,18})"
FLOAT = rf"(?P<number>{DECIMAL})"
GAP = r".{0,200}?"


class Ending(NamedTuple):
    """Why a start fails, and the words that say so."""

    kind: RefusalKind
    words: str


class LogLine(NamedTuple):
    """A wording. The term, a field of the log or of its settings, is the sum of the sizes that the pattern names, or
    its count, or its number."""

    term: str
    words: str
    pattern: re.Pattern[str]


def line(term: str, words: str, rest: str) -> LogLine:
    names = iter("abc")
    rest = re.sub("SIZE", lambda _: SIZE.replace("NAME", next(names)), rest)
    for word, pattern in {"COUNT": COUNT, "NUMBER": FLOAT, "DECIMAL": DECIMAL, "GAP": GAP}.items():
        rest = rest.replace(word, pattern)
    return LogLine(term, words, re.compile(re.escape(words) + rest, re.ASCII))


def own_names(names: Iterable[str]) -> dict[str, str]:
    """Fields of LogSettings that an engine calls so too."""
    return {name: name for name in names}


class LogSettings(Frozen):
    """Settings of the engine, as far as the log says, by vLLM's names."""

    model: str | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    gpu_memory_utilization: float | None = None  # vLLM: share of the GPU for everything
    mem_fraction_static: float | None = None  # SGLang: share of the GPU for weights and cache
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    swa_full_tokens_ratio: float | None = None
    mamba_full_memory_ratio: float | None = None
    mamba_radix_cache_strategy: str | None = None
    max_mamba_cache_size: int | None = None
    disable_radix_cache: bool | None = None
    cuda_graph_max_bs: int | None = None
    enforce_eager: bool | None = None
    enable_lora: bool | None = None
    speculative: bool | None = None  # True: a draft is configured
    speculative_method: str | None = None  # vLLM's own word for it
    num_speculative_tokens: int | None = None

    @property
    def without_draft(self) -> Self:
        return self.model_copy(update={"speculative_method": None, "num_speculative_tokens": None})


class StartupLog(ABC):
    """Reader of an engine's start-up log, and its lines in our terms."""

    engine: ClassVar[type[Engine]]
    openings: ClassVar[tuple[str, ...]]
    """Words of lines that open a start, or continue one of which no figure is read yet; all of them list settings."""
    closings: ClassVar[tuple[str, ...]] = ()
    """Words of other lines that list settings."""
    fields: ClassVar[Mapping[str, str]]
    """A setting by the engine's name -> the field of LogSettings."""
    lines: ClassVar[tuple[LogLine, ...]]
    refusals: ClassVar[tuple[Ending, ...]] = ()
    """Endings of failed starts."""
    version: ClassVar[re.Pattern[str] | None] = None
    """The version in an opening, where its rules depend on it."""
    rank: ClassVar[re.Pattern[str]]
    """The rank that writes a line, before what it says."""
    repeats: ClassVar[bool] = False
    """A rank states its weights again for a draft model, and its cache once for each pool."""
    block_size: ClassVar[int] = 1
    """Tokens of a block, unless stated."""
    cache_sizes: ClassVar[int] = 1
    """Rounded sizes that the cache's bytes are the sum of."""
    states_version_rules: ClassVar[bool] = False
    """Whether the settings and the version decide what is left for the cache, so that it can be computed."""
    share_of_free: ClassVar[bool] = False
    """Whether a stated share of the free memory is for weights and cache, so that what it leaves can be computed."""
    loading_libraries: ClassVar[int] = 0
    """Bytes that libraries take while weights are loaded, where they are counted with these."""

    @cached_property
    def setting(self) -> re.Pattern[str]:
        names = "|".join(self.fields)
        return re.compile(rf"(?<![\w-])'?({names})'?(?:=|: )(?:'([^']{{1,300}})'|([^\s,'\"}}()]{{1,300}}))", re.ASCII)

    @abstractmethod
    def started(self, settings: LogSettings, version: str | None) -> Engine:
        """The engine with the flags that the log states."""

    def alternatives(self, engine: Engine) -> Iterator[Engine]:
        """The engine under flags that the log may leave unsaid."""
        yield engine

    def layout(self, settings: LogSettings) -> Layout:
        degrees = {
            "tp": settings.tensor_parallel_size,
            "pp": settings.pipeline_parallel_size,
            "dp": settings.data_parallel_size,
        }
        return made(Layout, {name: degree or 1 for name, degree in degrees.items()})

    def loadings(self, started: Engine, precision: Precision, vision: bool) -> Iterator[tuple[Message, Engine]]:
        """Weights that may have been loaded, with a vision encoder or without one, and the engine that does so;
        `started`: with the log's own flags."""
        if vision:
            yield Message("The weights with the vision encoder"), self.loader(started)
        yield Message("The weights"), self.loader(started).with_options(language_model_only=vision)

    def loader(self, started: Engine) -> Engine:
        """The engine with those of its flags alone that decide what it loads, a draft with the model."""
        return self.engine()

    def tables(self, settings: LogSettings, context: int) -> int:
        """Bytes of tables of requests of up to so many tokens, which are not in the cache."""
        return 0

    def graph_batches(self, settings: LogSettings, free: int, ranks: int) -> list[int]:
        """Batches that CUDA graphs are captured for on a GPU with so much free memory; empty: not known."""
        return []

    @abstractmethod
    def why_heavier(self, settings: LogSettings, more: int, libraries: int) -> Message | None:
        """Why the log's weights are so many bytes more than ours, where libraries take up to so many; None: as of any
        engine."""
