"""llama.cpp: weights of a GGUF file and a cache on GPUs and the host, layer by layer, and the buffers of one pass.

Read in llama.cpp 0c1e57098 (libllama 0.5.0, ggml 0.25.3), whose dry run (`--fit`) it is held against.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from calc.errors import ConfigError, Message
from calc.formats import MIXES, CacheFormat, Precision, WeightFormat
from calc.formats.gguf_architectures import ARCHITECTURES
from calc.formats.stored import Piece, stored_gguf
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range
from calc.hardware.parallel import Layout
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.derivation import NUMBERS, Numbers, Symbols
from calc.model.named import Peak
from calc.serving.engines.engine import Budget, Cache, DeviceBuffers, Engine, LaidOut, Limits, LoadedWeights, Moment
from calc.serving.engines.llamacpp.buffers import Machine, Plans, plans_of
from calc.serving.engines.llamacpp.context import Context
from calc.serving.engines.llamacpp.devices import kernels_of
from calc.serving.engines.llamacpp.forward import unknown_mixers
from calc.serving.engines.llamacpp.options import MOST_SLOTS, CacheType, LlamaCppOptions
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.llamacpp.planner import Buffer
from calc.serving.workload import Workload

CUDA_CONTEXT = Range(low=0.29, high=0.73)
"""GiB that llama.cpp's memory breakdown calls unaccounted: the CUDA context and cuBLAS's workspace, 300 to 750 MiB."""
FLOATS = ("fp32", "fp16", "bf16", "mxfp4")
CACHE_TYPES: dict[CacheFormat, CacheType] = {
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "f16",
    "q8_0": "q8_0",
    "q4_0": "q4_0",
}
"""Keys and values of 16 bits are f16 unless a flag says otherwise."""


class SlotCache(Cache):
    """The cache of all slots, set up at start, and the plans of what else is held."""

    def __init__(self, plans: Plans, options: LlamaCppOptions, kv: CacheFormat) -> None:
        self.plans, self.options = plans, options
        self.types = cache_types(options, kv)

    def context(self, batch: int, length: int) -> Context:
        """The context that is set up for so many sequences of so many tokens."""
        options, sequences, (type_k, type_v) = self.options, slots(self.options, batch), self.types
        context = Context.of(
            options.ctx_size or sequences * length,
            batch=options.batch_size,
            ubatch=options.ubatch_size,
            sequences=sequences,
            unified=options.kv_unified,
            outputs=sequences if options.n_outputs_max is None else options.n_outputs_max or None,
            type_k=type_k,
            type_v=type_v,
            flash=options.flash_attn != "off",
            offload_cache=options.kv_offload,
            whole_windows=options.swa_full,
        )
        return self.plans.resolved(context) if options.flash_attn == "auto" else context

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        return self.plans.cache(self.context(batch, length))[stage]

    def least_bytes(self, stage: int, batch: int, length: int) -> int:
        return self.required_bytes(stage, batch, length)


class LlamaCpp(Engine):
    name: ClassVar[str] = "llamacpp"
    title: ClassVar[str] = "llama.cpp"
    versions: ClassVar[str] = "0c1e57098"
    step_option: ClassVar[str] = "ubatch_size"
    sequences_option: ClassVar[str] = "parallel"
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("Q8_0", "Q4_K_M")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("q8_0", "q4_0")
    loads_vision: ClassVar[bool] = False
    loads_draft: ClassVar[bool] = False

    options: LlamaCppOptions
    options_type: ClassVar[type[LlamaCppOptions]] = LlamaCppOptions

    def refusal(self, architecture: Architecture, precision: Precision) -> Message | None:
        kind = architecture.model_type
        if kind not in ARCHITECTURES:
            return Message("llama.cpp {version} does not read {kind}.", version=self.versions, kind=kind)
        if (mixer := unknown_mixers(architecture)) is not None:
            return Message("What llama.cpp plans for {mixer} in {kind} is not known here.", mixer=mixer, kind=kind)
        if precision.weights not in MIXES and precision.weights not in FLOATS:
            return Message(
                "GGUF files do not store weights in {format}; Q4_K_M and Q8_0 are usual.", format=precision.weights
            )
        if precision.kv not in CACHE_TYPES:
            return Message("llama.cpp keeps no cache in {kv}; q8_0 and q4_0 are usual.", kv=precision.kv)
        return None

    def unaccepted(self, architecture: Architecture, precision: Precision, layout: Layout) -> Message | None:
        if layout.gpus > layout.pp:
            return Message("llama.cpp gives each GPU layers of its own: --pp instead of --tp and --dp.")
        return None

    def check(self, architecture: Architecture, precision: Precision, layout: Layout) -> None:
        super().check(architecture, precision, layout)
        shares = self.shares(layout.pp)
        if len(shares) != layout.pp or not any(shares) or min(shares) < 0:
            raise ConfigError(
                Message(
                    "--tensor-split {split} does not say what each of {n} GPUs takes.",
                    split=self.options.tensor_split,
                    n=layout.pp,
                ),
                "tensor_split",
            )
        _, values = cache_types(self.options, precision.kv)
        if self.options.flash_attn == "off" and values not in ("f32", "f16", "bf16"):
            raise ConfigError(Message("Quantised values need flash attention."), "cache_type_v", ["f16"])

    def shares(self, gpus: int) -> list[float]:
        """What each GPU takes of the layers."""
        if self.options.tensor_split is None:
            return [1.0] * gpus
        try:
            return [float(share) for share in self.options.tensor_split.split(",")]
        except ValueError:
            return []

    def placement(self, layers: int, gpus: int) -> Placement:
        options = self.options
        experts = layers if options.cpu_moe else options.n_cpu_moe
        shares = self.shares(gpus) if options.device is None else []
        return Placement.of(layers, options.n_gpu_layers, shares, experts, self.host_pattern)

    @property
    def host_pattern(self) -> str | None:
        """What --override-tensor keeps on the host."""
        if self.options.override_tensor is None:
            return None
        pattern, _, device = self.options.override_tensor.rpartition("=")
        try:
            re.compile(pattern)
        except re.error:
            pattern = ""
        if device != "CPU" or not pattern:
            raise ConfigError(
                Message("--override-tensor takes PATTERN=CPU, such as {example}.", example=r"\.ffn_.*_exps\.=CPU"),
                "override_tensor",
            )
        return pattern

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """The layers of each GPU; layers on the host stand in none, and the output follows the last."""
        placement = self.placement(layers, pp)
        for device in range(pp):
            own = [layer for layer in range(layers) if placement.layers[layer] == device]
            if own:
                yield range(own[0], own[-1] + 1)
            else:
                yield range(layers, layers) if placement.output == device else range(0)

    def vocabulary(self, rows: int, tp: int) -> int:
        return rows

    def with_draft(self, architecture: Architecture) -> Architecture:
        return architecture

    def stored(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        """What GPUs hold of the file: neither tables of tokens nor what stays on the host; a tied head is a copy."""
        placement = self.placement(architecture.num_layers, 1)
        return list(on_devices(stored_gguf(architecture, precision), placement, tied=architecture.tied))

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        """As they are stored; what the end of a row lacks of 512 elements is in the buffers."""
        return LoadedWeights.sum([(copies_within(rank, piece.tensor, stage), held(piece)) for piece in pieces])

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        sequences = slots(self.options, workload.batch)
        step = min(self.options.ubatch_size, self.options.batch_size)
        return Limits(step_tokens=step, sequences=sequences, share=None, in_flight_tokens=step)

    def refused(self, workload: Workload, limits: Limits) -> Message | None:
        """More sequences than slots, or longer ones."""
        if workload.batch > limits.sequences:
            return Message("llama.cpp runs {n} slots, fewer than sequences.", n=limits.sequences)
        if self.options.ctx_size is None:
            return None
        own = self.options.kv_unified or limits.sequences
        needed = workload.context * (workload.batch if own is True else own)
        if needed > -(-self.options.ctx_size // 256) * 256:
            return Message(
                "--ctx-size {size:,} holds {most:,} tokens a sequence.",
                size=self.options.ctx_size,
                most=self.options.ctx_size // (workload.batch if own is True else own),
            )
        return None

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> SlotCache:
        gpus = laid_out.layout.pp if self.options.device is None else 0
        types = cache_types(self.options, laid_out.precision.kv)
        capability = kernels_of(capability_of(gpu), types) if self.options.rpc is None else None
        overridden = self.options.cpu_moe or self.options.n_cpu_moe > 0 or self.options.override_tensor is not None
        placement = self.placement(laid_out.whole.num_layers, laid_out.layout.pp)
        machine = Machine(gpus, capability)
        plans = plans_of(laid_out.whole, laid_out.precision, placement, machine, overridden=overridden)
        return SlotCache(plans, self.options, laid_out.precision.kv)

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        raise NotImplementedError("llama.cpp's buffers hang on the context")

    def moments(
        self,
        laid_out: LaidOut,
        stage: int,
        cache: Cache | None,
        limits: Limits,
        workload: Workload,
        write: Numbers = NUMBERS,
    ) -> list[Moment]:
        """All buffers are there from the start on."""
        assert isinstance(cache, SlotCache)
        context = cache.context(workload.batch, workload.context)
        if stage >= cache.plans.machine.count:
            return [Moment(0, Peak(WHAT, {}))]
        buffer = cache.plans.compute(context)[stage]
        return [Moment(cache.plans.cache(context)[stage], largest_pass(buffer, write))]

    def buffers(self, laid_out: LaidOut, cache: Cache | None, workload: Workload) -> list[DeviceBuffers]:
        assert isinstance(cache, SlotCache)
        context, plans = cache.context(workload.batch, workload.context), cache.plans
        held, computed = plans.cache(context), plans.compute(context)
        places = [(f"gpu{i}", i, computed[i]) for i in range(plans.machine.count)] + [("host", HOST, computed[-1])]
        return [
            DeviceBuffers(device=name, model=plans.weights[i], context=held[i], compute=buffer.size)
            for name, i, buffer in places
        ]

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        return {"cuda_context": CUDA_CONTEXT}

    def budget(
        self,
        total: int,
        limits: Limits,
        loaded: int,
        working: int,
        overhead: Mapping[OverheadItem, int],
        stated: int | None,
    ) -> Budget:
        raise NotImplementedError("llama.cpp takes what it is told to")

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """A smaller pass."""
        for size in (256, 128):
            if size < limits.step_tokens:
                yield {"ubatch_size": size}


def cache_types(options: LlamaCppOptions, kv: CacheFormat) -> tuple[CacheType, CacheType]:
    """Storage of keys and of values: as flags say, else as the cache was asked for."""
    return options.cache_type_k or CACHE_TYPES[kv], options.cache_type_v or CACHE_TYPES[kv]


def slots(options: LlamaCppOptions, batch: int) -> int:
    return options.parallel or min(batch, MOST_SLOTS)


def capability_of(gpu: GPU) -> int:
    """CUDA's compute capability times 100; of other GPUs that of one with the same kernels, Ampere."""
    major, dot, minor = (gpu.capability or "").partition(".")
    return int(major) * 100 + int(minor) * 10 if dot and major.isdigit() and minor.isdigit() else 800


