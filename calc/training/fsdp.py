"""What FSDP2 holds beside the shards (torch 2.13, `distributed/fsdp/_fully_shard`): each layer is a unit, and all that
stands outside of them another, the root, which stays gathered from its first use to the end of the backward pass. Where
the embedding is a unit of its own, it is gathered as a layer is, and the rest of the root for the head and its
backward."""

from collections.abc import Sequence

from calc.training.moments import Run, Tensors, once
from calc.training.sharding import TrainingLayout
from calc.training.states import EMBEDDING, OUTSIDE

GATHERED = "gathered weights"
BUFFER = "buffers of all-gather"


class Sharded:
    """The units of a stage, run by run."""

    def __init__(self, runs: Sequence[Run], layout: TrainingLayout) -> None:
        self.runs, self.layout = runs, layout
        self.layers = [index for index, run in enumerate(runs) if run.first >= 0]
        self.root = next((run.gathered for run in runs if run.first == OUTSIDE), 0)
        self.embedding = next((run.gathered for run in runs if run.first == EMBEDDING), 0)

    @property
    def separate_embedding(self) -> bool:
        """Whether the embedding is a unit of its own."""
        return self.embedding > 0

    def ends(self, index: int) -> bool:
        """Whether the last norm is one of the unit of the head, whose backward ends with it."""
        return self.separate_embedding and index == self.layers[-1] + 1

    def before(self, index: int, layers: int) -> int:
        """Bytes of the unit in front of a layer that has so many of its run before it; the root is in front of all, or
        the embedding."""
        if layers:
            return self.runs[index].gathered
        return self.runs[index - 1].gathered if index - 1 in self.layers else self.embedding

    def behind(self, index: int, layers: int) -> Run | None:
        """The run of the unit behind a layer that has so many of its run before it."""
        if layers < self.runs[index].layers - 1:
            return self.runs[index]
        return self.runs[index + 1] if index + 1 in self.layers or self.ends(index + 1) else None

    def unsharded(self, index: int, layers: int) -> int:
        """Bytes of weights that stay gathered between the passes: the root's, and without resharding those of all
        layers up to this one."""
        root = self.root if not self.separate_embedding or index > self.layers[-1] else 0
        if self.layout.reshard_after_forward:
            return root
        earlier = sum(self.runs[i].layers * self.runs[i].gathered for i in self.layers if i < index)
        return root + earlier + (layers * self.runs[index].gathered if index in self.layers else 0)

    def entering(self, index: int, layers: int) -> list[Tensors]:
        """As a layer is gathered: its weights, the buffer that they come in, and still that of the unit before."""
        run = self.runs[index]
        buffers = (self.before(index, layers) or self.root) + run.gathered
        return [weights(self.unsharded(index, layers) + run.gathered), buffer(buffers)]

    def computing(self, index: int) -> list[Tensors]:
        """While it computes: its weights, and still the buffer that they came in."""
        run = self.runs[index]
        return [weights(self.unsharded(index, run.layers - 1) + run.gathered), buffer(run.gathered)]

    def entering_head(self) -> list[Tensors]:
        """The same of norm and head, where they are gathered by themselves."""
        buffers = self.runs[self.layers[-1]].gathered + self.root
        return [weights(self.unsharded(len(self.runs), 0)), buffer(buffers)]

    def after_layers(self) -> list[Tensors]:
        """At the head."""
        last = self.root if self.separate_embedding else self.runs[self.layers[-1]].gathered
        return [weights(self.unsharded(len(self.runs), 0)), buffer(last)]

    def going_back(self, index: int, layers: int) -> list[Tensors]:
        """While a layer goes back: its weights, the buffer in which those of the layer before arrive, and the gradients
        of the layer behind that are being reduced."""
        run = self.runs[index]
        inner = index in self.layers
        behind = self.behind(index, layers) if inner else self.runs[self.layers[0]] if not index else None
        early = self.before(index, layers) if inner else self.runs[self.layers[-1]].gathered if index else 0
        own = run.gathered if inner or (self.separate_embedding and not index) else 0
        return [
            weights(self.unsharded(index, layers) + own),
            buffer(early if self.layout.reshard_after_forward else 0),
            reducing(0 if behind is None else behind.reduced),
        ]

    def reducing(self, index: int, layers: int) -> list[Tensors]:
        """As the gradients of a unit are copied into the buffer that is reduced: its weights are gone. The last of them
        is held until its shard is there (`foreach_reduce`), which shows where there is but one table."""
        run = self.runs[index]
        if index in self.layers:
            early = self.before(index, layers) if self.layout.reshard_after_forward else 0
            made = Tensors(once(run.unreduced), "gradients of a layer", "gradients")
            return [weights(self.unsharded(index, layers)), buffer(early), made, reducing(run.reduced)]
        if not self.separate_embedding:
            return [outside(run.profile.gradients[0]), reducing(run.reduced)]
        arriving = buffer(self.runs[self.layers[-1]].gathered if index else 0)
        of_head = self.runs[-1].profile.gradients[0] if index else 0  # which are counted with what went back already
        return [arriving, outside(run.unreduced - of_head), reducing(run.reduced + run.shards)]


def weights(nbytes: int) -> Tensors:
    return Tensors(once(nbytes), GATHERED, "weights")


def buffer(nbytes: int) -> Tensors:
    return Tensors(once(nbytes), BUFFER, "weights")


def outside(nbytes: int) -> Tensors:
    return Tensors(once(nbytes), "gradients outside the layers", "gradients")


def reducing(nbytes: int) -> Tensors:
    return Tensors(once(nbytes), "buffers of reduce-scatter", "gradients")
