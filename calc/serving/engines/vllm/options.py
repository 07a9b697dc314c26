"""vLLM's flags under their own names, with the limits and defaults of its command line; and what changed in its
planning, with which version. The other modules say how the newest does it."""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.formats import WeightFormat
from calc.serving.engines.started import check_effect

Version = tuple[int, ...]
Speculative = Literal["none", "mtp", "eagle", "eagle3", "draft_model", "ngram"]
StateDtype = Literal["auto", "bfloat16", "float16", "float32"]
NEWEST: Version = (0, 33)
"""The version that the rules were read in (`vllm/v1/core/kv_cache_planning.py` and what it calls)."""


class VLLMOptions(Frozen):
    """Flags of `vllm serve`; None: vLLM's own default, which may depend on the GPU and the version."""

    max_num_batched_tokens: int | None = Field(default=None, ge=1, le=2**30, description="Tokens of one forward pass.")
    max_num_seqs: int | None = Field(default=None, ge=1, le=2**24, description="Sequences that run at once.")
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="Share of the GPU's memory that vLLM takes."
    )
    kv_cache_memory_bytes: int | None = Field(
        default=None, ge=1, le=2**60, description="Bytes of the KV cache on each GPU, instead of what is left."
    )
    num_gpu_blocks_override: int | None = Field(
        default=None, ge=1, le=2**40, description="Blocks of the KV cache, instead of what fits."
    )
    block_size: int | None = Field(default=None, ge=1, le=2**20, description="Tokens of one block of the KV cache.")
    enable_prefix_caching: bool | None = Field(default=None, description="Keep the cache of shared prefixes.")
    mamba_ssm_cache_dtype: StateDtype = Field(default="auto", description="Storage of recurrent states.")
    gdn_prefill_backend: Literal["flashinfer", "triton"] | None = Field(
        default=None, description="Kernel of gated delta nets at prefill."
    )
    async_scheduling: bool | None = Field(default=None, description="Schedule a step while the last one runs.")
    disable_hybrid_kv_cache_manager: bool = Field(
        default=False, description="Keep the whole context also in layers with a window."
    )
    enforce_eager: bool = Field(default=False, description="No CUDA graphs.")
    language_model_only: bool = Field(default=False, description="Leave the vision encoder out.")
    speculative: Speculative = Field(
        default="none",
        description="Speculative decoding: by the model's own layer (multi-token prediction), an extra one (EAGLE, "
        "EAGLE-3), a draft model, or repeats of the text (ngram).",
    )
    num_speculative_tokens: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="Tokens that are proposed at once; by default 1 with mtp, 3 with all others.",
    )
    model_draft: str | None = Field(
        default=None,
        max_length=1000,
        examples=["Qwen/Qwen3-0.6B"],
        description="The draft model of speculative decoding, loaded beside this one.",
    )
    weights_draft: WeightFormat | None = Field(
        default=None, description="Storage of the draft model's weights; by default as its file usually has them."
    )
    enable_lora: bool = Field(default=False, description="Serve LoRA adapters: memory for them is taken at start.")
    max_loras: int = Field(default=1, ge=1, le=1024, description="Adapters that a batch may use, with enable_lora.")
    max_cpu_loras: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description="Adapters kept in the host's memory, with enable_lora; by default as many as max_loras.",
    )
    max_lora_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = Field(
        default=16, description="Largest rank of an adapter, with enable_lora."
    )
    kv_offloading_size: float | None = Field(
        default=None, gt=0, le=2**20, description="GiB of the host's memory for the KV cache, of all ranks together."
    )
    kv_offloading_backend: Literal["native", "lmcache"] = Field(
        default="native", description="Backend that keeps the cache on the host, with kv_offloading_size."
    )
    mxfp4_kernel: Literal["marlin", "triton"] | None = Field(
        default=None, description="Kernel of experts in MXFP4; on Hopper, gpt-oss runs by Triton."
    )
    version: str | None = Field(
        default=None,
        pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.\w{1,20})*$",
        description="Version of vLLM, 0.33 unless it is set.",
        examples=["0.33"],
    )

    @model_validator(mode="after")
    def _flags_go_together(self) -> Self:
        if self.kv_cache_memory_bytes is not None and self.num_gpu_blocks_override is not None:
            sentence = "kv_cache_memory_bytes and num_gpu_blocks_override both set the size of the KV cache."
            raise ConfigError(Message(sentence), "num_gpu_blocks_override")
        if self.speculative == "none":
            check_effect(self, "speculative", ("num_speculative_tokens", "model_draft", "weights_draft"))
        if not self.enable_lora:
            check_effect(self, "enable_lora", ("max_loras", "max_cpu_loras", "max_lora_rank"))
        if self.kv_offloading_size is None:
            check_effect(self, "kv_offloading_size", ("kv_offloading_backend",))
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ConfigError(
                Message(
                    "max_cpu_loras is {n:,}, less than max_loras, {most:,}.", n=self.max_cpu_loras, most=self.max_loras
                ),
                "max_cpu_loras",
                [self.max_loras],
            )
        return self

    @property
    def draft_tokens(self) -> int:
        if self.speculative == "none":
            return 0
        return self.num_speculative_tokens or (1 if self.speculative == "mtp" else 3)

    def is_older_than(self, *version: int) -> bool:
        """Whether vLLM is stated to be of a version before this one."""
        if self.version is None:
            return version > NEWEST
        return tuple(int(part) for part in self.version.split(".")[: len(version)]) < version


SINCE: dict[str, Version] = {
    change: tuple(map(int, version.split(".")))
    for change, version in tomllib.loads(Path(__file__).with_name("changes.toml").read_text(encoding="utf-8")).items()
}
"""The first version that does so, by what it does."""


@lru_cache(maxsize=64)
def changes(version: str | None) -> Mapping[str, bool]:
    """Whether a version of vLLM already does each of them."""
    options = VLLMOptions(version=version)
    return {change: not options.is_older_than(*since) for change, since in SINCE.items()}


def holds(change: str, options: VLLMOptions) -> bool:
    """Whether the version of vLLM in the options already does so."""
    return changes(options.version)[change]
