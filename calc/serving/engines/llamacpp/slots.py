"""What llama.cpp sets up at start on every device and on the host: weights, the slots' cache, the peak of a pass."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from calc.formats import CacheFormat, Precision
from calc.formats.gguf_file import BLOCKS, ModelFile, model_file
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.cache import Cache
from calc.serving.engines.llamacpp.context import ContextSizes, block_cache
from calc.serving.engines.llamacpp.graph import forward, has_flash_kernel, prediction
from calc.serving.engines.llamacpp.micro_batch import CUDA_ALIGNMENT, HOST_ALIGNMENT, TAKEN_OVER, Buffer
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.loading import up_to
from calc.serving.engines.sizes import DeviceBuffers

COPIES = 4
"""Copies of every input of a device, where several work on successive batches (GGML_SCHED_MAX_COPIES)."""
ROW = 512
"""Elements to which CUDA pads the last row of a quantized tensor."""


@dataclass(frozen=True)
class PlacedModel:
    """A model's file on a machine, or its layers for multi-token prediction: a context of their own on its weights."""

    file: ModelFile
    placement: Placement
    cuda: bool  # else devices are CPUs of other machines, reached over RPC
    predicting: bool = False

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks of the layers that a pass goes through."""
        model = self.file.architecture
        return tuple(module.block for module in model.prediction) if self.predicting else model.all_blocks

    @property
    def weights(self) -> Mapping[int, int]:
        return Counter() if self.predicting else self.file.once(self, lambda: weight_bytes(self))

    def cache(self, context: ContextSizes) -> Mapping[int, int]:
        return self.file.once(("cache", self, context), lambda: cache_bytes(self, context))

    def compute(self, context: ContextSizes) -> tuple[Buffer, ...]:
        """The buffer of the largest pass on each device, the host's last. Where all weights are on devices, their types
        change nothing of what is computed where: a device multiplies with weights of any."""
        model, placed = self.file.architecture, self
        if self.placement.all_on_devices:
            plain = model_file(model, Precision(), predicts=len(self.file.layers) > model.num_layers)
            placed = replace(self, file=plain)
        return placed.file.once(("compute", placed, context), lambda: compute_buffers(placed, context))

    def copied_bytes(self, context: ContextSizes) -> int:
        """Bytes of the largest matrix of experts that a pass copies from the host to the first GPU: its buffer there is
        no smaller. The last layer does not count, where only rows whose logits are wanted may be left."""
        if not (self.cuda and self.placement.devices and context.tokens >= TAKEN_OVER):
            return 0
        name = "ffn_down_exps.weight"
        layers = list(enumerate(self.file.layers[: self.file.architecture.num_layers - 1]))
        sizes = (w[name].nbytes for i, w in layers if name in w and self.placement.of_weight(name, i) == HOST)
        return max(sizes, default=0)

    def allocated(self, context: ContextSizes) -> list[DeviceBuffers]:
        weights, cache, compute = self.weights, self.cache(context), self.compute(context)
        return [
            DeviceBuffers(
                device="host" if i == HOST else f"gpu{i}", model=weights[i], context=cache[i], compute=compute[i].size
            )
            for i in self.placement.places
        ]

    def stored(self, device: int, kind: str, width: int, nbytes: int) -> int:
        """Bytes that a tensor of weights or cache takes on a device."""
        if device == HOST or not self.cuda:
            return up_to(nbytes, HOST_ALIGNMENT)
        block, size = BLOCKS[kind]
        return up_to(nbytes + (-width % ROW // block * size if block > 1 else 0), CUDA_ALIGNMENT)

    def settled(self, context: ContextSizes, options: LlamaCppOptions) -> ContextSizes:
        """A context without flash attention where a layer's device would not compute it, unless it is asked for or
        values are quantized, which need it."""
        automatic = options.flash_attn == "auto" and BLOCKS[context.type_v][0] == 1
        return replace(context, flash=False) if automatic and self.lacks_flash(context) else context

    def lacks_flash(self, context: ContextSizes) -> bool:
        """Whether a layer attends elsewhere than on its device: for want of a kernel, because the first GPU takes over
        what has its weights on the host, or because the states of the next layer, which the graph reads before it
        attends, lie elsewhere."""
        places, on_cuda = self.placement.layers, self.cuda and self.placement.devices > 0
        scanning = [x for x in self.blocks if any(isinstance(m, Mamba | Mamba2 | ShortConv) for m in x.mixers)]
        scans = sorted(layer for block in scanning for layer in block.runs_in)
        for block in self.blocks:
            lacking = on_cuda and not all(has_flash_kernel(mixer, context) for mixer in block.attentions)
            taken_over = on_cuda and context.sequences >= TAKEN_OVER
            attending = {layer: places[layer] == HOST for layer in block.runs_in} if block.attentions else {}
            if any(taken_over if on_host else lacking for on_host in set(attending.values())):
                return True
            for layer, on_host in attending.items() if scans else ():
                next_scan = next((scan for scan in scans if scan >= layer), None)
                if next_scan is not None and on_host != (places[next_scan] == HOST or not context.offload_cache):
                    return True
        return False


def weight_bytes(model: PlacedModel) -> Mapping[int, int]:
    sizes: Counter[int] = Counter()
    for device, weight in model.placement.weights(model.file):
        sizes[device] += model.stored(device, weight.type, (*weight.ne, 1)[0], weight.nbytes)
    return MappingProxyType(sizes)


def cache_bytes(model: PlacedModel, context: ContextSizes) -> Mapping[int, int]:
    sizes: Counter[int] = Counter()
    for block in model.blocks:
        places = Counter(model.placement.layers[i] if context.offload_cache else HOST for i in block.runs_in)
        for tensor in block_cache(model.file.architecture, block, context):
            for device, count in places.items():
                sizes[device] += count * model.stored(device, tensor.type, tensor.width, tensor.nbytes)
    return MappingProxyType(sizes)


def compute_buffers(model: PlacedModel, context: ContextSizes) -> tuple[Buffer, ...]:
    write, placement = prediction if model.predicting else forward, model.placement
    pipelined = placement.devices > 1 and placement.all_on_devices and context.offload_cache
    buffers = list(write(model.file, placement, context, cuda=model.cuda).buffers(COPIES if pipelined else 1))
    for device in range(2, placement.devices):
        if not buffers[device].size and device in placement.layers:  # the same layers as the one before it
            buffers[device] = buffers[device - 1]
    return tuple(buffers)


class SlotCache(Cache):
    """The cache of all slots, set up at start, and what else is allocated with it."""

    def __init__(
        self, model: PlacedModel, options: LlamaCppOptions, kv: CacheFormat, draft: PlacedModel | None
    ) -> None:
        """`draft` is what guesses tokens in a context of its own: a draft model, or the model's layers for it."""
        self.model, self.options, self.draft = model, options, draft
        self.types = options.cache_types(kv)
        self.known = dict[tuple[int, int], list[tuple[PlacedModel, ContextSizes]]]()

    def contexts(self, batch: int, length: int) -> list[tuple[PlacedModel, ContextSizes]]:
        """As `set_up_for`, once: every figure of a start asks for them."""
        if (batch, length) not in self.known:
            self.known[batch, length] = self.set_up_for(batch, length)
        return self.known[batch, length]

    def set_up_for(self, batch: int, length: int) -> list[tuple[PlacedModel, ContextSizes]]:
        """The model's for so many sequences of so many tokens, and that of what guesses tokens: as many tokens and
        slots, with a row of logits for each slot (common/speculative.cpp: common_base_params_to_speculative)."""
        options, sequences = self.options, self.options.slots(batch)
        size, rows = options.ctx_size or sequences * length, options.outputs(sequences)
        rollback = options.spec_draft_n_max if options.predicts else 0  # need_n_rs_seq
        context = ContextSizes.of(options, size, sequences, rows, self.types, rollback)
        contexts = [(self.model, self.model.settled(context, options))]
        if self.draft is not None:
            types, size = (options.cache_type_k_draft, options.cache_type_v_draft), context.cells * context.streams
            drafting = ContextSizes.of(options, size, sequences, sequences, types)
            contexts.append((self.draft, self.draft.settled(drafting, options)))
        return contexts

    def fixed_bytes(self, batch: int, length: int) -> list[int]:
        """Weights and cache on each GPU and, last, on the host; those of what guesses tokens too."""
        contexts = self.contexts(batch, length)
        return [
            sum(model.weights[i] + model.cache(context)[i] for model, context in contexts)
            for i in self.model.placement.places
        ]

    def bound_bytes(self, batch: int, length: int) -> list[int]:
        """Bytes at least on each GPU and, last, on the host."""
        model, context = self.contexts(batch, length)[0]
        first, *others = self.fixed_bytes(batch, length)
        return [first + model.copied_bytes(context), *others]

    def compute_bytes(self, batch: int, length: int) -> list[int]:
        """Bytes of the buffers of passes on each GPU and, last, on the host; with those of what guesses tokens."""
        computed = (model.compute(context) for model, context in self.contexts(batch, length))
        return [sum(buffer.size for buffer in buffers) for buffers in zip(*computed, strict=True)]

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        return sum(model.cache(context)[stage] for model, context in self.contexts(batch, length))

    least_bytes = required_bytes  # all of it is there from the start on

    def buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """What is allocated for the model on each GPU and on the host."""
        model, context = self.contexts(batch, length)[0]
        return model.allocated(context)

    def draft_buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """What is allocated for what guesses tokens; layers of the model that do are among its weights."""
        return [buffer for model, context in self.contexts(batch, length)[1:] for buffer in model.allocated(context)]


def set_up(
    architecture: Architecture,
    precision: Precision,
    options: LlamaCppOptions,
    gpus: int,
    draft: Architecture | None = None,
) -> SlotCache:
    """A model that is placed on so many GPUs, and the draft model next to it."""
    file = model_file(architecture, precision, predicts=options.predicts)
    model = PlacedModel(file, placed(options, len(file.layers), gpus), cuda=options.rpc is None)
    drafting = replace(model, predicting=True) if options.predicts else None
    if draft is not None and drafting is None:
        split = options.shares(gpus) if options.device is None else []
        where = Placement.of(draft.num_layers, options.n_gpu_layers_draft, split)
        drafting = PlacedModel(model_file(draft, options.draft_precision(precision)), where, model.cuda)
    return SlotCache(model, options, precision.kv, drafting)


def placed(options: LlamaCppOptions, layers: int, gpus: int) -> Placement:
    """Where the flags put each of the layers that are loaded."""
    experts = layers if options.cpu_moe else options.n_cpu_moe
    split = options.shares(gpus) if options.device is None else []
    count = None if options.n_gpu_layers == "auto" else options.n_gpu_layers
    return Placement.of(layers, count, split, experts, options.host_pattern)
