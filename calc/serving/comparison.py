"""Several configurations side by side: what differs, and by how much."""

from collections.abc import Mapping, Sequence
from typing import Any

from calc.errors import Frozen
from calc.formats import CacheFormat
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine

CONTEXTS = tuple(2**power for power in range(10, 18))  # 1k to 128k tokens


class ComparedField(Frozen):
    """A config field of every configuration; None where one has no such field."""

    name: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        return any(value != self.values[0] for value in self.values)

    @property
    def shared(self) -> bool:
        """Whether every configuration has it."""
        return None not in self.values


def settings(configurations: Sequence[Mapping[str, Any]]) -> tuple[ComparedField, ...]:
    """Fields that differ first, of these the ones that all have; otherwise in the order of the configs."""
    names = dict.fromkeys(name for fields in configurations for name in fields)
    rows = (ComparedField(name=name, values=tuple(fields.get(name) for fields in configurations)) for name in names)
    return tuple(sorted(rows, key=lambda row: (not row.differs, not row.shared)))


def ratio(value: int, first: int) -> float | None:
    """How many times the first it is; None where there is nothing to compare with."""
    return value / first if first else None


def cache_growth(architecture: Architecture, engine: Engine, kv: CacheFormat, batch: int) -> dict[int, int]:
    """Bytes of KV cache and states of `batch` sequences at each context that the model can read, on all GPUs, each
    counted once."""
    most = architecture.learned_positions or CONTEXTS[-1]
    contexts = [context for context in CONTEXTS if context <= most] or [most]
    return {context: engine.sequences_bytes(architecture, kv, batch, context) for context in contexts}
