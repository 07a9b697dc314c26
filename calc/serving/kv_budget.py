"""What an engine sets aside for its cache on a GPU."""

from calc.errors import Frozen


class KVBudget(Frozen):
    """What an engine sets aside for its cache on a GPU, and what that holds. Bytes are those of the most loaded GPU;
    `bytes` counts the middle of the ranges that are not closed."""

    gpu: str
    gpu_memory_utilization: float  # the share of vLLM's flag, or of the one that another engine has instead
    max_num_seqs: int
    max_num_batched_tokens: int
    requested: int
    weights: int  # as loaded: with tables, padding and rounding
    profile: int
    bytes: int
    bytes_low: int
    bytes_high: int
    block_size: int
    blocks: int
    tokens: int
    concurrency: float
    """Requests of the whole context that fit at once."""
    concurrency_low: float
    concurrency_high: float
    max_model_len: int
    """The longest request that the engine accepts; 0 where it stops before it plans a cache."""
    outside_low: int  # overhead that lies outside of what it takes: a CUDA context
    outside_high: int

    @property
    def driver_bytes(self) -> int:
        """Bytes that the driver shows as used on this GPU once the engine has worked at its peak: what it takes, and
        what lies outside."""
        return self.requested + (self.outside_low + self.outside_high) // 2
