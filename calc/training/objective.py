"""What a step's loss is: the method, its lengths, its reference, and how the trainer makes log-probabilities; and the
engine that generates what it is computed on."""

from typing import Any, Literal

from pydantic import Field, field_serializer, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.model.architecture import Architecture

MethodName = Literal[
    "sft", "dpo", "kto", "orpo", "simpo", "cpo", "reward", "grpo", "rloo", "ppo", "gkd", "distillation"
]
Reference = Literal["model", "precomputed", "adapter-off", "none"]
LogProbs = Literal["fused", "whole", "chunked", "none", "in-place", "in-fp32"]
Release = Literal["1.16", "1.12", "0.24"]
Rollout = Literal["colocated", "server"]


class Objective(Frozen):
    """A loss as TRL computes it. `micro_batch` of the step is per_device_train_batch_size: pairs, sequences, or
    completions."""

    method: MethodName = Field(description="The loss: supervised, preference, reward model, or reinforcement learning.")
    trl: Release | None = Field(
        default=None,
        description="Release of TRL; none given: the newest that is known. From 1.15 on SFT, DPO, KTO, GRPO and RLOO "
        "build no logits; 0.24 is for DPO.",
    )
    log_probs: LogProbs | None = Field(
        default=None,
        description="Fused: only scored tokens reach the head, by tiles; whole: logits of all; chunked: SFT by 256 "
        "tokens; in-place and in-fp32: by one kernel on logits of all, as verl and OpenRLHF do; none given: as the "
        "release has it.",
    )
    reference: Reference | None = Field(
        default=None,
        description="What the policy is compared with: a frozen copy (model), log-probabilities made before training "
        "(precomputed), the base under the adapters (adapter-off), or nothing.",
    )
    prompt: int = Field(default=512, ge=0, le=2**30, description="Tokens of each prompt.")
    completion: int = Field(default=512, ge=1, le=2**30, description="Tokens of each completion.")
    mean_completion: int | None = Field(
        default=None,
        ge=1,
        le=2**30,
        exclude_if=lambda tokens: tokens is None,
        description="Tokens of a generated completion on average, for the time; none given: all are as long as they "
        "may be.",
    )
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
        default=None,
        ge=0,
        le=1000,
        description="Weight of the reference; 0 (GRPO's default) needs none. Distillation: 0 the teacher's divergence "
        "from the policy, 1 the policy's from the teacher, between them that of both from their mixture.",
    )
    entropy_bonus: bool = Field(
        default=False, description="GRPO: the loss rewards entropy (entropy_coef), which then has a gradient."
    )
    engine_generates: bool = Field(
        default=False,
        description="An engine generates, so that old log-probabilities are made in every step, to correct for it.",
    )
    shards_reference: bool = Field(
        default=True,
        description="FSDP: layers of the reference are units; no: it is gathered whole, as TRL's prepare_fsdp does.",
    )

    teacher: Architecture | None = Field(
        default=None,
        exclude_if=lambda teacher: teacher is None,
        description="Distillation: the model whose distribution is learned; none given: a frozen copy of the model.",
    )

    @field_serializer("teacher")
    def _in_short(self, teacher: Architecture) -> dict[str, Any]:
        return {"model_type": teacher.model_type, "parameters": teacher.parameters().total}

    @property
    def sequence(self) -> int:
        """Tokens of a sequence."""
        return self.prompt + self.completion


class Colocation(Frozen):
    """Where an engine generates, and what it gives back while the model is trained."""

    rollout: Rollout = Field(
        default="colocated", description="The engine generates on the GPUs that train, or on others."
    )
    engine_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the GPU that the engine takes while it generates: none given, TRL's defaults, 0.3, and "
        "0.9 on a server; verl's is 0.5.",
    )
    sleep_level: Literal[0, 1, 2] = Field(
        default=0,
        description="What the engine gives back after generating: 0 nothing, 1 weights and cache with the weights in "
        "host memory, 2 both for good; graphs and libraries stay.",
    )
    rollout_tp: int = Field(default=1, ge=1, le=1024, description="GPUs over which the engine splits the model.")
    rollout_dp: int = Field(
        default=1, ge=1, le=2**16, description="Engines on GPUs of their own, which share the completions."
    )
    offload_weights: bool = Field(
        default=False, description="Trained weights wait in host memory while the engine generates (param_offload)."
    )
    offload_optimizer: bool = Field(
        default=False, description="States of the optimizer wait in host memory but for the update (optimizer_offload)."
    )
    shared_weights: bool = Field(
        default=False, description="LoRA's frozen weights are the engine's own, stored once, as unsloth has them."
    )
    own_process: bool = Field(
        default=False, description="The engine runs in a process of its own, with a CUDA context of its own, as verl's."
    )
    bucket_mib: int = Field(
        default=0, ge=0, le=2**20, description="MiB of a buffer in which weights are handed over; 0: one at a time."
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Colocation":
        if self.rollout == "server" and self.sleep_level:
            sentence = "An engine on GPUs of its own has nothing to give back: sleep_level is for a colocated one."
            raise ConfigError(Message(sentence), "sleep_level", [0])
        if self.rollout == "server" and self.shared_weights:
            raise ConfigError(Message("An engine on GPUs of its own can't share weights."), "shared_weights", [0])
        if self.rollout == "colocated" and self.rollout_dp > 1:
            sentence = "On the GPUs that train there are as many engines as these hold: rollout_dp is for others."
            raise ConfigError(Message(sentence), "rollout_dp", [1])
        return self

    @property
    def engine_gpus(self) -> int:
        """GPUs of the engines."""
        return self.rollout_tp * self.rollout_dp

    @property
    def share(self) -> float:
        """Share of the GPU that the engine takes (TRL 1.16, trainer/grpo_config.py and scripts/vllm_serve.py)."""
        return self.engine_share or (0.3 if self.rollout == "colocated" else 0.9)
