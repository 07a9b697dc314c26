from typing import Literal

from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.serving.engines.transformers.options import Attention

Optimizer = Literal["adamw", "adamw-8bit", "adamw-8bit-ao", "adafactor", "muon", "sgd", "sgd-momentum"]
OptimizerKernel = Literal["foreach", "for-loop", "fused"]
Method = Literal["full", "lora", "qlora", "pretrain"]
Recompute = Literal["none", "selective", "alternate", "full"]
LoraTargets = Literal["all", "dense", "attention", "qv"]
Products = Literal["compute", "fp8", "mxfp8", "nvfp4"]
Loss = Literal["whole", "native", "compiled", "chunked", "stepwise", "tiled", "fused"]


class TrainingWorkload(Frozen):
    """One optimizer step of each data-parallel replica: `accumulation` micro-batches, each of `micro_batch` sequences
    of `sequence` tokens."""

    micro_batch: int = Field(default=1, ge=1, le=2**24, description="Sequences of one forward and backward pass.")
    sequence: int = Field(default=4096, ge=1, le=2**30, description="Tokens of each sequence.")
    accumulation: int = Field(
        default=1, ge=1, le=2**20, description="Micro-batches of a step; with pipeline stages, those in flight."
    )
    method: Method = Field(
        default="full", description="Which weights are trained: all of them, or adapters beside frozen ones."
    )
    """Pre-training and full fine-tuning train every weight; LoRA (arXiv:2106.09685) and QLoRA (arXiv:2305.14314) train
    adapters beside frozen weights, which QLoRA quantizes."""
    lora_rank: int = Field(default=16, ge=1, le=2**16, description="Rank of the adapters of LoRA and QLoRA.")
    fp32_rest: bool = Field(
        default=False, description="QLoRA: cast what is not quantized to fp32, as PEFT does by default."
    )
    """`prepare_model_for_kbit_training`."""
    quantized_experts: bool = Field(
        default=False,
        description="QLoRA: routed experts are quantized too, as by Axolotl's quantize_moe_experts; bitsandbytes alone "
        "leaves the stacked experts of transformers 5 in 16 bits.",
    )
    lora_targets: LoraTargets = Field(default="all", description="Matrices that have adapters.")
    """All, as PEFT reads all-linear, which takes in stacked experts; dense: every matrix but those of routed experts
    and routers; attention; qv: queries and values."""
    lora_dropout: bool = Field(default=False, description="Dropout before the adapters.")
    fp32_adapters: bool = Field(default=False, description="Adapters in fp32 beside 16-bit weights, PEFT's default.")
    attention: Attention = Field(default="flash", description="Kernel of attention.")
    repeated_keys: bool = Field(
        default=False,
        description="Keys and values are repeated for every query head before the kernel, as torchtune and torchtitan "
        "do; transformers leaves that to flash attention.",
    )
    recompute: Recompute = Field(
        default="none",
        description="Activation checkpointing: what is computed again in the backward pass. Full keeps only the input "
        "of each layer, every other matmul keeps more, selective drops the scores of eager attention.",
    )
    """Selective: the scores of eager attention; full: everything but each layer's input (arXiv:2205.05198 section 5).
    Alternate: all but that input, attention's output and every other matrix product, as torchtitan chooses by default
    (arXiv:2410.06511 section 2.2.1)."""
    reentrant: bool = Field(default=False, description="The older kind of checkpointing, use_reentrant=True.")
    fused: bool = Field(
        default=False,
        description="Norms and activation functions in one kernel each: Liger, Transformer Engine, torch.compile.",
    )
    loss: Loss = Field(
        default="whole",
        description="How the logits meet the loss. Chunked: for one chunk of tokens at a time; fused: with the output "
        "layer, so that the logits are never whole.",
    )
    """Whole: in fp32; native: whole, in the type of the activations; compiled: one kernel on whole logits; chunked: in
    fp32 for one chunk of tokens at a time (torchtune); stepwise: so, with head and backward of each chunk (torchtitan);
    tiled: with the head by tiles of tokens and vocabulary, made again going back (TRL); fused: with the head, so that
    logits are never whole (Liger)."""
    loss_chunks: int = Field(default=8, ge=1, le=2**16, description="Chunks of a chunked loss.")
    keep_outputs: bool = Field(
        default=False, description="The training loop holds the logits through the backward pass; Trainers do not."
    )
    offload_activations: bool = Field(
        default=False, description="What full activation checkpointing keeps waits in CPU memory."
    )
    products: Products = Field(
        default="compute",
        description="What matrices multiply in, for the time: the type of the recipe, FP8 with a scale for each "
        "tensor, MXFP8 or NVFP4. The memory is that of the recipe.",
    )
    optimizer: Optimizer = Field(
        default="adamw", description="What updates the weights, and what it remembers of them."
    )
    optimizer_kernel: OptimizerKernel | None = Field(
        default=None,
        description="How torch's AdamW and SGD run: on all tensors at once (foreach, torch's default), tensor by "
        "tensor (for-loop), or in one kernel (fused); none: the framework's default.",
    )
    optimizer_in_backward: bool = Field(
        default=False, description="Each gradient is used and freed as soon as it is there; none can be accumulated."
    )

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingWorkload":
        if self.optimizer_in_backward and self.accumulation > 1:
            raise ConfigError(
                Message("An optimizer in backward leaves no gradients to accumulate; accumulation must be 1."),
                "accumulation",
                [1],
            )
        if self.fp32_rest and self.method != "qlora":
            raise ConfigError(
                Message("fp32_rest is about what QLoRA leaves unquantized; the method is {name}.", name=self.method),
                "method",
                ["qlora"],
            )
        return self

    @property
    def trains_base(self) -> bool:
        """Whether the model's own weights are trained."""
        return self.method in ("full", "pretrain")
