"""Refusals of vLLM at start: families, layouts, formats and sizes of blocks."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import COMPRESSED_TENSORS, CacheFormat, Precision
from calc.formats.table import Format
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.families import class_family, families, versions
from calc.serving.engines.rules import halved_group_size, without_asymmetry
from calc.serving.engines.sizes import LaidOut
from calc.serving.engines.vllm.cache import BLOCK, Division
from calc.serving.engines.vllm.layers import (
    EXPANDED,
    INDEXER,
    SHARING,
    CacheEntry,
    Capability,
    Layers,
    cached_layers,
    capability,
    compresses,
    family_of,
)
from calc.serving.engines.vllm.options import Version, VLLMOptions, holds

SUPPORTED_UNTIL = versions("vllm", "supported_until")
OFFLOADING_SINCE: dict[str, Version] = {"native": (0, 14), "lmcache": (0, 11, 1)}
"""The first version whose backend takes a size (`config/vllm.py: _post_init_kv_transfer_config`): from 0.11.1 on there
is the flag, and the native one then asked for a number of blocks besides (`v1/kv_offload/cpu.py`)."""


def spelled(version: Version) -> str:
    return ".".join(map(str, version))


def unserved_family(architecture: Architecture, options: VLLMOptions) -> Iterator[Refusal]:
    """Families that it does not serve, or not any more."""
    family = architecture.model_type
    if family not in SUPPORTED_UNTIL:
        return
    last = SUPPORTED_UNTIL[family]
    if last is None:
        yield Refusal(Message("vLLM does not serve models of the family {family}.", family=family), "engine")
    elif not options.is_older_than(last[0], last[1] + 1):
        sentence = "vLLM serves models of the family {family} up to version {version}."
        yield Refusal(Message(sentence, family=family, version=spelled(last)), "version")


WITHOUT_LORA = families("vllm", "without_lora")


def without_adapters(model: Architecture, options: VLLMOptions) -> Iterator[Refusal]:
    """Why it does not start with LoRA adapters (`lora_model_runner_mixin.py`)."""
    if options.enable_lora and (family := class_family(model)) in WITHOUT_LORA:
        yield Refusal(Message("vLLM's class of {family} does not support LoRA.", family=family), "enable_lora")


WITHOUT_FP16 = families("vllm", "without_fp16")
BF16: Capability = (8, 0)
"""First GPUs on which it computes in bf16 (`platforms/cuda.py: supported_dtypes`)."""


def without_dtype(laid_out: LaidOut, gpu: GPU) -> Iterator[Refusal]:
    """Why a GPU without bf16 does not run a model that is not computed in fp16 either: vLLM takes fp32 for it
    (`config/model.py: _resolve_auto_dtype`), for which methods of quantization have no kernels
    (`get_supported_act_dtypes`)."""
    cuda, family = capability(gpu), class_family(laid_out.whole)
    if cuda is not None and cuda < BF16 and family in WITHOUT_FP16 and laid_out.precision.weights != "fp32":
        sentence = "vLLM computes models of the family {family} in bf16 or fp32, not in fp16: {gpu} has no bf16."
        yield Refusal(Message(sentence, family=family, gpu=gpu.name), "weights", ["fp32"])


def unread_gptq(precision: Precision, options: VLLMOptions) -> Iterator[Refusal]:
    """Files of GPTQ that it does not read, or not any more (`gptq_utils.py`, `compressed_tensors.py`)."""
    if holds("GPTQ is symmetric", options):
        yield from without_asymmetry(precision, "vLLM")
    if holds("GPTQ has no order", options) and any(form.ordered for form in precision.stored_forms):
        sentence = "vLLM reads GPTQ whose groups follow the order of activations (desc_act) up to version {version}."
        yield Refusal(Message(sentence, version="0.29"), "version", ["0.29"])


def smallest_group(form: Format) -> int | None:
    """Inputs of the smallest group of routed experts: compressed-tensors' stay as they are
    (`compressed_tensors_moe_wna16.py`)."""
    return form.block[1] if form.tool == COMPRESSED_TENSORS else halved_group_size(form)


def unfit_flags(architecture: Architecture, options: VLLMOptions) -> Iterator[Refusal]:
    """Flags that go with this model on no GPU."""
    split = options.disable_hybrid_kv_cache_manager
    if split and architecture.attends and architecture.recurrent:
        yield Refusal(Message("Attention beside recurrent states needs vLLM's hybrid KV cache manager."), "engine")
    if options.kv_offloading_size is not None:
        since = OFFLOADING_SINCE[options.kv_offloading_backend]
        if options.is_older_than(*since):
            sentence = "vLLM keeps a cache on the host by kv_offloading_size ({backend}) from version {version} on."
            yield Refusal(Message(sentence, backend=options.kv_offloading_backend, version=spelled(since)), "version")
    if options.block_size is not None and options.block_size % BLOCK and compresses(architecture):
        sentence = "Compressed attention has blocks of a multiple of {least:,} tokens, not of {block:,}."
        yield Refusal(Message(sentence, least=BLOCK, block=options.block_size), "engine")


def undivided_groups(model: Architecture, tp: int) -> Iterator[Refusal]:
    """Why ranks can't share Mamba-2's groups: each has its own, or a copy of a single one
    (`model_executor/layers/mamba/mamba_mixer2.py`)."""
    groups = {getattr(mixer, "n_groups", 1) for block in model.all_blocks for mixer in block.mixers}
    for count in sorted(groups - {1}):
        if count % tp:
            sentence = "tp is {tp:,}, which does not divide the {n:,} groups of Mamba-2; vLLM copies no more than one."
            yield Refusal(Message(sentence, tp=tp, n=count), "tp")


def unshared_tokens(architecture: Architecture, layout: Layout) -> Iterator[Refusal]:
    """Why tensor-parallel ranks can't share the tokens of a cache: they share copies of KV heads (`ModelConfig.
    verify_with_parallel_config`), of layers that keep the whole context (`SlidingWindowSpec`)."""
    tp, dcp = layout.tp, layout.dcp
    if tp % dcp:
        yield Refusal(Message("dcp is {dcp:,}, which does not divide tp {tp:,}.", dcp=dcp, tp=tp), "dcp")
    if compresses(architecture) or any(
        mixer.window is not None for block in architecture.all_blocks for mixer in block.attentions
    ):
        yield Refusal(Message("vLLM does not share the cache of layers with a window over ranks (dcp)."), "dcp")
    if not architecture.attends:
        yield Refusal(Message("dcp shares cached tokens over ranks, which this model has none of."), "dcp")
    expanded = family_of(architecture) in EXPANDED
    for block in architecture.all_blocks:
        for mixer in block.attentions:
            heads = mixer.as_grouped() if expanded else mixer
            if heads is None or heads.absorbs:
                continue
            if dcp > tp // heads.cached_heads:
                sentence = "dcp is {dcp:,}, more than tp {tp:,} over {n:,} KV heads, of which ranks hold copies."
                yield Refusal(Message(sentence, dcp=dcp, tp=tp, n=heads.cached_heads), "dcp")
            if (shared := heads.n_q // heads.cached_heads) % dcp:
                sentence = "dcp is {dcp:,}, which does not divide the {n:,} query heads of a KV head."
                yield Refusal(Message(sentence, dcp=dcp, n=shared), "dcp")


def missing_kernels(division: Division, gpu: GPU) -> Iterator[Refusal]:
    kv, options = division.setting.kv, division.setting.options
    if every_kernel(division.layers):
        attending = (cached for cached in division.layers if cached.kind != "state")
        if division.dcp > 1 and not all(shares(cached, kv) for cached in attending):
            sentence = "On {gpu}, vLLM's attention kernel for a cache in {kv} does not share tokens over ranks (dcp)."
            yield Refusal(Message(sentence, gpu=gpu.name, kv=kv), "dcp")
        return
    free = division.setting._replace(gpu=gpu, options=options.model_copy(update={"block_size": None}))
    if options.block_size is None or not every_kernel(cached_layers(division.rank, free)):
        sentence = "On {gpu}, vLLM has no attention kernel for this model with a cache in {kv}."
        yield Refusal(Message(sentence, gpu=gpu.name, kv=kv), "gpu")
    else:
        sentence = "On {gpu}, vLLM has no attention kernel for this model that reads blocks of {block:,} tokens."
        yield Refusal(Message(sentence, gpu=gpu.name, block=options.block_size), "block_size")


def every_kernel(layers: Layers) -> bool:
    """Whether each layer that caches by the token has a kernel."""
    return all(cached.kernel is not None or cached.block or cached.kind == "state" for cached in layers)


def shares(cached: CacheEntry, kv: CacheFormat) -> bool:
    """Whether a layer's kernel serves ranks that share its tokens; of whole latents not in fp8
    (github.com/vllm-project/vllm/pull/46178)."""
    whole = cached.kind == "mla" and cached.kernel is not None and "SPARSE" not in cached.kernel.name
    quantized = kv in ("fp8", "fp8_ds_mla") and whole and cached.kernel != INDEXER
    return cached.kernel is not None and cached.kernel.name in SHARING and not quantized
