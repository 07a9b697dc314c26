"""What llama.cpp allocates: on every device and on the host, for weights, cache and the largest pass."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from types import MappingProxyType

from calc.formats import Precision
from calc.model.block import Block
from calc.serving.engines.llamacpp.context import PADDING, ContextSizes, cache_tensors, widest_value
from calc.serving.engines.llamacpp.devices import CUDA_ALIGNMENT, HOST_ALIGNMENT, cuda, host, remote, stored_bytes
from calc.serving.engines.llamacpp.file import ModelFile, model_file
from calc.serving.engines.llamacpp.forward import forward, prediction, representative
from calc.serving.engines.llamacpp.graph import Graph
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.llamacpp.planner import Buffer, BufferPlan, PlannedDevice, assign, plan
from calc.serving.engines.loading import up_to

COPIES = 4
"""Of every input of a device, where several work on successive batches (GGML_SCHED_MAX_COPIES)."""


@dataclass(frozen=True)
class Devices:
    """Devices of one kind beside a host."""

    count: int
    capability: int | None = 800
    """CUDA's, times 100; None: CPUs of other machines, reached over RPC."""

    def devices(self) -> list[PlannedDevice]:
        capability = self.capability
        if capability is None:
            found = [remote() for _ in range(self.count)]
        else:
            found = [cuda(index, self.count, capability) for index in range(self.count)]
        return [*found, host()]

    def stored(self, device: int, kind: str, width: int, nbytes: int) -> int:
        """Bytes that a tensor of weights or cache takes on a device."""
        if device == HOST or self.capability is None:
            return up_to(nbytes, HOST_ALIGNMENT)
        return up_to(stored_bytes(kind, width, nbytes), CUDA_ALIGNMENT)


@dataclass(frozen=True)
class PlacedModel:
    """A model's file on a machine."""

    file: ModelFile
    placement: Placement
    machine: Devices
    overridden: bool = False
    """Whether some weights stay on the host though their layer does not."""

    @cached_property
    def layers(self) -> list[int]:
        """Layers that stand for all."""
        return representative(self.file, self.placement)

    @cached_property
    def computed_alike(self) -> "PlacedModel":
        """One whose passes take as much: where all weights are on devices, their types change nothing of what is
        computed where, for a device multiplies with weights of any."""
        if not self.placement.all_on_devices or self.overridden:
            return self
        architecture = self.file.architecture
        predicts = len(self.file.layers) > architecture.num_layers
        return replace(self, file=model_file(architecture, Precision(), predicts=predicts))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Those of the layers that a pass goes through."""
        return self.file.architecture.all_blocks

    @cached_property
    def widest_value(self) -> int:
        return widest_value(self.file.architecture)

    def graph(self, context: ContextSizes) -> Graph:
        """The operations of the largest pass."""
        return forward(self.file, self.placement, context, self.layers)

    def unlike_layers(self, context: ContextSizes) -> Graph:
        """The operations of a pass through each of its unlike layers once."""
        return forward(self.file, self.placement, context, representative(self.file, self.placement, repeats=1))

    @property
    def weights(self) -> Mapping[int, int]:
        """Bytes of weights on each device."""
        return weight_bytes(self)

    def cache(self, context: ContextSizes) -> Counter[int]:
        """Bytes of the cache on each device."""
        sizes: Counter[int] = Counter()
        model = self.file.architecture
        for block in self.blocks:
            tensors = [t for m in block.mixers for t in cache_tensors(model, m, context, self.widest_value)]
            places = Counter(self.placement.layers[i] if context.offload_cache else HOST for i in block.runs_in)
            for tensor in tensors:
                for device, count in places.items():
                    sizes[device] += count * self.machine.stored(device, tensor.type, tensor.width, tensor.nbytes)
        return sizes

    def windows(self, context: ContextSizes) -> int:
        """Cells that do not grow with the context: of each window that is shorter, together."""
        model = self.file.architecture
        cells = {context.cells_of(mixer, model) for block in self.blocks for mixer in block.mixers}
        return sum(cells - {context.cells})

    def copies(self, context: ContextSizes) -> int:
        """Of every input: several where devices work one after the other on successive batches."""
        several = self.machine.count > 1
        return (
            COPIES if several and self.placement.all_on_devices and context.offload_cache and not self.overridden else 1
        )


class PredictionLayers(PlacedModel):
    """The layers for multi-token prediction: a context of their own on the model's weights."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(module.block for module in self.file.architecture.prediction)

    def graph(self, context: ContextSizes) -> Graph:
        return prediction(self.file, self.placement, context)

    def unlike_layers(self, context: ContextSizes) -> Graph:
        return self.graph(context)

    @property
    def weights(self) -> Mapping[int, int]:
        return Counter()


@lru_cache(maxsize=512)
def weight_bytes(model: PlacedModel) -> Mapping[int, int]:
    """Bytes of weights on each device."""
    sizes: Counter[int] = Counter()
    for device, weight in model.placement.weights(model.file):
        sizes[device] += model.machine.stored(device, weight.type, (*weight.ne, 1)[0], weight.nbytes)
    return MappingProxyType(sizes)


