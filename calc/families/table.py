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
from calc.families.windowed import WINDOWED
from calc.families.zamba import ZAMBA

FAMILIES: dict[str, Family] = (
    DENSE | GEMMA | GPT | REMOTE | SPARSE | WINDOWED | LATENT | DEEPSEEK_V4 | MAMBA | ZAMBA | LINEAR
)
WRAPPERS = {
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "deepseek_vl": "llama",
    "deepseek_vl_v2": "deepseek_v2",
    "exaone4_5": "exaone4",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "glm46v": "glm4v_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "got_ocr2": "qwen2",
    "idefics2": "mistral",
    "idefics3": "llama",
    "internvl": "qwen2",
    "internvl_chat": "qwen2",
    "janus": "llama",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "lfm2_vl": "lfm2",
    "lighton_ocr": "qwen3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "minicpmv4_6": "qwen3_5_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "nemotron_h_omni": "nemotron_h",
    "ovis2": "qwen2",
    "paligemma": "gemma",
    "perception_lm": "llama",
    "qwen2_5_omni": "qwen2_5_omni_thinker",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_omni_moe": "qwen3_omni_moe_thinker",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "shieldgemma2": "gemma3_text",
    "smolvlm": "llama",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}
"""model_type of a model that wraps a language model -> model_type of that where its own section does not say it."""
TIED_WRAPPERS = frozenset(
    "aya_vision cohere2_vision gemma3 gemma3n gemma4 got_ocr2 kimi_k25 lfm2_vl paligemma shieldgemma2".split()
)
"""Those whose own `tie_word_embeddings`, which goes before their language model's, is true by default."""
