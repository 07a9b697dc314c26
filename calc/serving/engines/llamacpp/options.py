"""Flags of llama-server under their own names."""

from typing import Annotated, Literal

from pydantic import Field

from calc.errors import Frozen
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.formats.scheme import is_quick

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Guess = Literal[
    "none", "draft-simple", "draft-mtp", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"
]
CACHE_TYPES: dict[CacheFormat, CacheType] = {
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "f16",
    "q8_0": "q8_0",
    "q4_0": "q4_0",
}
"""Keys and values of 16 bits are f16 unless a flag says otherwise."""
MOST_SLOTS = 256
"""LLAMA_MAX_SEQ."""
GUESSED: dict[Guess, int] = {"none": 0, "ngram-mod": 64, "ngram-cache": 8}
GUESSED |= dict.fromkeys(("ngram-simple", "ngram-map-k", "ngram-map-k4v"), 48)
"""Tokens that are guessed at once unless a flag says otherwise (common/speculative.cpp: common_speculative_n_max)."""


class LlamaCppOptions(Frozen):
    """None: what llama-server does by itself, or what the workload asks for."""

    ctx_size: int | None = Field(
        default=None,
        ge=1,
        le=2**30,
        description="Tokens of the cache, of all slots together; by default batch x context.",
    )
    parallel: int | None = Field(
        default=None, ge=1, le=MOST_SLOTS, description="Slots: sequences that run at once; by default the batch."
    )
    kv_unified: bool = Field(default=False, description="One cache for all slots, not one for each.")
    batch_size: int = Field(default=2048, ge=1, le=2**20, description="Tokens that a call may pass.")
    ubatch_size: int = Field(default=512, ge=1, le=2**20, description="Tokens of one forward pass.")
    n_outputs_max: int | None = Field(
        default=None,
        ge=0,
        le=2**20,
        description="Rows of logits planned for: llama-server one a slot; 0 all tokens of a pass, as llama-bench.",
    )
    cache_type_k: CacheType | None = Field(default=None, description="Storage of keys; by default that of the cache.")
    cache_type_v: CacheType | None = Field(default=None, description="Storage of values; by default that of the cache.")
    flash_attn: Literal["auto", "on", "off"] = Field(
        default="auto", description="Flash attention; auto: where each layer's device has it."
    )
    cuda_force_cublas: bool = Field(
        default=False,
        description="Built with GGML_CUDA_FORCE_CUBLAS, or before June 2024: a prompt's quantized weights are unpacked "
        "to 16 bits for cuBLAS, not multiplied as 8-bit integers.",
    )
    n_gpu_layers: Annotated[int, Field(ge=0, le=2**16)] | Literal["auto"] | None = Field(
        default=None,
        examples=["24"],
        description="Layers on GPUs, counted from the last, the output first; auto: as many as fit; by default all.",
    )
    cpu_moe: bool = Field(default=False, description="The experts of all layers stay on the host.")
    n_cpu_moe: int = Field(default=0, ge=0, le=2**16, description="Layers from the first whose experts stay there.")
    override_tensor: str | None = Field(
        default=None, max_length=1000, description="PATTERN=CPU: tensors whose name it matches stay on the host."
    )
    split_mode: Literal["layer", "row", "tensor", "none"] = Field(
        default="layer", description="Several GPUs have layers each; none: one GPU is used; others are not counted."
    )
    tensor_split: str | None = Field(
        default=None, max_length=1000, description="Shares of the GPUs, such as 3,1; by default equal."
    )
    kv_offload: bool = Field(default=True, description="The cache lies where its layer is; off: on the host.")
    swa_full: bool = Field(default=False, description="Layers with a window keep the whole context.")
    device: Literal["none"] | None = Field(default=None, description="none: everything stays on the host.")
    spec_type: Guess = Field(
        default="none",
        description="Speculative decoding: by a draft model, by the model's own layers (MTP), or by repeats of the "
        "text.",
    )
    model_draft: str | None = Field(
        default=None,
        max_length=1000,
        examples=["Qwen/Qwen3-0.6B"],
        description="The draft model of speculative decoding, loaded beside this one.",
    )
    weights_draft: WeightFormat | None = Field(
        default=None, description="Storage of the draft model's weights; by default that of this one's."
    )
    n_gpu_layers_draft: int | None = Field(
        default=None,
        ge=0,
        le=2**16,
        description="Layers of the draft model on GPUs, counted from the last; by default all.",
    )
    cache_type_k_draft: CacheType = Field(default="f16", description="Storage of the draft's keys.")
    cache_type_v_draft: CacheType = Field(default="f16", description="Storage of the draft's values.")
    spec_draft_n_max: int = Field(default=3, ge=1, le=1024, description="Tokens that a draft model proposes at once.")
    mmproj: bool = Field(default=False, description="The vision encoder is loaded too, from a file of its own.")
    rpc: str | None = Field(
        default=None, max_length=1000, description="Servers whose devices are used instead of GPUs; CPUs are assumed."
    )

    @property
    def draft_tokens(self) -> int:
        """Tokens that are guessed at once; each slot plans a row of logits for every one of them."""
        return GUESSED.get(self.guess, self.spec_draft_n_max)

    @property
    def guess(self) -> Guess:
        """Way of guessing tokens; with a draft model its own where nothing else is asked for."""
        return "draft-simple" if self.spec_type == "none" and self.model_draft is not None else self.spec_type

    @property
    def predicts(self) -> bool:
        """Whether the model's own layers for it guess tokens."""
        return self.spec_type == "draft-mtp"

    def slots(self, batch: int) -> int:
        return self.parallel or min(batch, MOST_SLOTS)

    def outputs(self, sequences: int) -> int | None:
        """Rows of logits that are planned for; None: one for every token of a pass."""
        if self.n_outputs_max is not None:
            return self.n_outputs_max or None
        return min(self.batch_size, sequences * (1 + self.draft_tokens))

    def cache_types(self, kv: CacheFormat) -> tuple[CacheType, CacheType]:
        """Storage of keys and of values: as flags say, else as the cache was asked for."""
        return self.cache_type_k or CACHE_TYPES[kv], self.cache_type_v or CACHE_TYPES[kv]

    def draft_precision(self, precision: Precision) -> Precision:
        """Storage of the draft model's file, next to a model's."""
        return Precision(weights=self.weights_draft or precision.weights)

    def shares(self, gpus: int) -> list[float]:
        """Shares of the layers on each GPU."""
        if self.tensor_split is None:
            return [1.0] * gpus
        try:
            return [float(share) for share in self.tensor_split.split(",")]
        except ValueError:
            return []

    @property
    def host_pattern(self) -> str | None:
        """Pattern of the tensors that --override-tensor keeps on the host; None: it keeps none, or can't be read."""
        pattern, _, device = (self.override_tensor or "").rpartition("=")
        return pattern if pattern and device == "CPU" and is_quick(pattern) else None
