from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Self

from pydantic import Field

from calc.errors import Frozen, Message
from calc.formats.format_names import FLOATS, MLX_FORMATS, CacheFormat, WeightFormat
from calc.formats.mixes import MIXES
from calc.formats.quantization_config import Native, native
from calc.formats.quantization_tools import TOOLS
from calc.formats.scheme import EVERY_MODULE, EXPERTS, LINEARS, Rule, Scheme
from calc.formats.table import FORMATS, Format
from calc.model.tensor import Component

WITHOUT_LINEAR_ATTENTION: tuple[WeightFormat, ...] = ("mxfp4", "nvfp4")
"""Formats in which tools leave the modules `linear_attn`."""
WITHOUT_PREDICTION: tuple[WeightFormat, ...] = (
    *("int4", "int4-gptq", "int4-w4a16", "int8", "int8-gptq", "mxfp4", "nvfp4"),
)
"""Formats of tools that load a model by its class in transformers, which has no layers of multi-token prediction."""
ANY_TOOL = frozenset(TOOLS)


def native_weights(config: Mapping[str, Any]) -> WeightFormat:
    """The format that the checkpoint is stored in, by its `quantization_config`; bf16 when it is not quantized."""
    return native(config).name


@lru_cache(maxsize=128)
def scheme_of_components(weights: WeightFormat, components: frozenset[Component]) -> Scheme:
    """One format for all matrices of some components."""
    rules = (Rule(form=FORMATS[weights], components=components),)
    plain = frozenset({"linear_attn"}) if weights in WITHOUT_LINEAR_ATTENTION else frozenset[str]()
    return Scheme(rules=rules, plain=plain, plain_prediction=weights in WITHOUT_PREDICTION)


class Precision(Frozen):
    """Storage of the weights and of the KV cache. Activations are 16-bit, or fp32 with fp32 weights."""

    weights: WeightFormat = "bf16"
    kv: CacheFormat = "bf16"
    imatrix: bool = Field(default=False, description="Whether GGUF mixes were made with an importance matrix.")
    checkpoint: Scheme | None = Field(default=None, exclude=True)
    """Details of the checkpoint's config; None: the usual ones of the format."""
    replaces: WeightFormat | None = Field(default=None, exclude=True)
    """Quantized format of the checkpoint's weights, where another one is chosen."""
    cache_stated: CacheFormat | None = Field(default=None, exclude=True)
    """KV cache format that the checkpoint's config states."""
    note: Message | None = Field(default=None, exclude=True)
    """Notes on fields that the config leaves open, or that could not be followed."""

    @classmethod
    def of(cls, config: Mapping[str, Any], weights: WeightFormat | None = None, kv: CacheFormat | None = None) -> Self:
        """Precision of a config's checkpoint, unless another format is chosen; its cache as it asks."""
        return cls.stored_as(native(config), weights, kv)

    @classmethod
    def stored_as(
        cls,
        stored: Native,
        weights: WeightFormat | None = None,
        kv: CacheFormat | None = None,
        cache_from: frozenset[str] = ANY_TOOL,
    ) -> Self:
        """Precision of a checkpoint, unless another format is chosen; the cache as it asks, where its tool is one of
        `cache_from`, whose word the engine takes."""
        cache_format = None if stored.cache is None else stored.cache.format
        taken = cache_format if stored.cache is not None and stored.cache.tool in cache_from else None
        cache: CacheFormat = kv or taken or "bf16"
        if weights is None or weights == stored.name:
            return cls(
                weights=stored.name, kv=cache, checkpoint=stored.scheme, cache_stated=cache_format, note=stored.note
            )
        replaces = None if stored.name in FLOATS else stored.name
        return cls(weights=weights, kv=cache, cache_stated=cache_format, replaces=replaces)

    @property
    def activation_bytes(self) -> int:
        return 4 if self.weights == "fp32" else 2

    @property
    def stored_forms(self) -> tuple[Format, ...]:
        """Formats that the checkpoint's config states, of any of its matrices."""
        return () if self.checkpoint is None else tuple(rule.form for rule in self.checkpoint.rules)

    def scheme(self, *, experts: bool) -> Scheme:
        """Storage scheme of a model with routed experts or without; no GGUF mix.

        A quantized format holds the matrices of attention and feed-forward; embeddings, head, norms, router and biases
        stay in 16 bits. Published MXFP4 checkpoints of models with experts hold nothing but these.

        Of recurrent mixers, the small matrices stay in 16 bits too (GPTQModel 7.7.0 `definitions/qwen3_5_text.py`,
        `nemotron_h.py`; llm-compressor `examples/quantization_w4a16/qwen3_8_gptq_awq_example.py`), and in NVFP4 and
        MXFP4 linear attention does (llm-compressor's examples of Qwen3.5, nvidia/Qwen3.5-122B-A10B-NVFP4), but not
        Mamba (nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4). Qwen's own GPTQ of Qwen3.5 leaves all attention.
        """
        if self.checkpoint is not None:
            return self.checkpoint
        components = LINEARS
        if self.weights == "mxfp4" and experts:
            components = EXPERTS
        elif self.weights in MLX_FORMATS:
            components = EVERY_MODULE
        return scheme_of_components(self.weights, components)

    def assumptions(self, *, experts: bool, recurrent: bool) -> Iterator[Message]:
        """Assumptions behind the bytes of weights and cache, in sentences, of a model with routed experts or without,
        whose recurrent mixers are quantized or not."""
        if self.note is not None:
            yield self.note
        if self.cache_stated == self.kv:
            yield Message("The KV cache is in {format}, as the checkpoint's quantization_config asks.", format=self.kv)
        elif self.cache_stated is not None:
            sentence = "The checkpoint's quantization_config asks for a KV cache in {stated}; here it is in {format}."
            yield Message(sentence, stated=self.cache_stated, format=self.kv)
        if self.weights in FLOATS or self.checkpoint is not None:
            return
        sentence = (
            "In {format} the matrices of attention and feed-forward are quantized, with their scales; everything else "
            "stays in 16 bits."
        )
        if self.weights in MIXES:
            sentence = "Each matrix has the type that llama.cpp gives it in {format}; norms and router have 32 bits."
        elif self.weights in MLX_FORMATS:
            sentence = (
                "In {format} every matrix is quantized as by mlx_lm.convert, embedding and head too; the router as "
                "mlx-lm's file of the family asks."
            )
        elif self.weights == "mxfp4" and experts:
            sentence = (
                "In {format} the routed experts are quantized, with their scales; everything else stays in 16 bits."
            )
        elif recurrent:
            sentence = (
                "In {format} the matrices of attention, recurrent mixers and feed-forward are quantized, with their "
                "scales; everything else stays in 16 bits."
            )
        yield Message(sentence, format=self.weights)
        if self.weights == "nvfp4":
            yield Message(
                "Published checkpoints in {format} may keep more in 16 bits, or less (NVIDIA's of Gemma 4 31B keeps "
                "all attention): weighed by their own id or config.json, they are as they are stored.",
                format=self.weights,
            )
