"""Families that SGLang does not serve.

Read in SGLang 0.5.23: the classes of `models/`; `model_loader/utils.py: resolve_transformers_arch` (a family without
one runs by the code of transformers, here 5.19, where that is written for others' attention:
`is_backend_compatible`); `models/transformers.py` (`use_cache=False`); `configs/hybrid_arch.py: mambaish_config` (which
get a pool of states).
"""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.model.architecture import Architecture
from calc.serving.engines.rules import SUPPORT
from calc.serving.engines.vllm.rules import SUPPORTED_UNTIL

UNSERVED = frozenset(
    "RefinedWeb RefinedWebModel Yi aquila bamba biogpt bloom blt codegen cpmant falcon flint gpt_neo gpt_neox_japanese "
    "granite_docling_text inkling2_text internlm jamba kolibri1 lfm3 minimax_m1 minimax_text_01 molmo2_text mpt "
    "olmo_hybrid openai-gpt openelm rwkv skywork stablelm_epoch telechat xglm xlstm zamba zamba2".split()
)
"""Families without a class whose code in transformers is not written for that, or that have none there."""
FORGETFUL = frozenset({"minimax", "recurrent_gemma"})
"""Families that run by the code of transformers and have recurrent layers, whose states nothing keeps there."""


def unserved_family(architecture: Architecture) -> Iterator[Refusal]:
    """Families that it does not run, with the nearest engine that does."""
    family = architecture.model_type
    nearest = SUPPORT["transformers" if family in SUPPORTED_UNTIL else "vllm"].title
    if family in UNSERVED:
        sentence = "SGLang does not serve models of the family {family}; {nearest} does."
        yield Refusal(Message(sentence, family=family, nearest=nearest), "engine")
    elif family in FORGETFUL:
        sentence = (
            "SGLang runs models of the family {family} by the code of transformers, without keeping their recurrent "
            "states from step to step; {nearest} keeps them."
        )
        yield Refusal(Message(sentence, family=family, nearest=nearest), "engine")
