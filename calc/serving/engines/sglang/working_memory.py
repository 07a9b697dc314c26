"""Memory that SGLang keeps free for a pass: its CUDA graphs, and images where a model reads them.

Read in SGLang 0.5.23: `arg_groups/cuda_graph_hook.py`, `arg_groups/memory_hook.py` (`reserve_for_graph_mb`,
`adjust_mem_fraction_for_vlm`), `configs/model_config.py` (`mm_disabled_models`), `mem_cache/kv_cache_configurator.py`
(`mm_runtime_reservation_gb`), `arg_groups/model_overrides/qwen3_vl.py`.
"""

from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.linear_attention import KimiDelta
from calc.model.mixers import CompressedAttention
from calc.model.vision import ListedTower
from calc.units import GIB, MIB


def batches(most: int, *, guesses: bool = False) -> list[int]:
    """Batches of sequences that graphs are captured for, up to the largest (`generate_decode_cuda_graph_batch_sizes`);
    finer steps where tokens are guessed."""
    steps = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32)]
    if guesses:
        steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16)]
    return [*(batch for batch in steps if batch < most), most]


def decode_graphs(batch: int, dp: int) -> float:
    """MiB that are kept free for CUDA graphs up to a batch; copies of the attention are padded to each other's size."""
    padding = (3 if batch <= 300 else 4.5) * batch * dp if dp > 1 else 0
    return 2 * batch + padding


def prefill_graphs(most: int, architecture: Architecture, layout: Layout, images: bool) -> int:
    """MiB of graphs of prompts up to so many tokens, which some models and pipelines go without
    (`disable_breakable_cudagraph_if_incompatible`): 8 for each, 1,536 for all with a latent. `images`: the model reads
    them and has no such graphs for that."""
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    if layout.pp > 1 or images or any(isinstance(m, KimiDelta | CompressedAttention) for m in mixers):
        return 0
    if any(mixer.absorbs for mixer in mixers):
        return 1536
    lengths = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    lengths += [*range(1280, 4097, 256), *range(4608, most + 1, 512)]
    return 8 * len([length for length in lengths if length <= most])


WITHOUT = frozenset({"gemma3_text", "llama4_text", "inkling_text"})
"""Model types that are served without images unless a flag asks for them."""
GRAPHS = frozenset({"cohere2", "kimi_k25", "minimax_m3_vl_text", "qwen3_5_text", "qwen3_5_moe_text"})
"""Model types with images, of the language model or of the whole, that have CUDA graphs of prompts all the same."""
EMBEDDINGS = 100 * MIB
"""Bytes of the cache's memory for embeddings of images (`SGLANG_VLM_CACHE_SIZE_MB`)."""
STREAMED = frozenset({"qwen3_vl_text", "qwen3_vl_moe_text"})
"""Model types whose images pass through the memory of a large Hopper GPU and whose embeddings are not kept there."""
STREAMED_BATCH, MANY = 512, 400
"""Requests at once up to which all have CUDA graphs there, and from which images get three times the room."""
UNREAD = frozenset({"minimax_m3_vl_text"})
"""Model types whose vision_config it keeps as a dict, of which it reads no size."""
LAYERS, HIDDEN = 24, 1024
"""ViT-L/14: an encoder as large takes 5 % of the share, one twice as large 10 % more of what is left."""


def reads_images(architecture: Architecture) -> bool:
    return architecture.vision is not None and architecture.model_type not in WITHOUT


def has_graphs(architecture: Architecture) -> bool:
    """Whether a model that reads images has CUDA graphs of prompts."""
    wrapper = architecture.vision.wrapper if architecture.vision is not None else None
    return architecture.model_type in GRAPHS or wrapper in GRAPHS


def streams_images(architecture: Architecture, gpu: GPU) -> bool:
    return architecture.model_type in STREAMED and gpu.capability == "9.0" and gpu.memory_bytes >= 60 * GIB


def image_buffers(architecture: Architecture, gpu: GPU, requests: int | None) -> int:
    """Bytes of the cache's memory that images keep: embeddings, or what a number of requests stream."""
    if streams_images(architecture, gpu):
        return (3 if (requests or 0) >= MANY else 1) * GIB
    return EMBEDDINGS


def share_left(model_type: str, tower: ListedTower) -> float:
    """Factor on the share of memory, by the layers and the width that `num_hidden_layers` and `hidden_size` of the
    vision_config state, else those of ViT-L/14; 1 without a vision_config of its own."""
    if not tower.images:
        return 1
    if model_type in UNREAD:
        return 0.95
    ratio = (tower.num_layers or LAYERS) * (tower.hidden or HIDDEN) ** 2 / (LAYERS * HIDDEN**2)
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (ratio - 1)))
