"""How an engine is started."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from calc.errors import Frozen
from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.serving.engines.launch import Launch, Separation
from calc.serving.engines.sizes import Limits
from calc.serving.engines.started import StartedEngine
from calc.serving.workload import Workload


class Image(Frozen):
    """The makers' container image of a server, the port that it serves at, and what makes it listen to others."""

    name: str
    port: int
    listens: tuple[str, ...] = ()


class Launcher(StartedEngine):
    """The command, and the flags that change what fits."""

    step_option: ClassVar[str]
    """The option that limits the tokens of a forward pass; those of sequences and of the GPU's share follow."""
    sequences_option: ClassVar[str | None] = None
    share_option: ClassVar[str | None] = None
    separation: ClassVar[Separation | None] = None
    """How prefill and decode run on separate GPUs; None: they do not."""
    image: ClassVar[Image | None] = None

    @abstractmethod
    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """Options that are not set and may make a model fit; the least change first, the greatest last."""

    def launch(self, model: str, precision: Precision, layout: Layout, length: int) -> Launch | None:
        """How it is started as a server that takes sequences of so many tokens; None: it is none."""
        return None
