"""The table keyed by model_type.

Shapes and defaults follow each class in Hugging Face transformers 5.23 (`configuration_*.py`, `modeling_*.py`), and
where it has none the remote code beside the checkpoint; names are the checkpoints'.
"""

from calc.families.deepseek_v4 import DEEPSEEK_V4
from calc.families.dense import DENSE
from calc.families.gemma import GEMMA
from calc.families.gpt import GPT
from calc.families.latent import LATENT
from calc.families.linear import LINEAR
from calc.families.mamba import MAMBA
from calc.families.reading import Family
from calc.families.remote import REMOTE
from calc.families.sparse import SPARSE
from calc.families.zamba import ZAMBA

FAMILIES: dict[str, Family] = DENSE | GEMMA | GPT | REMOTE | SPARSE | LATENT | DEEPSEEK_V4 | MAMBA | ZAMBA | LINEAR
WRAPPERS = {
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "gemma3n": "gemma3n_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "deepseek_v3",
    "llama4": "llama4_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""model_type of a model that wraps a language model in `text_config` -> that language model's own model_type."""
TIED_WRAPPERS = frozenset({"gemma3", "gemma4", "kimi_k25"})
"""Those whose own `tie_word_embeddings`, which goes before their language model's, is true by default."""
