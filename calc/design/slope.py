"""The cost of one step of a field at the present design: parameters, bytes of weights and of KV cache."""

from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError, Frozen
from calc.families import override
from calc.formats import Precision
from calc.formats.stored import stored
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.workload import Workload

TRIES = 16
"""Steps within which a valid value is looked for: as many KV heads as divide the query heads."""


class Slope(Frozen):
    """Differences to a design whose field is `step` larger."""

    step: int
    parameters: int
    nbytes: int
    """Bytes of weights and KV cache, on all GPUs together."""


class Slopes:
    """Changes of counts and bytes of one design with its fields, in a format and at a context. Raises ConfigError where
    the format does not suit the model."""

    def __init__(
        self,
        config: Mapping[str, Any],
        architecture: Architecture,
        engine: Engine,
        precision: Precision,
        workload: Workload,
    ) -> None:
        self.config, self.architecture, self.engine = config, architecture, engine
        self.precision, self.workload = precision, workload
        self.here = weight(architecture, engine, precision, workload)
        """Parameters and bytes of the design itself."""

    def of(self, field: str, now: int, step: int) -> Slope | None:
        """Slope to the next valid value in steps; None where there is none near. A refusal that names the next valid
        value saves the steps on the way there."""
        tried = now + step
        while tried <= now + TRIES * step:
            try:
                architecture = Architecture.from_config(override(self.config, {field: tried}))
                parameters, nbytes = weight(architecture, self.engine, self.precision, self.workload)
            except ConfigError as error:
                valid = max((near for near in error.nearest if isinstance(near, int)), default=0)
                on_the_way = error.field == field and valid > tried and (valid - now) % step == 0
                tried = valid if on_the_way else tried + step
            else:
                parameters, nbytes = parameters - self.here[0], nbytes - self.here[1]
                return Slope(step=tried - now, parameters=parameters, nbytes=nbytes)
        return None

    def cache_of(self, **workload: int) -> int:
        """Bytes of KV cache that another batch or context takes more."""
        more = self.workload.model_copy(update=workload)
        return weight(self.architecture, self.engine, self.precision, more)[1] - self.here[1]


def weight(architecture: Architecture, engine: Engine, precision: Precision, workload: Workload) -> tuple[int, int]:
    """Parameters, and bytes of weights and KV cache. Raises ConfigError where the format does not suit the model."""
    pieces = (piece for piece in stored(architecture, precision) if piece.tensor.excluded_as is None)
    weights = sum(piece.nbytes * piece.tensor.count for piece in pieces)
    cache = engine.sequences_bytes(architecture, precision.kv, workload.batch, workload.context)
    return architecture.parameters().total, weights + cache
