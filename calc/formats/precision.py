from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from calc.errors import Frozen, Message
from calc.formats.format_names import FLOATS, CacheFormat, WeightFormat
from calc.formats.mixes import MIXES
from calc.formats.quantization_config import native
from calc.formats.scheme import EXPERTS, LINEARS, Rule, Scheme
from calc.formats.table import FORMATS

CALIBRATED: tuple[WeightFormat, ...] = ("int4", "int4-gptq", "int4-w4a16", "nvfp4")


def native_weights(config: Mapping[str, Any]) -> WeightFormat:
    """The format that the checkpoint is stored in, by its `quantization_config`; bf16 when it is not quantized."""
    return native(config).name


class Precision(Frozen):
    """Storage of the weights and of the KV cache. Activations are 16-bit, or fp32 with fp32 weights."""

    weights: WeightFormat = "bf16"
    kv: CacheFormat = "bf16"
    imatrix: bool = Field(default=False, description="Whether GGUF mixes were made with an importance matrix.")
    checkpoint: Scheme | None = Field(default=None, exclude=True)
    """What the checkpoint's config says in detail; None: what is usual with the format."""
    unread: Message | None = Field(default=None, exclude=True)
    """What the config says that could not be followed."""

    @classmethod
    def of(cls, config: Mapping[str, Any], weights: WeightFormat | None = None, kv: CacheFormat = "bf16") -> Self:
        """As the checkpoint of a config is stored, unless another format is asked for."""
        found = native(config)
        if weights is None or weights == found.name:
            return cls(weights=found.name, kv=kv, checkpoint=found.scheme, unread=found.unread)
        return cls(weights=weights, kv=kv)

    @property
    def activation_bytes(self) -> int:
        return 4 if self.weights == "fp32" else 2

    def scheme(self, *, experts: bool) -> Scheme:
        """What is stored how, in a model with routed experts or without; no GGUF mix.

        A quantized format holds the matrices of attention and feed-forward; embeddings, head, norms, router and biases
        stay in 16 bits. Published MXFP4 checkpoints of models with experts hold nothing but these, and the 4-bit ones
        of hybrid models (Qwen3-Next in NVFP4) leave the recurrent mixers.
        """
        if self.checkpoint is not None:
            return self.checkpoint
        components = LINEARS - {"ssm_linear"} if self.weights in CALIBRATED else LINEARS
        if self.weights == "mxfp4" and experts:
            components = EXPERTS
        return Scheme(rules=(Rule(form=FORMATS[self.weights]),), components=components)

    def assumption(self, *, experts: bool) -> Message | None:
        """What the bytes of weights take for granted, in a sentence."""
        if self.unread is not None or self.weights in FLOATS:
            return self.unread
        if self.checkpoint is not None:
            return Message(
                "Weights are in {format} where the checkpoint's quantization_config says so, else in 16 bits.",
                format=self.weights,
            )
        if self.weights in MIXES:
            return Message(
                "Each matrix has the type that llama.cpp gives it in {format}; norms and router have 32 bits.",
                format=self.weights,
            )
        if self.weights == "mxfp4" and experts:
            return Message(
                "In {format} the routed experts are quantized, with their scales; everything else stays in 16 bits.",
                format=self.weights,
            )
        return Message(
            "In {format} the matrices of attention and feed-forward are quantized, with their scales; everything else "
            "stays in 16 bits.",
            format=self.weights,
        )
