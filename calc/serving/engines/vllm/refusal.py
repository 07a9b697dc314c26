"""What vLLM refuses to start: families, formats and sizes of blocks."""

from types import UnionType

from calc.errors import Message
from calc.formats import CacheFormat
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.mixers import Recurrent
from calc.model.mla import LatentAttention
from calc.serving.engines.vllm.habits import habits
from calc.serving.engines.vllm.kernels import INDEXER, SHARING
from calc.serving.engines.vllm.layers import Cached, Layers, LayerSetting, cached_layers, compressed
from calc.serving.engines.vllm.options import Version, VLLMOptions
from calc.serving.engines.vllm.packed import BLOCK

SUPPORTED_UNTIL: dict[str, Version | None] = {
    "aquila": (0, 24),
    "baichuan": (0, 23),
    "bamba": (0, 23),
    "chameleon": (0, 28),
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
    "codegen": None,
    "diffllama": None,
    "gpt_neo": None,
    "gpt_neox_japanese": None,
    "openai-gpt": None,
    "recurrent_gemma": None,
    "xglm": None,
    "zamba": None,
}
"""The last version that served a family, and None where none did (`model_executor/models/registry.py`)."""
OTHERS_FORMATS: frozenset[CacheFormat] = frozenset(("q8_0", "q4_0"))


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


def refused_format(kv: CacheFormat) -> Message | None:
    if kv in OTHERS_FORMATS:
        return Message("{kv} is a cache format of llama.cpp, which vLLM does not have; fp8 is one of its own.", kv=kv)
    return None


def refused_options(architecture: Architecture, options: VLLMOptions) -> Message | None:
    """What no GPU would do with this model."""
    attends = has(architecture, GQA | LatentAttention)
    if options.disable_hybrid_kv_cache_manager and attends and has(architecture, Recurrent):
        return Message("Attention beside recurrent states needs vLLM's hybrid KV cache manager.")
    if compressed(architecture) and options.block_size is not None and options.block_size % BLOCK:
        return Message(
            "Compressed attention has blocks of a multiple of {least:,} tokens, not of {block:,}.",
            least=BLOCK,
            block=options.block_size,
        )
    return None


def refused_sharing(architecture: Architecture, layout: Layout) -> Message | None:
    """Why tensor-parallel ranks can't share the tokens of a cache: they share copies of KV heads (`ModelConfig.
    verify_with_parallel_config`), of layers that keep the whole context (`SlidingWindowSpec`)."""
    tp, dcp = layout.tp, layout.dcp
    if tp % dcp:
        return Message("dcp is {dcp:,}, which does not divide tp {tp:,}.", dcp=dcp, tp=tp)
    if compressed(architecture) or any(
        getattr(mixer, "window", None) is not None for block in architecture.all_blocks for mixer in block.mixers
    ):
        return Message("vLLM does not share the cache of layers with a window over ranks (dcp).")
    if not has(architecture, GQA | LatentAttention):
        return Message("dcp shares cached tokens over ranks, which this model has none of.")
    expanded = habits(architecture).expanded
    for block in architecture.all_blocks:
        for mixer in block.mixers:
            if isinstance(mixer, GQA) or (expanded and isinstance(mixer, LatentAttention)):
                n_kv = mixer.n_kv if isinstance(mixer, GQA) else mixer.n_q
                if dcp > tp // n_kv:
                    return Message(
                        "dcp is {dcp:,}, more than tp {tp:,} over {n:,} KV heads, of which ranks hold copies.",
                        dcp=dcp,
                        tp=tp,
                        n=n_kv,
                    )
                if mixer.n_q // n_kv % dcp:
                    return Message(
                        "dcp is {dcp:,}, which does not divide the {n:,} query heads of a KV head.",
                        dcp=dcp,
                        n=mixer.n_q // n_kv,
                    )
    return None


def refused_layers(rank: Architecture, layers: Layers, asked: LayerSetting, dcp: int = 1) -> Message | None:
    """Layers for which there is no kernel on this GPU."""
    if every_kernel(layers):
        if dcp == 1 or all(shares(cached, asked) for cached in layers if cached.kind != "state"):
            return None
        return Message(
            "On {gpu}, vLLM's attention kernel for a cache in {kv} does not share tokens over ranks (dcp).",
            gpu=asked.gpu.name,
            kv=asked.kv,
        )
    free = asked._replace(options=asked.options.model_copy(update={"block_size": None}))
    if asked.options.block_size is None or not every_kernel(cached_layers(rank, free)):
        return Message(
            "On {gpu}, vLLM has no attention kernel for this model with a cache in {kv}.",
            gpu=asked.gpu.name,
            kv=asked.kv,
        )
    return Message(
        "On {gpu}, vLLM has no attention kernel for this model that reads blocks of {block:,} tokens.",
        gpu=asked.gpu.name,
        block=asked.options.block_size,
    )


def every_kernel(layers: Layers) -> bool:
    """Whether each layer that caches by the token has a kernel."""
    return all(cached.kernel is not None or cached.block or cached.kind == "state" for cached in layers)


def shares(cached: Cached, asked: LayerSetting) -> bool:
    """Whether a layer's kernel serves ranks that share its tokens; of whole latents not in fp8
    (github.com/vllm-project/vllm/pull/46178)."""
    whole = cached.kind == "mla" and cached.kernel is not None and "SPARSE" not in cached.kernel.name
    quantized = asked.kv in ("fp8", "fp8_ds_mla") and whole and cached.kernel != INDEXER
    return cached.kernel is not None and cached.kernel.name in SHARING and not quantized


def has(architecture: Architecture, kinds: UnionType | type) -> bool:
    return any(isinstance(mixer, kinds) for block in architecture.all_blocks for mixer in block.mixers)
