from typing import Literal

from calc.errors import Frozen, Message
from calc.units import GIB

Engine = Literal["vllm", "sglang", "torch"]


class Settings(Frozen):
    """What the engine was started with, as far as the log says; SGLang's names stand after the semicolon."""

    model: str | None = None  # model_path
    max_model_len: int | None = None  # max_seq_len; context_length
    tensor_parallel_size: int | None = None  # tp_size
    pipeline_parallel_size: int | None = None  # pp_size
    data_parallel_size: int | None = None  # dp_size
    gpu_memory_utilization: float | None = None  # vLLM: share of the GPU for everything
    mem_fraction_static: float | None = None  # SGLang: share of the GPU for weights and cache
    max_num_batched_tokens: int | None = None  # chunked_prefill_size
    max_num_seqs: int | None = None  # max_running_requests
    block_size: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    enforce_eager: bool | None = None  # disable_cuda_graph
    enable_lora: bool | None = None
    speculative: bool | None = None  # True: speculative_config; speculative_algorithm


class OutOfMemory(Frozen):
    """PyTorch's message, in bytes."""

    tried: int
    total: int | None = None
    free: int | None = None
    in_use: int | None = None  # by this process; where a container hides its number, by all that are listed
    allocated: int | None = None  # by PyTorch
    reserved: int | None = None  # by PyTorch, but not allocated


class Log(Frozen):
    """What a start-up log states; None: not stated.

    Sizes are bytes on one rank: of several ranks the largest of each size, and the least cache and free memory, which
    is what the fullest one has; `notes` say so. Both engines divide by 2^30: vLLM writes GiB, and GB before 0.8; SGLang
    (get_available_gpu_memory, memory_pool.py) writes GB. Most figures have two decimals, hence `ROUNDING`.
    """

    engine: Engine
    version: str | None = None
    settings: Settings = Settings()
    weights: int | None = None
    kv_bytes: int | None = None
    kv_tokens: int | None = None
    concurrency: float | None = None  # requests of `concurrency_length` tokens that the cache holds
    concurrency_length: int | None = None
    kv_needed: int | None = None  # for one request of max_model_len tokens, when the engine refused to start
    estimated_max_model_len: int | None = None
    activations: int | None = None
    non_torch: int | None = None
    cuda_graphs: int | None = None
    total: int | None = None
    free: int | None = None
    ranks: int = 1
    starts: int = 1
    out_of_memory: OutOfMemory | None = None
    notes: tuple[Message, ...] = ()


ROUNDING = GIB // 200
"""Half of the last digit of a size with two decimals, 0.005 GiB."""
