"""What llama.cpp allocates on every device and on the host: weights, cache, and the peak of a micro-batch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from calc.formats import Precision
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.llamacpp.context import ContextSizes, block_cache
from calc.serving.engines.llamacpp.file import BLOCKS, ModelFile, model_file
from calc.serving.engines.llamacpp.forward import forward, prediction
from calc.serving.engines.llamacpp.micro_batch import TAKEN_OVER
from calc.serving.engines.llamacpp.mixing import has_flash_kernel
from calc.serving.engines.llamacpp.options import CacheType, LlamaCppOptions
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.llamacpp.tape import Buffer, buffers
from calc.serving.engines.loading import up_to

COPIES = 4
"""Of every input of a device, where several work on successive batches (GGML_SCHED_MAX_COPIES)."""
CUDA_ALIGNMENT, HOST_ALIGNMENT, ROW = 128, 32, 512
"""Bytes to which tensors are aligned, and elements to which CUDA pads the last row of a quantized one."""


@dataclass(frozen=True)
class Devices:
    """Devices of one kind beside a host."""

    count: int
    capability: int | None = 800
    """CUDA's, times 100; None: CPUs of other machines, reached over RPC."""

    def stored(self, device: int, kind: str, width: int, nbytes: int) -> int:
        """Bytes that a tensor of weights or cache takes on a device."""
        if device == HOST or self.capability is None:
            return up_to(nbytes, HOST_ALIGNMENT)
        block, size = BLOCKS[kind]
        return up_to(nbytes + (-width % ROW // block * size if block > 1 else 0), CUDA_ALIGNMENT)


@dataclass(frozen=True)
class PlacedModel:
    """A model's file on a machine, or its layers for multi-token prediction: a context of their own on its weights."""

    file: ModelFile
    placement: Placement
    machine: Devices
    overridden: bool = False
    """Whether some weights stay on the host though their layer does not."""
    predicting: bool = False

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Those of the layers that a pass goes through."""
        model = self.file.architecture
        return tuple(module.block for module in model.prediction) if self.predicting else model.all_blocks

    @property
    def weights(self) -> Mapping[int, int]:
        """Bytes of weights on each device."""
        return Counter() if self.predicting else weight_bytes(self)

    def cache(self, context: ContextSizes) -> Mapping[int, int]:
        """Bytes of the cache on each device."""
        return cache_bytes(self, context)

    def compute(self, context: ContextSizes) -> tuple[Buffer, ...]:
        """The buffer of the largest pass on each device, the host's last. Where all weights are on devices, their types
        change nothing of what is computed where: a device multiplies with weights of any."""
        if not self.placement.all_on_devices or self.overridden:
            return compute_buffers(self, context)
        model = self.file.architecture
        predicts = len(self.file.layers) > model.num_layers
        return compute_buffers(replace(self, file=model_file(model, Precision(), predicts=predicts)), context)

    def context(
        self,
        options: LlamaCppOptions,
        size: int,
        sequences: int,
        outputs: int | None,
        types: tuple[CacheType, CacheType],
        rollback: int = 0,
    ) -> ContextSizes:
        """A context of so many tokens under some flags; flash attention is off where a layer's device would not compute
        it, unless it is asked for or values are quantized, which need it."""
        context = ContextSizes.of(options, size, sequences, outputs, types, rollback)
        if options.flash_attn == "auto" and BLOCKS[types[1]][0] == 1 and self.lacks_flash(context):
            return replace(context, flash=False)
        return context

    def lacks_flash(self, context: ContextSizes) -> bool:
        """Whether a layer attends elsewhere than on its device: for want of a kernel, because the first GPU takes over
        what has its weights on the host, or because the states of the next layer, which the graph reads before it
        attends, lie elsewhere."""
        mixers = [(layer, mixer) for block in self.blocks for layer in block.runs_in for mixer in block.mixers]
        places = self.placement.layers
        scans = sorted(layer for layer, mixer in mixers if isinstance(mixer, Mamba | Mamba2 | ShortConv))
        on_cuda = self.machine.capability is not None and self.machine.count > 0
        for layer, mixer in mixers:
            if not isinstance(mixer, GQA | LatentAttention):
                continue
            on_host = places[layer] == HOST
            next_scan = next((scan for scan in scans if scan >= layer), None)
            if on_cuda and (context.sequences >= TAKEN_OVER if on_host else not has_flash_kernel(mixer, context)):
                return True
            if next_scan is not None and on_host != (places[next_scan] == HOST or not context.offload_cache):
                return True
        return False


@lru_cache(maxsize=512)
def weight_bytes(model: PlacedModel) -> Mapping[int, int]:
    sizes: Counter[int] = Counter()
    for device, weight in model.placement.weights(model.file):
        sizes[device] += model.machine.stored(device, weight.type, (*weight.ne, 1)[0], weight.nbytes)
    return MappingProxyType(sizes)


@lru_cache(maxsize=512)
def cache_bytes(model: PlacedModel, context: ContextSizes) -> Mapping[int, int]:
    sizes: Counter[int] = Counter()
    for block in model.blocks:
        places = Counter(model.placement.layers[i] if context.offload_cache else HOST for i in block.runs_in)
        for tensor in block_cache(model.file.architecture, block, context):
            for device, count in places.items():
                sizes[device] += count * model.machine.stored(device, tensor.type, tensor.width, tensor.nbytes)
    return MappingProxyType(sizes)


@lru_cache(maxsize=2048)
def compute_buffers(model: PlacedModel, context: ContextSizes) -> tuple[Buffer, ...]:
    machine = model.machine
    write = prediction if model.predicting else forward
    b = write(model.file, model.placement, context, machine.capability)
    pipelined = machine.count > 1 and model.placement.all_on_devices and not model.overridden and context.offload_cache
    return buffers(b.steps, list(b.inputs.values()), machine.count, COPIES if pipelined else 1)
