"""Flags of `mlx_lm.server`, `mlx_lm.generate` and `mlx_lm.convert` by their own names."""

from typing import Literal

from pydantic import Field

from calc.errors import Frozen

STEP = 256
"""Tokens by which a cache grows (`KVCache.step`)."""


class MLXOptions(Frozen):
    """None: what mlx-lm does by itself."""

    prefill_step_size: int = Field(default=2048, ge=STEP, le=2**20, description="Prompt tokens of one forward pass.")
    decode_concurrency: int = Field(default=32, ge=1, le=4096, description="Sequences that run at once.")
    prompt_concurrency: int = Field(default=8, ge=1, le=4096, description="Prompts in one forward pass.")
    max_kv_size: int | None = Field(
        default=None,
        ge=STEP,
        le=2**30,
        description="Tokens of a rotating cache, of mlx_lm.generate and models that keep all tokens otherwise.",
    )
    kv_bits: Literal[2, 3, 4, 5, 6, 8] | None = Field(
        default=None,
        description="Bits of a cached element; by default 16. With fewer the server answers one request at a time.",
    )
    kv_group_size: Literal[32, 64, 128] = Field(default=64, description="Elements of the cache that share a scale.")
    quantized_kv_start: int = Field(
        default=5000, ge=0, le=2**30, description="Tokens from which on the cache is quantized."
    )
    q_group_size: Literal[32, 64, 128] | None = Field(
        default=None, description="Weights that share a scale in a model converted here; by default 64."
    )
    wired_limit_mb: int | None = Field(
        default=None,
        ge=1024,
        le=2**24,
        description="iogpu.wired_limit_mb of macOS: MiB that the GPU may use; by default macOS's own limit.",
    )
