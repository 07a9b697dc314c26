"""TensorRT-LLM's flags, and settings of its configuration file, under their own names."""

from typing import Literal

from pydantic import Field

from calc.errors import Frozen


class TensorRTLLMOptions(Frozen):
    """Flags of `trtllm-serve` and fields of `TorchLlmArgs` and `KvCacheConfig`; None: its own default."""

    free_gpu_memory_fraction: float | None = Field(
        default=None, gt=0, le=1, description="Share of what weights and a pass leave free, for the KV cache."
    )
    max_batch_size: int | None = Field(default=None, ge=1, le=2**24, description="Sequences that run at once.")
    max_num_tokens: int | None = Field(default=None, ge=1, le=2**30, description="Tokens of one forward pass.")
    enable_chunked_prefill: bool = Field(
        default=True, description="Prompts longer than one pass are read in chunks; without it they are refused."
    )
    tokens_per_block: Literal[8, 16, 32, 64, 128, 256] = Field(
        default=32, description="Tokens of one block of the cache."
    )
    cuda_graph_config: bool = Field(default=True, description="CUDA graphs; null turns them off.")
    disable_mm_encoder: bool = Field(default=False, description="Leave the vision encoder out.")
