"""What SGLang is started with: its flags under their own names."""

from typing import Literal

from pydantic import Field

from calc.errors import Frozen

StateStrategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]


class SGLangOptions(Frozen):
    """Flags of `sglang.launch_server`; None: SGLang's own default, which depends on the GPU and the model."""

    mem_fraction_static: float | None = Field(
        default=None, gt=0, le=1, description="Share of the GPU's free memory for weights and cache."
    )
    chunked_prefill_size: int | None = Field(default=None, ge=1, le=2**30, description="Tokens of one prefill pass.")
    cuda_graph_max_bs: int | None = Field(
        default=None, ge=1, le=2**20, description="Largest batch that CUDA graphs are captured for."
    )
    max_running_requests: int | None = Field(default=None, ge=1, le=2**24, description="Sequences that run at once.")
    page_size: int | None = Field(default=None, ge=1, le=4096, description="Tokens of one page of the cache.")
    swa_full_tokens_ratio: float | None = Field(
        default=None, gt=0, le=1, description="Tokens in layers with a window, per token in layers that keep all."
    )
    mamba_full_memory_ratio: float = Field(
        default=0.9, gt=0, le=100, description="Memory of recurrent states, per memory of the KV cache."
    )
    max_mamba_cache_size: int | None = Field(
        default=None, ge=1, le=2**24, description="Recurrent states, instead of a share of the memory."
    )
    mamba_radix_cache_strategy: StateStrategy | None = Field(
        default=None, description="How the prefix cache keeps recurrent states: copies that a request takes along."
    )
    disable_radix_cache: bool = Field(default=False, description="No prefix cache.")
    disable_cuda_graph: bool = Field(default=False, description="No CUDA graphs.")
    scheduler_recv_interval: int = Field(
        default=1, ge=1, le=2**20, description="Decode steps from one look for new requests to the next."
    )
    language_model_only: bool = Field(default=False, description="Leave the vision encoder out.")
