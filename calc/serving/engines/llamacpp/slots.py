"""Memory that llama.cpp sets up at start on every device and on the host: weights, cache, compute buffers."""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from calc.formats import CacheFormat, Precision
from calc.formats.gguf_file import BLOCKS, ModelFile, model_file
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.serving.engines.cache import Cache
from calc.serving.engines.llamacpp.context import TAKEN_OVER, ContextSizes, cache_tensors
from calc.serving.engines.llamacpp.graph import forward, has_flash_kernel, prediction
from calc.serving.engines.llamacpp.micro_batch import (
    CUDA_ALIGNMENT,
    HOST_ALIGNMENT,
    Buffer,
    MicroBatch,
    Schedule,
    deep,
)
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.placement import EXPERTS, HOST, Placement
from calc.serving.engines.loading import round_up
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

    @cached_property
    def layers_on(self) -> list[tuple[Block, Mapping[int, int]]]:
        """Numbers of each block's layers, by device."""
        places = self.placement.layers
        return [(block, Counter(places[layer] for layer in block.runs_in)) for block in self.blocks]

    @cached_property
    def weights(self) -> Mapping[int, int]:
        """Bytes of weights by device, the host's too."""
        sizes: Counter[int] = Counter()
        for device, weight, count in () if self.predicting else self.placement.weights(self.file):
            sizes[device] += count * self.stored(device, weight.type, (*weight.ne, 1)[0], weight.nbytes)
        return sizes

    @cached_property
    def largest_lent(self) -> int:
        """Bytes of the largest matrix of experts on the host which the first GPU is given in a pass of many tokens; the
        last layer may go on with few."""
        if not self.cuda or not self.placement.devices:
            return 0
        layers = enumerate(self.file.layers[: self.file.architecture.num_layers - 1])
        experts = [(weight, i) for i, layer in layers for name, weight in layer.items() if EXPERTS.match(name)]
        return max((x.nbytes for x, i in experts if self.placement.of_weight(x.name, i) == HOST), default=0)

    @cached_property
    def graph_file(self) -> ModelFile:
        """The file whose graph is that of this one. Where all weights are on devices, their types change nothing of
        what is computed where: a device multiplies with weights of any."""
        file, model = self.file, self.file.architecture
        if not self.placement.all_on_devices:
            return file
        return model_file(model, Precision(), predicts=len(file.layers) > model.num_layers)

    @cached_property
    def computed(self) -> tuple[Mapping[int, int | None], Hashable]:
        """Layers, by number, whose pass stands for that of all, with the times that those from one to the next that has
        some occur; and all that their steps depend on but for the sizes of the context."""

        def shortened() -> tuple[Mapping[int, int | None], Hashable]:
            where, numbers = self.placement, {x: i for i, block in enumerate(self.blocks) for x in block.runs_in}
            on_host, featured = where.on_host(self.graph_file), deep(self.file.architecture)
            kinds = {x: (where.layers[x], numbers[x], x < featured, on_host[x]) for x in sorted(numbers)}
            layers = without_repeats(kinds, lazy=not all(block.mixers for block in self.blocks))
            return layers, (where.output, where.devices, tuple([(kinds[x], times) for x, times in layers.items()]))

        return self.graph_file.once(("computed", self.placement, self.predicting), shortened)

    def stored(self, device: int, kind: str, width: int, nbytes: int) -> int:
        """Bytes that a tensor of weights or cache takes on a device."""
        if device == HOST or not self.cuda:
            return round_up(nbytes, HOST_ALIGNMENT)
        block, size = BLOCKS[kind]
        return round_up(nbytes + (-width % ROW // block * size if block > 1 else 0), CUDA_ALIGNMENT)

    def with_context(self, context: ContextSizes, options: LlamaCppOptions) -> "PlacedContext":
        """A context of it, without flash attention where a layer's device would not compute it, unless it is asked for
        or values are quantized, which need it."""
        automatic = options.flash_attn == "auto" and BLOCKS[context.type_v][0] == 1
        lacking = automatic and self.lacks_flash(context)
        return PlacedContext(self, replace(context, flash=False) if lacking else context)

    def lacks_flash(self, context: ContextSizes) -> bool:
        """Whether a layer attends elsewhere than on its device: for want of a kernel, because the first GPU takes over
        what has its weights on the host, or because the states of the next layer, which the graph reads before it
        attends, lie elsewhere."""
        places, on_cuda = self.placement.layers, self.cuda and self.placement.devices > 0
        without_kernel = [x for x in self.blocks if not all(has_flash_kernel(mixer, context) for mixer in x.attentions)]
        if HOST not in places and not self.file.architecture.recurrent and not (on_cuda and without_kernel):
            return False
        states_on_host = None  # those of the next layer that has some
        blocks = {layer: block for block in self.blocks for layer in block.runs_in}
        for layer in sorted(blocks, reverse=True):
            block, on_host = blocks[layer], places[layer] == HOST
            if any(isinstance(mixer, Mamba | Mamba2 | ShortConv) for mixer in block.mixers):
                states_on_host = on_host or not context.offload_cache
            elsewhere = context.sequences >= TAKEN_OVER if on_host else block in without_kernel
            if block.attentions and ((on_cuda and elsewhere) or states_on_host not in (None, on_host)):
                return True
        return False


@dataclass(frozen=True)
class PlacedContext:
    """A placed model with a context."""

    model: PlacedModel
    sizes: ContextSizes

    @cached_property
    def cache(self) -> Mapping[int, int]:
        """Bytes of the cache by device, the host's too."""
        model, sizes, nbytes = self.model, self.sizes, Counter[int]()
        for block, on_devices in model.layers_on:
            places = on_devices if sizes.offload_cache else {HOST: len(block.runs_in)}
            for mixer in block.mixers:
                for tensor in cache_tensors(model.file.architecture, mixer, sizes):
                    size = tensor.nbytes(sizes)
                    for place, count in places.items():
                        nbytes[place] += count * model.stored(place, tensor.type, tensor.width, size)
        return nbytes

    @cached_property
    def passes(self) -> tuple[Buffer, ...]:
        """The buffer of the largest pass on each device, the host's last."""
        placed, sizes, file, where = self.model, self.sizes, self.model.graph_file, self.model.placement
        copies = COPIES if where.devices > 1 and where.all_on_devices and sizes.offload_cache else 1
        layers, kinds = placed.computed
        steps = kinds, placed.predicting, placed.cuda, copies

        def schedule(shape: ContextSizes) -> Schedule:
            batch = MicroBatch(file, where, shape, cuda=placed.cuda)
            (prediction if placed.predicting else forward)(batch, layers)
            return batch.schedule(copies)

        def buffers() -> tuple[Buffer, ...]:
            shape = sizes.structure
            return file.once(("schedule", steps, shape), lambda: schedule(shape)).buffers(sizes)

        return file.once(("passes", steps, sizes), buffers)

    @property
    def buffers(self) -> list[DeviceBuffers]:
        """Buffers on each GPU and on the host."""
        weights, cache = self.model.weights, self.cache
        return [
            DeviceBuffers(
                device="host" if i == HOST else f"gpu{i}", model=weights[i], context=cache[i], compute=buffer.size
            )
            for i, buffer in zip(self.model.placement.places, self.passes, strict=True)
        ]


class SlotCache(Cache):
    """The cache of all slots, set up at start, and what else is allocated with it."""

    def __init__(
        self, model: PlacedModel, options: LlamaCppOptions, kv: CacheFormat, draft: PlacedModel | None
    ) -> None:
        """`draft` is what guesses tokens in a context of its own: a draft model, or the model's layers for it."""
        self.model, self.options, self.draft = model, options, draft
        self.types = options.cache_types(kv)

    def contexts(self, batch: int, length: int) -> list[PlacedContext]:
        """The model's for so many sequences of so many tokens, and that of what guesses tokens: as many tokens and
        slots, with a row of logits for each slot (common/speculative.cpp: common_base_params_to_speculative)."""

        def made() -> list[PlacedContext]:
            options, sequences = self.options, self.options.slots(batch)
            size, rows = options.ctx_size or sequences * length, options.outputs(sequences)
            rollback = options.spec_draft_n_max if options.predicts else 0  # need_n_rs_seq
            context = ContextSizes.of(options, size, sequences, rows, self.types, rollback)
            contexts = [self.model.with_context(context, options)]
            if self.draft is not None:
                types = options.cache_type_k_draft, options.cache_type_v_draft
                drafting = ContextSizes.of(options, context.cells * context.streams, sequences, sequences, types)
                contexts.append(self.draft.with_context(drafting, options))
            return contexts

        return self.model.file.once((self, batch, length), made)

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        return sum(context.cache[stage] for context in self.contexts(batch, length))

    least_bytes = required_bytes  # all of it is there from the start on

    def buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        return self.contexts(batch, length)[0].buffers

    def draft_buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """Layers of the model that guess tokens are among its weights."""
        return [buffer for context in self.contexts(batch, length)[1:] for buffer in context.buffers]

    def totals(self, batch: int, length: int, *, passes: bool) -> list[int]:
        """Bytes of weights, caches and `passes` on each GPU and, last, on the host; without these at least as many."""
        contexts = self.contexts(batch, length)
        sizes = [sum(x.model.weights[i] + x.cache[i] for x in contexts) for i in self.model.placement.places]
        if not passes:
            sizes[0] += self.model.largest_lent if contexts[0].sizes.tokens >= TAKEN_OVER else 0
            return sizes
        planned = zip(*(context.passes for context in contexts), strict=True)
        return [size + sum(buffer.size for buffer in buffers) for size, buffers in zip(sizes, planned, strict=True)]


def without_repeats(kinds: Mapping[int, Hashable], *, lazy: bool) -> dict[int, int | None]:
    """Layers by number, without most of a period that occurs again and again, and the times that those from one to the
    next that is named occur. Of a period the first is kept, in which devices are given what they read in all; one that
    occurs as often as there are more; and the last, with the layer before it, behind which its inputs are read and its
    run begins: where some layers have no mixer, with the period before it."""
    layers, each, distinct, times, at = list(kinds), list(kinds.values()), list[int](), dict[int, int](), 0
    while at < len(each):
        most, period = 0, 1
        for length in range(1, (len(each) - at) // 4 + 1):
            stop = at
            while stop + length < len(each) and each[stop] == each[stop + length]:
                stop += 1
            more = (stop - at - (length if lazy else 1)) // length - 2
            if more * length > most * period:
                most, period = more, length
        repeated, stop = at + period, at + (2 if most else 1) * period
        distinct += layers[at:stop]
        at = stop + most * period
        if most:
            times |= {layers[repeated]: 1 + most, layers[at]: 1}
    return {layer: times.get(layer) for layer in distinct}


def set_up(
    architecture: Architecture,
    precision: Precision,
    options: LlamaCppOptions,
    gpus: int,
    draft: Architecture | None = None,
) -> SlotCache:
    """A model that is placed on so many GPUs, and the draft model next to it."""
    file = model_file(architecture, precision, predicts=options.predicts)

    def started() -> SlotCache:
        model = PlacedModel(file, placed(options, len(file.layers), gpus), cuda=options.rpc is None)
        drafting = replace(model, predicting=True) if options.predicts else None
        if draft is not None and drafting is None:
            split = options.shares(gpus) if options.device is None else []
            where = Placement.of(draft.num_layers, options.n_gpu_layers_draft, split)
            drafting = PlacedModel(model_file(draft, options.draft_precision(precision)), where, model.cuda)
        return SlotCache(model, options, precision.kv, drafting)

    return file.once(("start", options, gpus, draft), started)


def placed(options: LlamaCppOptions, layers: int, gpus: int) -> Placement:
    """Places of the layers that are loaded, by the flags."""
    experts = layers if options.cpu_moe else options.n_cpu_moe
    split = options.shares(gpus) if options.device is None else []
    count = None if options.n_gpu_layers == "auto" else options.n_gpu_layers
    return Placement.of(layers, count, split, experts, options.host_pattern)
