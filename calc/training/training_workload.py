from typing import Literal

from pydantic import Field, model_validator

from calc.errors import Frozen
from calc.serving.engines.transformers.options import Attention
from calc.training.optimizer import Optimizer

Method = Literal["full", "lora", "qlora", "pretrain"]
Recompute = Literal["none", "selective", "alternate", "full"]
LoraTargets = Literal["all", "attention", "qv"]
Loss = Literal["whole", "native", "compiled", "chunked", "fused"]


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
    fp32_rest: bool = False  # QLoRA by PEFT: prepare_model_for_kbit_training casts what is not quantised to fp32
    lora_targets: LoraTargets = "all"
    """All: every matrix of attention and feed-forward but routed experts; qv: queries and values."""
    attention: Attention = "flash"
    recompute: Recompute = "none"
    """Selective: the scores of eager attention; full: everything but each layer's input (arXiv:2205.05198 section 5).
    Alternate: all but that input, attention's output and every other matrix product, as torchtitan chooses by default
    (arXiv:2410.06511 section 2.2.1)."""
    fused: bool = False  # norms and activation functions in one kernel each: Liger, Transformer Engine, torch.compile
    loss: Loss = "whole"
    """Whole: in fp32; native: whole, in the type of the activations; compiled: one kernel on whole logits; chunked: in
    fp32 for one chunk of tokens at a time (torchtune); fused: with the head, so that logits are never whole (Liger)."""
    loss_chunks: int = Field(default=8, ge=1, le=2**16)
    keep_outputs: bool = False  # the training loop holds the logits through the backward pass
    offload_activations: bool = False  # what full recomputation keeps waits in host memory
    optimizer: Optimizer = "adamw"
    optimizer_in_backward: bool = False  # each gradient is used and freed as soon as it is there

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingWorkload":
        if self.optimizer_in_backward and self.accumulation > 1:
            raise ValueError(
                "an optimizer in the backward pass leaves no gradients to accumulate; accumulation must be 1"
            )
        if self.fp32_rest and self.method != "qlora":
            raise ValueError(f"fp32_rest is about what QLoRA leaves unquantised; the method is {self.method}")
        return self

    @property
    def trains_base(self) -> bool:
        """Whether the model's own weights are trained."""
        return self.method in ("full", "pretrain")

    @property
    def trains_output(self) -> bool:
        """Whether attention's output projection is, or has an adapter."""
        return self.trains_base or self.lora_targets != "qv"

    @property
    def trains_feedforward(self) -> bool:
        """Whether the matrices of the feed-forward are, or have adapters."""
        return self.trains_base or self.lora_targets == "all"
