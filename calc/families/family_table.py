"""The table keyed by model_type.

Shapes and defaults follow each class in Hugging Face transformers 5.23 (`configuration_*.py`, `modeling_*.py`), and
where it has none the remote code next to the checkpoint; names are the checkpoints'.
"""

import tomllib
from pathlib import Path

from calc.families.baidu import BAIDU
from calc.families.cohere import COHERE
from calc.families.deepseek import DEEPSEEK
from calc.families.falcon import FALCON
from calc.families.family import Family
from calc.families.gemma import GEMMA
from calc.families.glm import GLM
from calc.families.gpt import GPT
from calc.families.granite import GRANITE
from calc.families.image_codecs import CODECS
from calc.families.image_towers import IMAGES
from calc.families.inkling import INKLING
from calc.families.liquid import LIQUID
from calc.families.llama import LLAMA
from calc.families.mamba import MAMBA
from calc.families.minimax import MINIMAX
from calc.families.mistral import MISTRAL
from calc.families.moonshot import KIMI_AND_LING
from calc.families.nvidia import NVIDIA
from calc.families.olmo import OLMO
from calc.families.other_makers import OTHER_MAKERS
from calc.families.phi import PHI
from calc.families.qwen import QWEN
from calc.families.sound_towers import SOUND
from calc.families.tencent import TENCENT
from calc.families.text_encoders import TEXT_ENCODERS
from calc.families.tower_parts import Tower
from calc.families.zyphra import ZYPHRA

FAMILIES: dict[str, Family] = {
    **BAIDU,
    **COHERE,
    **DEEPSEEK,
    **FALCON,
    **GEMMA,
    **GLM,
    **GPT,
    **GRANITE,
    **INKLING,
    **KIMI_AND_LING,
    **LIQUID,
    **LLAMA,
    **MAMBA,
    **MINIMAX,
    **MISTRAL,
    **NVIDIA,
    **OLMO,
    **OTHER_MAKERS,
    **PHI,
    **QWEN,
    **TENCENT,
    **TEXT_ENCODERS,
    **ZYPHRA,
}
WRAPPERS = tomllib.loads(Path(__file__).with_name("wrappers.toml").read_text(encoding="utf-8"))
WRAPPED: dict[str, str] = {wrapper: name for name, wrappers in WRAPPERS.items() for wrapper in wrappers.split()}
"""Models that wrap a language model, or another wrapper -> the model_type in it where its own section does not say
it."""
TOWERS: dict[str, Tower] = CODECS | IMAGES | SOUND
"""model_type -> its encoders for images and sound, where their classes are known."""