@lru_cache(maxsize=512)
def pass_plan(model: PlacedModel, context: ContextSizes) -> BufferPlan:
    """The buffers of the largest pass; reports of one model share most of their contexts."""
    return plan(model.graph(context), model.machine.devices(), model.copies(context))


@lru_cache(maxsize=512)
def attends_in_place(model: PlacedModel, context: ContextSizes) -> bool:
    """Whether each layer's attention is computed where the layer is, which the operations around it decide."""
    graph, devices = model.unlike_layers(context), model.machine.devices()
    assign(graph, devices)
    return all(node.backend == node.layer for node in graph.nodes if node.op == "flash_attn_ext")


Planned = dict[ContextSizes, list[tuple[int, BufferPlan]]]
"""Plans by the context without its cells, of each such context by the number of cells."""


class Plans:
    """All buffers of a model that is placed on a machine, by context."""

    def __init__(self, model: PlacedModel, planned: Planned, alone: "Plans | None" = None) -> None:
        """`planned` is what is known already of models that compute alike; `alone` are the plans of one GPU that holds
        all layers, where several do: each computes what it would."""
        self.model, self.planned, self.alone = model, planned, alone
        self.last_cache: tuple[ContextSizes, Counter[int]] | None = None

    def cache(self, context: ContextSizes) -> Counter[int]:
        """Bytes of the cache on each device; those of the last context are remembered."""
        if self.last_cache is None or self.last_cache[0] != context:
            self.last_cache = context, self.model.cache(context)
        return self.last_cache[1]

    def compute(self, context: ContextSizes) -> Sequence[Buffer]:
        """The buffer of the largest pass on each device, the host's last."""
        kind = replace(context, cells=self.model.windows(context))
        known = self.planned.setdefault(kind, [])
        at = bisect_left(known, context.cells, key=itemgetter(0))
        if at < len(known) and known[at][0] == context.cells:
            return known[at][1].buffers
        if known and at == len(known):  # a search for the longest context goes on from here
            beyond = replace(context, cells=1 << context.cells.bit_length())
            if self.model.windows(beyond) == kind.cells:
                known.append((beyond.cells, pass_plan(self.model.computed_alike, beyond)))
        if 0 < at < len(known) and known[at - 1][1].decisions == known[at][1].decisions:
            return between(*known[at - 1], *known[at], context.cells)
        made = pass_plan(self.model.computed_alike, context)
        known.insert(at, (context.cells, made))
        return made.buffers

    def most_compute(self, context: ContextSizes) -> int | None:
        """What no device's buffer exceeds where several compute the layers that one could: beside what that one holds,
        copies of what comes from the host and from the device before, which are tensors that it held together."""
        if self.alone is None or self.model.copies(context) != COPIES:
            return None
        device, host = self.alone.compute(context)
        return device.size + COPIES * (device.size + host.size)

    def resolved(self, context: ContextSizes) -> ContextSizes:
        """With flash attention off where a layer's device does not compute it (`--flash-attn auto`), which does not
        hang on how many cells there are."""
        if self.alone is not None:
            return self.alone.resolved(context)
        model = self.model
        sequences = 1 if model.placement.all_on_devices and not model.overridden else context.sequences
        probe = replace(
            context, cells=PADDING, tokens=sequences, outputs=sequences, sequences=sequences, streams=sequences
        )
        return context if attends_in_place(model.computed_alike, probe) else replace(context, flash=False)


class PlanBook:
    """The plans that are made for one question, such as a report. It belongs to whoever asks, and goes with them."""

    def __init__(self) -> None:
        self.plans: dict[PlacedModel, Plans] = {}
        self.planned = defaultdict[PlacedModel, Planned](dict)

    def of(self, model: PlacedModel) -> Plans:
        """The plans of a model on a machine, made once."""
        if model not in self.plans:
            alone = None
            if model.machine.count > 1 and model.placement.all_on_devices and not model.overridden:
                whole = Placement.of(len(model.placement.layers), None, [1.0])
                alone = self.of(replace(model, placement=whole, machine=replace(model.machine, count=1)))
            self.plans[model] = Plans(model, self.planned[model.computed_alike], alone)
        return self.plans[model]


def between(low: int, first: BufferPlan, high: int, last: BufferPlan, cells: int) -> tuple[Buffer, ...]:
    """The buffers for a number of cells between two for which everything lies in the same order: sizes of tensors are
    linear in the cells, so each comparison that came out alike at both ends does so here."""

    def share(one: int, other: int) -> int:
        return one + (other - one) * (cells - low) // (high - low)

    return tuple(
        Buffer(share(one.size, other.size), {name: share(one.peak[name], other.peak[name]) for name in one.peak})
        for one, other in zip(first.buffers, last.buffers, strict=True)
    )
