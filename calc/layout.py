from collections.abc import Iterator

from pydantic import Field

from calc.architecture import Architecture
from calc.errors import ConfigError
from calc.frozen import Frozen


class Layout(Frozen):
    """How a model is spread: each layer over tp GPUs (tensor parallel), the layers over pp stages (pipeline)."""

    tp: int = Field(default=1, ge=1, le=1024)
    pp: int = Field(default=1, ge=1, le=4096)

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    def stages(self, layers: int) -> Iterator[range]:
        """The layers of each stage; what does not divide goes one each to the first stages."""
        each, more = divmod(layers, self.pp)
        start = 0
        for stage in range(self.pp):
            stop = start + each + (stage < more)
            yield range(start, stop)
            start = stop

    def check(self, architecture: Architecture) -> None:
        """Raise ConfigError where the model can't be divided so."""
        if not divides(architecture, self.tp):
            nearest = [tp for tp in (1, 2, 4, 8, 16, 32, 64) if divides(architecture, tp)]
            raise ConfigError(
                f"tp is {self.tp:,}, which does not divide this model's heads and feed-forward columns evenly.",
                "tp",
                nearest,
            )
        if self.pp > architecture.num_layers:
            layers = architecture.num_layers
            raise ConfigError(f"pp is {self.pp:,}, but the model has only {layers:,} layers.", "pp", [layers])


def divides(architecture: Architecture, tp: int) -> bool:
    """Whether tp ranks can share every layer evenly."""
    return all(
        part.divides(tp)
        for block in (*architecture.blocks, *architecture.shared)
        for part in (*block.mixers, block.ffn)
        if part is not None
    )
