"""The table keyed by model_type.

Shapes and defaults follow each class in Hugging Face transformers 5.23 (`configuration_*.py`, `modeling_*.py`), and
where it has none the remote code next to the checkpoint; names are the checkpoints'.
"""

from calc.families.ai21 import AI21
from calc.families.apple import APPLE
from calc.families.arcee import ARCEE
from calc.families.baai import BAAI
from calc.families.baidu import BAIDU
from calc.families.bigscience import BIGSCIENCE
from calc.families.blt import BLT
from calc.families.cohere import COHERE
from calc.families.databricks import DATABRICKS
from calc.families.deepseek import DEEPSEEK
from calc.families.falcon import FALCON
from calc.families.family import Family, Tower, Wrapper
from calc.families.gemma import GEMMA
from calc.families.glm import GLM
from calc.families.granite import GRANITE
from calc.families.hrm import HRM
from calc.families.huggingface import HUGGINGFACE
from calc.families.image_towers import IMAGES
from calc.families.inkling import INKLING
from calc.families.johns_hopkins import JOHNS_HOPKINS
from calc.families.kyutai import KYUTAI
from calc.families.lg import LG
from calc.families.liquid import LIQUID
from calc.families.llama import LLAMA
from calc.families.mamba import MAMBA
from calc.families.meituan import MEITUAN
from calc.families.minimax import MINIMAX
from calc.families.mistral import MISTRAL
from calc.families.moon_towers import MOON_TOWERS
from calc.families.moonshot import KIMI, LING
from calc.families.myshell import MYSHELL
from calc.families.nvidia import NVIDIA
from calc.families.olmo import OLMO
from calc.families.omni_towers import OMNI
from calc.families.openai import OPENAI
from calc.families.openbmb import OPENBMB
from calc.families.own_image_towers import OWN_IMAGES
from calc.families.phi import PHI
from calc.families.poolside import POOLSIDE
from calc.families.qwen import QWEN
from calc.families.recursive import RECURSIVE
from calc.families.rednote import REDNOTE
from calc.families.shanghai_ai_laboratory import SHANGHAI_AI_LABORATORY
from calc.families.single_rows import SINGLE_ROWS
from calc.families.sk_telecom import SK_TELECOM
from calc.families.small_doge import SMALL_DOGE
from calc.families.sound_towers import SOUND
from calc.families.stability import STABILITY
from calc.families.stepfun import STEPFUN
from calc.families.swiss_ai import SWISS_AI
from calc.families.tencent import TENCENT
from calc.families.text_encoders import TEXT_ENCODERS
from calc.families.tower_readers import ENCODED
from calc.families.xiaomi import XIAOMI
from calc.families.zyphra import ZYPHRA

FAMILIES: dict[str, Family] = (
    LLAMA
    | BLT
    | QWEN
    | DEEPSEEK
    | MISTRAL
    | GEMMA
    | OPENAI
    | GLM
    | GRANITE
    | OLMO
    | COHERE
    | PHI
    | MINIMAX
    | NVIDIA
    | KIMI
    | LING
    | TENCENT
    | BAIDU
    | FALCON
    | BIGSCIENCE
    | MAMBA
    | ZYPHRA
    | LIQUID
    | INKLING
    | HUGGINGFACE
    | DATABRICKS
    | HRM
    | APPLE
    | AI21
    | ARCEE
    | BAAI
    | JOHNS_HOPKINS
    | KYUTAI
    | LG
    | MEITUAN
    | MYSHELL
    | OPENBMB
    | POOLSIDE
    | RECURSIVE
    | REDNOTE
    | SHANGHAI_AI_LABORATORY
    | SINGLE_ROWS
    | SK_TELECOM
    | SMALL_DOGE
    | STABILITY
    | STEPFUN
    | SWISS_AI
    | TEXT_ENCODERS
    | XIAOMI
)
WRAPPERS: dict[str, Wrapper] = {wrapper.name: wrapper for family in FAMILIES.values() for wrapper in family.wrappers}
"""Models that wrap a language model, by their own model_type."""
WRAPPED: dict[str, str] = {
    wrapper.name: wrapper.outer or model_type for model_type, family in FAMILIES.items() for wrapper in family.wrappers
}
"""model_type of a wrapper -> that of the language model in it where its own section does not say it."""
TOWERS: dict[str, Tower] = {
    **ENCODED,
    **IMAGES,
    **MOON_TOWERS,
    **OMNI,
    **OWN_IMAGES,
    **SOUND,
}
"""model_type -> its encoders for images and sound, where their classes are known."""
