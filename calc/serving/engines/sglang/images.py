"""What SGLang keeps free where a model reads images.

Read in SGLang 0.5.23: `arg_groups/memory_hook.py` (`adjust_mem_fraction_for_vlm`), `configs/model_config.py`
(`mm_disabled_models`), `mem_cache/kv_cache_configurator.py` (`mm_runtime_reservation_gb`).
"""

from calc.model.architecture import Architecture
from calc.model.towers.listed import ListedTower
from calc.units import MIB

WITHOUT = frozenset({"gemma3_text", "llama4_text", "inkling_text"})
"""Model types that are served without images unless a flag asks for them."""
GRAPHS = frozenset({"cohere2", "kimi_k25", "minimax_m3_vl_text", "qwen3_5_text", "qwen3_5_moe_text"})
"""Model types with images, of the language model or of the whole, that have CUDA graphs of prompts all the same."""
EMBEDDINGS = 100 * MIB
"""Of the cache's memory, for embeddings of images (`SGLANG_VLM_CACHE_SIZE_MB`)."""
LAYERS, HIDDEN = 24, 1024
"""ViT-L/14: an encoder as large takes 5 % of the share, one twice as large 10 % more of what is left."""


def reads_images(architecture: Architecture) -> bool:
    return architecture.vision is not None and architecture.model_type not in WITHOUT


def has_graphs(architecture: Architecture) -> bool:
    """Whether a model that reads images has CUDA graphs of prompts."""
    wrapper = architecture.vision.wrapper if architecture.vision is not None else None
    return architecture.model_type in GRAPHS or wrapper in GRAPHS


def share_left(tower: ListedTower) -> float:
    """Of the share of the memory, by the layers and the width that `num_hidden_layers` and `hidden_size` of the
    vision_config state, else those of ViT-L/14; all of it without a vision_config of its own."""
    if not tower.images:
        return 1
    ratio = (tower.num_layers or LAYERS) * (tower.hidden or HIDDEN) ** 2 / (LAYERS * HIDDEN**2)
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (ratio - 1)))
