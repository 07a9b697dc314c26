"""What a step's loss is: the method, its lengths, its reference, and how the trainer makes log-probabilities."""

from typing import Literal

from pydantic import Field

from calc.errors import Frozen

MethodName = Literal["sft", "dpo", "kto", "orpo", "simpo", "cpo", "reward", "grpo", "rloo"]
Reference = Literal["model", "precomputed", "adapter-off", "none"]
LogProbs = Literal["fused", "whole", "chunked", "none"]
Release = Literal["1.16", "1.12", "0.24"]


class Objective(Frozen):
    """A loss as TRL computes it. `micro_batch` of the step is per_device_train_batch_size: pairs, sequences, or
    completions."""

    method: MethodName = Field(description="The loss: supervised, preference, reward model, or reinforcement learning.")
    trl: Release = Field(
        default="1.16",
        description="Release of TRL. From 1.15 on SFT, DPO, KTO, GRPO and RLOO build no logits; 0.24 is for DPO.",
    )
    log_probs: LogProbs | None = Field(
        default=None,
        description="Fused: only scored tokens reach the head, by tiles; whole: logits of all; chunked: SFT by 256 "
        "tokens; none given: as the release has it.",
    )
    reference: Reference | None = Field(
        default=None,
        description="What the policy is compared with: a frozen copy (model), log-probabilities made before training "
        "(precomputed), the base under the adapters (adapter-off), or nothing.",
    )
    prompt: int = Field(default=512, ge=0, le=2**30, description="Tokens of each prompt.")
    completion: int = Field(default=512, ge=1, le=2**30, description="Tokens of each completion.")
    completion_only: bool = Field(default=False, description="SFT: only tokens of the completion are scored.")
    packed: int = Field(default=1, ge=1, le=2**20, description="SFT: examples that are packed into a sequence.")
    num_generations: int = Field(default=8, ge=1, le=2**16, description="Completions of a prompt: the group.")
    iterations: int = Field(
        default=1, ge=1, le=2**10, description="Updates on one generation (num_iterations); with more, old ones stay."
    )
    generation_batch: int | None = Field(
        default=None,
        ge=1,
        le=2**24,
        description="Completions that are generated and scored at once (generation_batch_size); none given: those of "
        "a step.",
    )
    beta: float | None = Field(
        default=None, ge=0, le=1000, description="Weight of the reference; 0 (GRPO's default) needs none."
    )
    vllm: bool = Field(
        default=False, description="GRPO: vLLM generates, so that old log-probabilities are made in every step."
    )
    shards_reference: bool = Field(
        default=True,
        description="FSDP: layers of the reference are units; no: it is gathered whole, as TRL's prepare_fsdp does.",
    )

    @property
    def sequence(self) -> int:
        """Tokens of a sequence."""
        return self.prompt + self.completion
