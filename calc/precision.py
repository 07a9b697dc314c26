"""Storage formats: how many bytes a weight or a cached element takes."""

import json
from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Any, Literal, cast, get_args

from calc.frozen import Frozen
from calc.tensor import Component, Shape, Tensor

WeightFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "nf4", "mxfp4", "nvfp4"]
CacheFormat = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "q8_0", "q4_0", "fp8_ds_mla"]
WEIGHT_FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)
CACHE_FORMATS: tuple[CacheFormat, ...] = get_args(CacheFormat)


class Format(Frozen):
    """How a matrix [out, in] is stored: `bits` a weight, and a scale (and zero point) for each block of it."""

    bits: int
    block: tuple[int | None, int | None] = (1, None)  # rows x columns that share one scale; None: all of them
    scale_bits: int = 0  # with the zero point, where there is one
    experts_only: bool = False  # the published checkpoints leave attention in 16 bits
    source: str

    def nbytes(self, shape: Shape) -> int:
        """Bytes of a matrix, scales included."""
        rows, columns = prod(shape[:-1]), shape[-1]
        down, across = self.block
        scales = -(-rows // (down or rows)) * -(-columns // (across or columns))
        return (prod(shape) * self.bits + scales * self.scale_bits + 7) // 8


FORMATS: dict[WeightFormat, Format] = {
    "fp32": Format(bits=32, source="IEEE 754"),
    "bf16": Format(bits=16, source="brain floating point"),
    "fp16": Format(bits=16, source="IEEE 754"),
    "fp8": Format(bits=8, block=(128, 128), scale_bits=32, source="DeepSeek-V3 section 3.3, arXiv:2412.19437"),
    "int8": Format(bits=8, scale_bits=32, source="compressed-tensors W8A8: one scale an output channel"),
    "int4": Format(bits=4, block=(1, 128), scale_bits=20, source="GPTQ / AWQ, groups of 128: fp16 scale, 4-bit zero"),
    "nf4": Format(bits=4, block=(1, 64), scale_bits=32, source="QLoRA section 3, arXiv:2305.14314"),
    "mxfp4": Format(bits=4, block=(1, 32), scale_bits=8, experts_only=True, source="OCP Microscaling v1.0; gpt-oss"),
    "nvfp4": Format(bits=4, block=(1, 16), scale_bits=8, source="NVIDIA NVFP4: one fp8 scale for 16 weights"),
}
FLOATS = ("fp32", "bf16", "fp16")
EXPERTS: frozenset[Component] = frozenset({"experts_routed"})
LINEARS: frozenset[Component] = EXPERTS | {"attention", "mlp", "experts_shared"}
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


def native_weights(config: Mapping[str, Any]) -> WeightFormat:
    """The format that the checkpoint is stored in, by its `quantization_config`; bf16 when it is not quantised."""
    for section in (config, config.get("text_config")):
        quantization = section.get("quantization_config") if isinstance(section, Mapping) else None
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
        if method in ("fp8", "mxfp4"):
            return cast(WeightFormat, method)
        if method in ("gptq", "awq") or (
            method == "compressed-tensors" and '"num_bits": 4' in json.dumps(quantization)
        ):
            return "int4"
    return "bf16"


class Precision(Frozen):
    """Storage of the weights and of the KV cache. Activations are 16-bit, or fp32 with fp32 weights."""

    weights: WeightFormat = "bf16"
    kv: CacheFormat = "bf16"

    @property
    def activation_bytes(self) -> int:
        return 4 if self.weights == "fp32" else 2

    def tensor_bytes(self, tensor: Tensor) -> int:
        """Bytes of one occurrence of a tensor. A quantised format holds the matrices of attention and feed-forward;
        embeddings, head, norms, router and biases stay in 16 bits."""
        form = FORMATS[self.weights]
        if self.weights not in FLOATS:
            quantised = EXPERTS if form.experts_only else LINEARS
            matrix = len(tensor.shape) - (tensor.experts > 1 and "{expert}" not in tensor.name) == 2
            if tensor.component not in quantised or not matrix:
                form = FORMATS["bf16"]
        return form.nbytes(tensor.shape)
