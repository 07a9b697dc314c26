from typing import Literal

from pydantic import Field

from calc.frozen import Frozen

Attention = Literal["flash", "eager"]
Engine = Literal["vllm", "transformers"]
MAX_TOKENS = 2**40


class Workload(Frozen):
    """What the GPU is asked to do: serve `batch` sequences at once, each of `context` tokens."""

    batch: int = Field(default=1, ge=1, le=2**24)
    context: int = Field(default=8192, ge=1, le=2**30)
    prefill_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Prompt tokens in one forward pass; None: the engine's own habit."""
    attention: Attention = "flash"
    engine: Engine = "vllm"

    @property
    def step_tokens(self) -> int:
        """Tokens in the largest forward pass. vLLM cuts prefill into chunks of 8,192 (`max_num_batched_tokens` of its
        server on large GPUs); transformers passes the whole prompts at once."""
        whole = self.batch * self.context
        if self.prefill_tokens is not None:
            return min(whole, self.prefill_tokens)
        return min(whole, 8192) if self.engine == "vllm" else whole
