"""What vLLM refuses to start: families, formats and sizes of blocks."""

from calc.errors import Message
from calc.formats import CacheFormat
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.mixers import CompressedAttention, Recurrent
from calc.model.mla import LatentAttention
from calc.serving.engines.vllm.kernels import capability
from calc.serving.engines.vllm.layers import Layers, cached_layers, compressed, setting
from calc.serving.engines.vllm.options import Version, VLLMOptions
from calc.serving.engines.vllm.packed import BLOCK

SUPPORTED_UNTIL: dict[str, Version | None] = {
    "aquila": (0, 24),
    "baichuan": (0, 23),
    "bamba": (0, 23),
    "internlm": (0, 23),
    "minimax": (0, 23),
    "minimax_m1": (0, 23),
    "minimax_text_01": (0, 23),
    "mpt": (0, 28),
    "phi3small": (0, 9),
    "plamo2": (0, 26),
    "qwen": (0, 23),
    "stablelm_epoch": (0, 28),
    "telechat": (0, 25),
    "xverse": (0, 23),
    "gpt_neo": None,
    "recurrent_gemma": None,
    "zamba": None,
}
"""The last version that served a family, and None where none did (`model_executor/models/registry.py`)."""
OTHERS_FORMATS: frozenset[CacheFormat] = frozenset(("q8_0", "q4_0"))


def refusal(architecture: Architecture, kv: CacheFormat, options: VLLMOptions, gpu: GPU) -> Message | None:
    """Why vLLM would not start with this model, or None. `architecture` is that of one rank."""
    return refused_family(architecture, options) or refused_format(architecture, kv) or refused_layers(
        architecture, kv, options, gpu
    )


def refused_family(architecture: Architecture, options: VLLMOptions) -> Message | None:
    family = architecture.model_type
    if family not in SUPPORTED_UNTIL:
        return None
    last = SUPPORTED_UNTIL[family]
    if last is None:
        return Message("vLLM does not serve models of the family {family}.", family=family)
    if options.older(last[0], last[1] + 1):
        return None
    version = ".".join(map(str, last))
    return Message("vLLM serves models of the family {family} up to version {version}.", family=family, version=version)


def refused_format(architecture: Architecture, kv: CacheFormat) -> Message | None:
    mixers = [mixer for block in architecture.all_blocks for mixer in block.mixers]
    if kv in OTHERS_FORMATS:
        return Message("{kv} is a cache format of llama.cpp, which vLLM does not have; fp8 is one of its own.", kv=kv)
    if kv == "fp8_ds_mla" and not any(isinstance(mixer, LatentAttention | CompressedAttention) for mixer in mixers):
        return Message("fp8_ds_mla stores the latent of MLA, which this model does not have; fp8 does.")
    return None


def refused_layers(architecture: Architecture, kv: CacheFormat, options: VLLMOptions, gpu: GPU) -> Message | None:
    """What a layer of this model can't have on this GPU."""
    mixers = [mixer for block in architecture.all_blocks for mixer in block.mixers]
    states = any(isinstance(mixer, Recurrent) for mixer in mixers)
    if options.disable_hybrid_kv_cache_manager and states and not all(isinstance(m, Recurrent) for m in mixers):
        return Message("Recurrent states and attention need vLLM's hybrid KV cache manager.")
    if compressed(architecture):
        return refused_compression(options, gpu)
    return refused_kernels(cached_layers(architecture, setting(architecture, kv, options, gpu)), architecture, kv, options, gpu)


def refused_compression(options: VLLMOptions, gpu: GPU) -> Message | None:
    cuda = capability(gpu)
    if cuda is not None and cuda[0] not in (9, 10, 12):
        return Message("vLLM has no kernel for compressed attention on {gpu}.", gpu=gpu.name)
    if options.block_size is not None and options.block_size % BLOCK:
        return Message(
            "A block of {block:,} tokens does not suit compressed attention: it must be a multiple of {least:,}.",
            block=options.block_size,
            least=BLOCK,
        )
    return None


def refused_kernels(layers: Layers, architecture: Architecture, kv: CacheFormat, options: VLLMOptions, gpu: GPU) -> Message | None:
    if all(cached.kernel is not None for cached in layers if cached.kind != "state"):
        return None
    free = options.model_copy(update={"block_size": None})
    kernels = [c.kernel for c in cached_layers(architecture, setting(architecture, kv, free, gpu)) if c.kind != "state"]
    if options.block_size is None or None in kernels:
        return Message("vLLM has no attention kernel for this model with a cache in {kv} on {gpu}.", kv=kv, gpu=gpu.name)
    return Message(
        "vLLM has no attention kernel on {gpu} that reads blocks of {block:,} tokens of this model.",
        gpu=gpu.name,
        block=options.block_size,
    )
