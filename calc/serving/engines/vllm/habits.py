"""What vLLM 0.33 does with one family alone. All else follows from a model's layers. Paths are below `vllm/`."""

from typing import NamedTuple

from calc.model.architecture import Architecture
from calc.serving.engines.vllm.options import VLLMOptions


class Habits(NamedTuple):
    """By default, what vLLM does with any family."""

    own_format: bool = False  # attention is not told of the cache's format and stays in 16 bits
    expanded: bool = False  # latents are expanded: each head's key and value is cached, both as wide as the key
    fp8_on_blackwell: bool = False  # in fp8 on SM10x unless another format is asked for
    window_shift: int = 0  # tokens that vLLM's window counts more than the model's
    chunks: bool = False  # a window is a chunk of the context that ends where the next begins
    attention_free: bool = False  # nothing but states: prefixes are cached only when asked
    fp32_state: bool = False  # where neither config nor option says anything
    triton_experts: bool = False  # experts in MXFP4 run by Triton where it does (oracle/mxfp4.py)
    delta_checkpoint: bool = False  # FlashInfer's prefill of a delta net hands out a state inside a prompt


HABITS: dict[str, Habits] = {
    "falcon": Habits(own_format=True),  # model_executor/models/falcon.py
    "RefinedWeb": Habits(own_format=True),
    "RefinedWebModel": Habits(own_format=True),
    "minicpm3": Habits(expanded=True),  # model_executor/models/minicpm3.py
    "glm_moe_dsa": Habits(fp8_on_blackwell=True),  # model_executor/models/config.py
    "cohere2": Habits(window_shift=1),  # model_executor/models/commandr.py
    "mimo_v2_flash": Habits(window_shift=-1),  # model_executor/models/mimo_v2.py
    "llama4": Habits(chunks=True),  # model_executor/layers/attention/chunked_local_attention.py
    "gpt_oss": Habits(triton_experts=True),  # quantization/mxfp4.py: GptOssMxfp4Config
    "mamba": Habits(attention_free=True),  # model_executor/models/mamba.py, mamba2.py
    "mamba2": Habits(attention_free=True),
    "falcon_mamba": Habits(attention_free=True),
    "nemotron_h": Habits(fp32_state=True),  # model_executor/models/config.py
    "qwen3_next": Habits(delta_checkpoint=True),  # model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py
    "qwen3_5": Habits(delta_checkpoint=True),
    "qwen3_5_moe": Habits(delta_checkpoint=True),
}
PLAIN = Habits()


def habits(architecture: Architecture) -> Habits:
    """What vLLM does with this model's family, be it in a wrapper or not."""
    return HABITS.get(architecture.model_type.removesuffix("_text"), PLAIN)


def sees_images_whole(architecture: Architecture, options: VLLMOptions) -> bool:
    """Whether images are served whose tokens see each other, for which not every attention kernel will do."""
    loaded = architecture.vision is not None and not options.language_model_only
    return loaded and architecture.image_prefix
