"""The table keyed by model_type.

Shapes and defaults follow each class in Hugging Face transformers 5.23 (`configuration_*.py`, `modeling_*.py`), and
where it has none the remote code beside the checkpoint; names are the checkpoints'.
"""

from calc.families.deepseek_v4 import DEEPSEEK_V4
from calc.families.dense import DENSE
from calc.families.family import Family
from calc.families.gemma import GEMMA
from calc.families.gpt import GPT
from calc.families.inkling import INKLING
from calc.families.latent import LATENT
from calc.families.linear import LINEAR
from calc.families.mamba import MAMBA
from calc.families.multimodal import MULTIMODAL
from calc.families.remote import REMOTE
from calc.families.sparse import SPARSE
from calc.families.windowed import WINDOWED
from calc.families.zamba import ZAMBA

FAMILIES: dict[str, Family] = (
    DENSE
    | GEMMA
    | GPT
    | INKLING
    | MULTIMODAL
    | REMOTE
    | SPARSE
    | WINDOWED
    | LATENT
    | DEEPSEEK_V4
    | MAMBA
    | ZAMBA
    | LINEAR
)
WRAPPERS = {
    "aria": "aria_text",
    "aya_vision": "cohere2",
    "blip-2": "opt",
    "cohere2_vision": "cohere2",
    "cohere_compass": "cohere_compass_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "cosmos3_omni": "qwen3_vl_text",
    "deepseek_ocr2": "deepseek_ocr2_text",
    "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama",
    "deepseek_vl_v2": "deepseek_v2",
    "emu3": "emu3_text_model",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "exaone4_5": "exaone4",
    "fast_vlm": "qwen2",
    "fun_asr_nano": "qwen3",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "glm46v": "glm4v_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "glm_ocr": "glm_ocr_text",
    "glmasr": "llama",
    "glmga": "glm4v_text",
    "got_ocr2": "qwen2",
    "granite4_vision": "granite4_vision_text",
    "granite_docling": "granite_docling_text",
    "granite_speech": "granite",
    "granite_speech_plus": "granite",
    "hunyuan_vl": "hunyuan_vl_text",
    "hyperclovax_vision_v2": "hyperclovax",
    "idefics2": "mistral",
    "idefics3": "llama",
    "inkling_mm_model": "inkling_text",
    "instructblip": "opt",
    "instructblipvideo": "opt",
    "internvl": "qwen2",
    "internvl_chat": "qwen2",
    "janus": "llama",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    "lighton_ocr": "qwen3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "minicpm_ocr": "qwen3_5_text",
    "minicpmv4_6": "qwen3_5_text",
    "minicpmv4_7": "qwen3_5_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "molmo2": "molmo2_text",
    "moss_transcribe_diarize": "qwen3",
    "muse_glimmer": "muse_glimmer_text",
    "muse_spark": "muse_spark_text",
    "nemo_speechlm": "nemotron_h",
    "nemotron_h_omni": "nemotron_h",
    "ovis2": "qwen2",
    "paddleocr_vl": "paddleocr_vl_text",
    "paligemma": "gemma",
    "perception_lm": "llama",
    "pp_chart2table": "qwen2",
    "qianfan_ocr": "qwen3",
    "qwen2_5_omni": "qwen2_5_omni_thinker",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_asr": "qwen3",
    "qwen3_omni_moe": "qwen3_omni_moe_thinker",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "shieldgemma2": "gemma3_text",
    "smolvlm": "llama",
    "step3p7": "step3p5",
    "unlimited_ocr": "unlimited_ocr_text",
    "vibevoice_asr": "qwen2",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
    "voxtral_realtime": "voxtral_realtime_text",
}
"""model_type of a model that wraps a language model -> model_type of that where its own section does not say it."""
TIED_WRAPPERS = frozenset(
    """
    aya_vision blip-2 cohere2_vision ernie4_5_vl_moe fun_asr_nano gemma3 gemma3n gemma4 gemma4_unified glmasr
    got_ocr2 granite_docling granite_speech granite_speech_plus hunyuan_vl hyperclovax_vision_v2 instructblip
    instructblipvideo kimi_k25 lfm2_vl lfm3_vl minicpm_ocr moss_transcribe_diarize paddleocr_vl paligemma
    pp_chart2table qwen3_asr shieldgemma2 voxtral_realtime
    """.split()
)
"""Those whose own `tie_word_embeddings`, which goes before their language model's, is true by default."""
