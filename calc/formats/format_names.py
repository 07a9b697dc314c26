"""Names of the formats."""

from fractions import Fraction
from typing import Literal, get_args

FloatFormat = Literal["fp32", "bf16", "fp16"]
MatrixFormat = Literal[
    FloatFormat,
    "fp8", "fp8-channel", "fp8-tensor", "int8", "int8-bnb", "int8-gptq",
    "int4", "int4-gptq", "int4-w4a16", "nf4", "nf4-dq", "mxfp8", "mxfp4", "nvfp4",
]  # fmt: skip
MixFormat = Literal[
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0",
    "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS",
    "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS",
    "Q2_K", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
]  # fmt: skip
MLXFormat = Literal[
    "mlx-8bit", "mlx-6bit", "mlx-5bit", "mlx-4bit", "mlx-3bit", "mlx-2bit",
    "mlx-mixed_4_6", "mlx-mixed_3_6", "mlx-mixed_3_4", "mlx-mixed_2_6", "mlx-mxfp8", "mlx-mxfp4", "mlx-nvfp4",
]  # fmt: skip
WeightFormat = Literal[MatrixFormat, MixFormat, MLXFormat]
BITSANDBYTES: frozenset[WeightFormat] = frozenset({"int8-bnb", "nf4", "nf4-dq"})
"""Formats that bitsandbytes gives linear modules as a model is loaded."""
CacheFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "q8_0", "q4_0", "fp8_ds_mla"]
FLOATS: tuple[FloatFormat, ...] = get_args(FloatFormat)
WEIGHT_FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)
MLX_FORMATS: tuple[MLXFormat, ...] = get_args(MLXFormat)
CACHE_FORMATS: tuple[CacheFormat, ...] = get_args(CacheFormat)
HEAD_SCALE_BITS: dict[CacheFormat, int] = {"int8": 32, "int4": 32}
"""Bits of the scale that each cached vector of a head has: vLLM's `int8_per_token_head` and `int4_per_token_head`
(`v1/kv_cache_interface.py`, `AttentionSpec.unpadded_page_size_bytes`)."""
CACHE_BITS: dict[CacheFormat, int | Fraction] = {
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4,
    "q8_0": Fraction(17, 2),  # llama.cpp: 32 elements and their scale in 34 bytes
    "q4_0": Fraction(9, 2),  # in 18 bytes
    "fp8_ds_mla": Fraction(82, 9),  # vLLM: a latent of 512 + 64 elements in 656 bytes
}
"""Bits a cached element. Scales of fp8, int8 and int4 depend on the engine and are left out."""
