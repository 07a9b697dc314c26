"""How SGLang's attention kernels keep the cache: its pages, and the bits of a token.

Read in SGLang 0.5.23: `arg_groups/model_override_base.py` (`get_default_attn_backend`), `arg_groups/overrides.py`
(`_mla_backend_page_constraints`, `_fa4_page_constraint`), `arg_groups/model_overrides/`, `mem_cache/memory_pool.py`
(`get_minimax_sparse_index_dtype`), `model_executor/pool_configurator.py` (`_compute_dsa_indexer_cell_size`) and
`mem_cache/kv_cache_configurator.py` (`calculate_mla_kv_cache_dim`).
"""

from calc.formats import CACHE_BITS, CacheFormat
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.kv_cache import token_bits

HOPPER, BLACKWELL = "9.0", ("10.0", "10.3")
"""Compute capabilities; the second run TensorRT-LLM's attention kernels (`is_sm100`)."""
SPARSE, COMPRESSED, BLOCKS, ASYMMETRIC = 64, 256, 128, 128
"""Tokens of a page: sparse attention of DeepSeek, of DeepSeek-V4, of MiniMax-M3, and attention whose values are of
another width than its keys on Blackwell."""
GENERAL = frozenset("falcon_h1 granitemoehybrid lfm2".split())
"""Model types with grouped queries that do not run TensorRT-LLM's kernels."""
DELTA = frozenset("qwen3_5_text qwen3_5_moe_text qwen3_next".split())
"""Those that run them where no prefix cache is kept, or one in buffers that a flag asks for."""
LATENT = frozenset("deepseek_v3 kimi_k25 kimi_k2".split())
"""Those with a latent that do."""


def page_size(architecture: Architecture, gpu: GPU, options: SGLangOptions) -> int:
    """Tokens of a page of the cache: what `--page-size` states, as far as the kernels take it."""
    model_type, stated = architecture.model_type, options.page_size
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    latents = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    if any(mixer.indexer is not None for mixer in latents):
        return SPARSE
    if model_type == "deepseek_v4":
        return COMPRESSED
    if model_type == "minimax_m3_vl_text" and gpu.capability == HOPPER:
        return stated or BLOCKS
    if gpu.capability not in BLACKWELL:
        return stated or 1
    if latents:
        return stated or 1 if model_type not in LATENT else stated if stated in (32, 64) else 64
    if options.speculative_algorithm is not None and options.speculative_eagle_topk != 1:
        return stated or 1  # FlashInfer's kernels, since TensorRT-LLM's verify no tree
    if any(len(set(mixer.attended_widths)) > 1 for block in architecture.blocks for mixer in block.attentions):
        return ASYMMETRIC
    if model_type == "minimax_m3_vl_text":
        return BLOCKS
    if model_type in DELTA:
        buffers = options.mamba_radix_cache_strategy not in (None, "no_buffer")
        return 64 if options.disable_radix_cache or buffers else 1
    if model_type in GENERAL:
        return stated or 1
    return stated if stated in (16, 32, 64, 128) else 64


def cached_bits(mixer: Mixer, kv: CacheFormat, gpu: GPU) -> int:
    """Bits cached per token and layer. DeepSeek's index keys are in fp8 with an fp32 scale for each 128, whatever the
    cache is in; its latent in fp8 has such scales too and a rotary key in 16 bits, except on Blackwell. MiniMax's index
    keys stay in 16 bits except on Hopper and Blackwell."""
    if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
        if kv == "fp8" and gpu.capability not in BLACKWELL:
            return sum(mixer.packed_bits().values())
        index = mixer.indexer.cached_elements()
        return int((mixer.cached_elements() - index) * CACHE_BITS[kv]) + 8 * index + 32 * -(-index // 128)
    if isinstance(mixer, GQA) and mixer.indexer is not None and gpu.capability not in (HOPPER, *BLACKWELL):
        index = mixer.indexer.cached_elements()
        return int((mixer.cached_elements() - index) * CACHE_BITS[kv]) + 16 * index
    return token_bits(mixer, kv)
