from typing import Literal

from pydantic import Field

from calc.frozen import Frozen

Attention = Literal["flash", "eager"]
Engine = Literal["vllm", "transformers"]
Method = Literal["full", "lora", "qlora", "pretrain"]
Recompute = Literal["none", "selective", "full"]
LoraTargets = Literal["all", "attention", "qv"]
Loss = Literal["whole", "chunked", "fused"]
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


class TrainingWorkload(Frozen):
    """One optimizer step of each data-parallel replica: `accumulation` micro-batches, each of `micro_batch` sequences
    of `sequence` tokens."""

    micro_batch: int = Field(default=1, ge=1, le=2**24)
    sequence: int = Field(default=4096, ge=1, le=2**30)
    accumulation: int = Field(default=1, ge=1, le=2**20)
    method: Method = "full"
    """Pre-training and full fine-tuning train every weight; LoRA (arXiv:2106.09685) and QLoRA (arXiv:2305.14314) train
    adapters beside frozen weights, which QLoRA quantises."""
    lora_rank: int = Field(default=16, ge=1, le=2**16)
    lora_targets: LoraTargets = "all"
    """All: every matrix of attention and feed-forward but routed experts; qv: queries and values."""
    attention: Attention = "flash"
    recompute: Recompute = "none"
    """Selective: the scores of eager attention; full: everything but each layer's input. arXiv:2205.05198 section 5."""
    fused: bool = False  # norms and activation functions in one kernel each: Liger, Transformer Engine, torch.compile
    loss: Loss = "whole"
    """Chunked: fp32 for one chunk of tokens at a time; fused: with the head, so that logits are never whole (Liger)."""
    loss_chunks: int = Field(default=8, ge=1, le=2**16)
    offload_activations: bool = False  # what full recomputation keeps waits in host memory
    optimizer_in_backward: bool = False  # each gradient is used and freed as soon as it is there

    @property
    def trains_base(self) -> bool:
        """Whether the model's own weights are trained."""
        return self.method in ("full", "pretrain")

    @property
    def trains_feedforward(self) -> bool:
        """Whether the matrices of the feed-forward are, or have adapters."""
        return self.trains_base or self.lora_targets == "all"
