"""Differences between serving engines, in five parts. Nothing outside this folder asks which engine it is."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping

from calc.errors import Message
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range
from calc.model.derivation import NUMBERS, Numbers
from calc.model.named import Peak
from calc.serving.engines.cache import CachePlanner, Setup
from calc.serving.engines.launch import Launcher
from calc.serving.engines.loading import Loader
from calc.serving.engines.rules import Rules
from calc.serving.engines.sizes import LaidOut, Limits, StagePeak
from calc.serving.engines.started import StartedEngine
from calc.serving.workload import Workload


class WorkingMemory(StartedEngine):
    """Peaks, each as the tensors that are alive, and the overhead."""

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        """Working memory of the largest forward pass of a stage; formulas, where `write` makes symbols of sizes. Of
        engines whose passes do not depend on the workload; others give `stage_peaks`."""
        raise NotImplementedError(self.name)

    def stage_peaks(self, setup: Setup, stage: int, work: Workload, write: Numbers = NUMBERS) -> list[StagePeak]:
        """Memory of a stage wherever it may be highest: by default at any peak of working memory, for the cache is
        there all the time."""
        cached = 0 if setup.cache is None else setup.cache.required_bytes(stage, work.batch, work.context)
        return [StagePeak(cached, peak) for peak in self.peaks(setup.laid_out, stage, setup.limits, write)]

    @abstractmethod
    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        """The usual range of each thing that no formula closes: GiB, and percent for fragmentation."""

    def overhead_on(self, gpu: GPU, laid_out: LaidOut, limits: Limits) -> Mapping[OverheadItem, Range]:
        """The ranges on one kind of GPU under these limits, where they are known more closely than the usual ones."""
        return self.overhead(laid_out.layout.gpus)

    def overhead_notes(self, gpu: GPU, laid_out: LaidOut, limits: Limits) -> Iterator[Message]:
        """Sources of the overhead's ranges, where there is a formula or a reason."""
        yield from ()


class Engine(Rules, Loader, CachePlanner, WorkingMemory, Launcher):
    """One serving engine, started with its options. Its parts read the same flags, and some of them each other."""
