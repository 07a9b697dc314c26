"""What llama.cpp sets up at start: the slots' cache, and the plans of everything that is held beside it."""

import re

from calc.errors import ConfigError, Message
from calc.formats import CacheFormat, Precision
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Cache, DeviceBuffers
from calc.serving.engines.llamacpp.buffers import Devices, Plans, plans_of
from calc.serving.engines.llamacpp.context import ContextSizes
from calc.serving.engines.llamacpp.devices import kernels_of
from calc.serving.engines.llamacpp.options import MOST_SLOTS, CacheType, LlamaCppOptions
from calc.serving.engines.llamacpp.placement import HOST, Placement

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

    def context(self, batch: int, length: int) -> ContextSizes:
        """The context that is set up for so many sequences of so many tokens."""
        options, sequences, (type_k, type_v) = self.options, slots(self.options, batch), self.types
        context = ContextSizes.of(
            options.ctx_size or sequences * length,
            batch=options.batch_size,
            ubatch=options.ubatch_size,
            sequences=sequences,
            unified=options.kv_unified,
            outputs=outputs(options, sequences),
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

    def most_bytes(self, stage: int, batch: int, length: int) -> int | None:
        most = self.plans.most_compute(self.context(batch, length))
        return None if most is None else self.required_bytes(stage, batch, length) + most

    def buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """What is allocated on each GPU and on the host."""
        context, plans = self.context(batch, length), self.plans
        held, computed = plans.cache(context), plans.compute(context)
        places = [(f"gpu{i}", i, computed[i]) for i in range(plans.machine.count)] + [("host", HOST, computed[-1])]
        return [
            DeviceBuffers(device=name, model=plans.weights[i], context=held[i], compute=buffer.size)
            for name, i, buffer in places
        ]


def set_up(
    architecture: Architecture, precision: Precision, options: LlamaCppOptions, placement: Placement, gpu: GPU | None
) -> SlotCache:
    """A model that is placed on GPUs of a kind; None: there are none."""
    types = cache_types(options, precision.kv)
    capability = kernels_of(capability_of(gpu), types) if options.rpc is None else None
    overridden = options.cpu_moe or options.n_cpu_moe > 0 or options.override_tensor is not None
    machine = Devices(placement.devices if options.device is None else 0, capability)
    plans = plans_of(architecture, precision, placement, machine, overridden=overridden)
    return SlotCache(plans, options, precision.kv)


def placed(options: LlamaCppOptions, layers: int, gpus: int) -> Placement:
    """Where the flags put each layer."""
    experts = layers if options.cpu_moe else options.n_cpu_moe
    split = shares(options, gpus) if options.device is None else []
    count = None if options.n_gpu_layers == "auto" else options.n_gpu_layers
    return Placement.of(layers, count, split, experts, host_pattern(options))


def shares(options: LlamaCppOptions, gpus: int) -> list[float]:
    """What each GPU takes of the layers."""
    if options.tensor_split is None:
        return [1.0] * gpus
    try:
        return [float(share) for share in options.tensor_split.split(",")]
    except ValueError:
        return []


def host_pattern(options: LlamaCppOptions) -> str | None:
    """What --override-tensor keeps on the host."""
    if options.override_tensor is None:
        return None
    pattern, _, device = options.override_tensor.rpartition("=")
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


def cache_types(options: LlamaCppOptions, kv: CacheFormat) -> tuple[CacheType, CacheType]:
    """Storage of keys and of values: as flags say, else as the cache was asked for."""
    return options.cache_type_k or CACHE_TYPES[kv], options.cache_type_v or CACHE_TYPES[kv]


def slots(options: LlamaCppOptions, batch: int) -> int:
    return options.parallel or min(batch, MOST_SLOTS)


def outputs(options: LlamaCppOptions, sequences: int) -> int | None:
    """Rows of logits that are planned for; None: one for every token of a pass."""
    if options.n_outputs_max is not None:
        return options.n_outputs_max or None
    return min(options.batch_size, sequences * (1 + options.guessed))


def capability_of(gpu: GPU | None) -> int:
    """CUDA's compute capability times 100; of other GPUs that of one with the same kernels, Ampere."""
    major, dot, minor = ("" if gpu is None else gpu.capability or "").partition(".")
    return int(major) * 100 + int(minor) * 10 if dot and major.isdigit() and minor.isdigit() else 800