def held(piece: Piece) -> LoadedWeights:
    """One occurrence of a tensor."""
    scales = piece.scales * piece.a_layer
    return LoadedWeights(weights=piece.nbytes * piece.a_layer - scales, scales=scales)


def on_devices(pieces: Sequence[Piece], placement: Placement, *, tied: bool) -> Iterator[Piece]:
    """The part of each piece that a device holds."""
    for piece in pieces:
        tensor = piece.tensor
        if tensor.apart is not None:
            continue
        if tensor.name == "token_embd.weight" and tied and placement.output != HOST:
            yield Piece(replace(tensor, component="lm_head"), piece.form)
        elif tensor.component == "embedding" or (not tensor.layers and placement.output == HOST):
            continue
        elif not tensor.layers:
            yield piece
        else:
            name = tensor.name.removeprefix("blk.{layer}.")
            layers = tuple(layer for layer in tensor.layers if placement.of_weight(name, layer) != HOST)
            if layers:
                yield Piece(replace(tensor, layers=layers), piece.form)


def largest_pass(buffer: Buffer, write: Numbers) -> Peak:
    """The tensors that stand in the buffer of a pass when it is fullest, and the gaps between them."""
    sizes = {name: size for name, size in buffer.peak.items() if size}
    left = buffer.size - sum(sizes.values())
    if left:
        sizes["gaps, padding and 16-bit copies of a quantised cache"] = left
    if isinstance(write, Symbols):
        return Peak(WHAT, {name: write.named(name.replace(" ", "_"), size, "bytes") for name, size in sizes.items()})
    return Peak(WHAT, sizes)


WHAT = Message("the largest pass")
