"""What llama.cpp sets up at start: the slots' cache, and the plans of everything that is held beside it."""

import re
from dataclasses import dataclass

from calc.errors import ConfigError, Message
from calc.formats import CacheFormat, Precision
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.serving.engines.cache import Cache
from calc.serving.engines.device_buffers import DeviceBuffers
from calc.serving.engines.llamacpp.buffers import Devices, PlacedModel, PlanBook, Plans, PredictionLayers
from calc.serving.engines.llamacpp.context import ContextSizes
from calc.serving.engines.llamacpp.devices import kernels_of
from calc.serving.engines.llamacpp.file import model_file
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
FLOATING = frozenset({"f32", "f16", "bf16"})
"""Storage of keys and values that is not quantized."""


@dataclass(frozen=True)
class Draft:
    """The context of what guesses tokens: a draft model's own, or that of the model's layers for it
    (common/speculative.cpp: common_base_params_to_speculative)."""

    plans: Plans
    options: LlamaCppOptions

    def context(self, model: ContextSizes) -> ContextSizes:
        """Of as many tokens and slots as the model's context, with a row of logits for each slot."""
        options = self.options
        types = options.cache_type_k_draft, options.cache_type_v_draft
        size = model.cells * model.streams
        return resolved(self.plans, options, size, model.sequences, model.sequences, types)


class SlotCache(Cache):
    """The cache of all slots, set up at start, and the plans of what else is held."""

    def __init__(self, plans: Plans, options: LlamaCppOptions, kv: CacheFormat, draft: Draft | None = None) -> None:
        self.plans, self.options, self.draft = plans, options, draft
        self.types = cache_types(options, kv)

    def context(self, batch: int, length: int) -> ContextSizes:
        """The context that is set up for so many sequences of so many tokens."""
        options, sequences = self.options, slots(self.options, batch)
        size, rows = options.ctx_size or sequences * length, outputs(options, sequences)
        return resolved(self.plans, options, size, sequences, rows, self.types, rollback=rollback(options))

    def contexts(self, batch: int, length: int) -> list[tuple[Plans, ContextSizes]]:
        """The model's, and that of what guesses tokens, each with its plans."""
        context = self.context(batch, length)
        found = [(self.plans, context)]
        return found if self.draft is None else [*found, (self.draft.plans, self.draft.context(context))]

    def fixed_bytes(self, batch: int, length: int) -> list[int]:
        """Weights and cache on each GPU and, last, on the host; those of what guesses tokens too."""
        contexts = self.contexts(batch, length)
        return [
            sum(plans.model.weights[i] + plans.cache(context)[i] for plans, context in contexts)
            for i in (*range(self.plans.model.machine.count), HOST)
        ]

    def compute_bytes(self, batch: int, length: int) -> list[int]:
        """The same of the buffers of their passes."""
        computed = (plans.compute(context) for plans, context in self.contexts(batch, length))
        return [sum(buffer.size for buffer in buffers) for buffers in zip(*computed, strict=True)]

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        return sum(plans.cache(context)[stage] for plans, context in self.contexts(batch, length))

    def least_bytes(self, stage: int, batch: int, length: int) -> int:
        return self.required_bytes(stage, batch, length)

    def most_bytes(self, stage: int, batch: int, length: int) -> int | None:
        most = self.required_bytes(stage, batch, length)
        for plans, context in self.contexts(batch, length):
            if (computed := plans.most_compute(context)) is None:
                return None
            most += computed
        return most

    def buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """What is allocated for the model on each GPU and on the host."""
        return allocated(*self.contexts(batch, length)[0])

    def draft_buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """The same for what guesses tokens; layers of the model that do are among its weights."""
        return [buffer for one in self.contexts(batch, length)[1:] for buffer in allocated(*one)]


def allocated(plans: Plans, context: ContextSizes) -> list[DeviceBuffers]:
    """What a context allocates on each GPU and on the host."""
    held, computed = plans.cache(context), plans.compute(context)
    places = [(f"gpu{i}", i, computed[i]) for i in range(plans.model.machine.count)] + [("host", HOST, computed[-1])]
    return [
        DeviceBuffers(device=name, model=plans.model.weights[i], context=held[i], compute=buffer.size)
        for name, i, buffer in places
    ]


def resolved(
    plans: Plans,
    options: LlamaCppOptions,
    size: int,
    sequences: int,
    outputs: int | None,
    types: tuple[CacheType, CacheType],
    rollback: int = 0,
) -> ContextSizes:
    """A context of so many tokens under some flags."""
    context = ContextSizes.of(
        size,
        batch=options.batch_size,
        ubatch=options.ubatch_size,
        sequences=sequences,
        unified=options.kv_unified,
        outputs=outputs,
        type_k=types[0],
        type_v=types[1],
        flash=options.flash_attn != "off",
        offload_cache=options.kv_offload,
        whole_windows=options.swa_full,
        rollback=rollback,
    )
    decided = options.flash_attn != "auto" or types[1] not in FLOATING  # quantized values need it
    return context if decided else plans.resolved(context)


def set_up(
    architecture: Architecture,
    precision: Precision,
    options: LlamaCppOptions,
    placement: Placement,
    gpu: GPU | None,
    draft: Architecture | None = None,
    book: PlanBook | None = None,
) -> SlotCache:
    """A model that is placed on GPUs of a kind (None: there are none), and the draft model beside it."""
    machine = devices(options, placement.devices, gpu, cache_types(options, precision.kv))
    file, book = model_file(architecture, precision, predicts=options.predicts), book or PlanBook()
    plans = book.of(PlacedModel(file, placement, machine, overridden(options)))
    guessing = drafting(architecture, precision, placement, options, gpu, draft, book)
    return SlotCache(plans, options, precision.kv, guessing)


def overridden(options: LlamaCppOptions) -> bool:
    """Whether some weights stay on the host though their layer does not."""
    return options.cpu_moe or options.n_cpu_moe > 0 or options.override_tensor is not None


def drafting(
    architecture: Architecture,
    precision: Precision,
    placement: Placement,
    options: LlamaCppOptions,
    gpu: GPU | None,
    draft: Architecture | None,
    book: PlanBook,
) -> Draft | None:
    """What guesses tokens for a model, where it has a context of its own."""
    types = options.cache_type_k_draft, options.cache_type_v_draft
    machine = devices(options, placement.devices, gpu, types)
    if options.predicts:
        file = model_file(architecture, precision, predicts=True)
        return Draft(book.of(PredictionLayers(file, placement, machine, overridden(options))), options)
    if draft is None:
        return None
    split = shares(options, placement.devices) if options.device is None else []
    where = Placement.of(draft.num_layers, options.n_gpu_layers_draft, split)
    file = model_file(draft, draft_precision(options, precision))
    return Draft(book.of(PlacedModel(file, where, machine)), options)


def draft_precision(options: LlamaCppOptions, precision: Precision) -> Precision:
    """How the draft model's file stores it, beside a model's."""
    return Precision(weights=options.weights_draft or precision.weights)


def rollback(options: LlamaCppOptions) -> int:
    """Tokens by which states can go back: as many as layers of the model guess (need_n_rs_seq)."""
    return options.spec_draft_n_max if options.predicts else 0


def devices(options: LlamaCppOptions, gpus: int, gpu: GPU | None, types: tuple[CacheType, CacheType]) -> Devices:
    """The machine of a context whose cache is of some types."""
    capability = kernels_of(capability_of(gpu), types) if options.rpc is None else None
    return Devices(gpus if options.device is None else 0, capability)


def placed(options: LlamaCppOptions, layers: int, gpus: int) -> Placement:
    """Where the flags put each of the layers that are loaded."""
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
