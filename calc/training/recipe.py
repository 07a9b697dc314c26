"""Mixed precision: in what a step keeps the trained weights, their gradients and the optimizer's states."""

from typing import Literal

from pydantic import Field

from calc.errors import Frozen

Float = Literal["bf16", "fp16", "fp32"]
WIDTH: dict[Float, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
RecipeName = Literal[
    "bf16", "bf16-autocast", "autocast", "fp32", "master", "master-each", "master-all", "deepspeed", "megatron"
]


class Recipe(Frozen):
    """Storage of a trained weight and what belongs to it; `compute` is that of activations and gathered weights."""

    weights: Float = Field(description="Trained weights.")
    gradients: Float = Field(description="Their gradients.")
    states: Float = Field(description="Moments of the optimizer.")
    master: bool = Field(default=False, description="The optimizer updates an fp32 copy.")
    compute: Float = Field(default="bf16", description="What matrices multiply.")
    autocast: bool = Field(default=False, description="torch.autocast runs round the forward pass and the loss.")
    buffers: bool = Field(
        default=False, description="Gradients are added into buffers that are held all the time, of their own type."
    )
    casts: Literal["none", "each", "all"] = Field(
        default="none",
        description="At the optimizer's step gradients are cast to fp32: each is let go of then, or all are held.",
    )
    flattened: bool = Field(
        default=False, description="At the optimizer's step all gradients are flattened, and that is cast to fp32."
    )
    bucket: int = Field(default=0, ge=0, le=2**40, description="Elements of a buffer that gradients are reduced in.")
    overlap: bool = Field(default=False, description="A second such buffer is filled meanwhile.")
    reuse: int = Field(
        default=0,
        ge=0,
        le=2**40,
        description="ZeRO-3: elements until its next use within which a weight stays gathered.",
    )
    prefetch: int = Field(default=0, ge=0, le=2**40, description="ZeRO-3: elements of weights gathered ahead of use.")
    sub_group: int = Field(default=0, ge=0, le=2**40, description="ZeRO-3: elements that are updated at a time.")
    casts_model: bool = Field(
        default=False, description="The framework casts the whole model to 16 bits, also what PEFT has made fp32."
    )
    saves_inputs: bool = Field(
        default=False, description="The product with a quantized matrix saves its input (bitsandbytes 0.41)."
    )
    fused: bool = Field(default=False, description="The framework's AdamW is one kernel, not torch's foreach.")


RECIPES: dict[RecipeName, Recipe] = {
    # everything in 16 bits, as torchtune trains: 8 bytes a weight with Adam
    "bf16": Recipe(weights="bf16", gradients="bf16", states="bf16"),
    # the same under torch.autocast: transformers' Trainer with a 16-bit model and bf16=True
    "bf16-autocast": Recipe(weights="bf16", gradients="bf16", states="bf16", autocast=True),
    # fp32 weights that torch.autocast or FSDP casts for every product: 16 bytes a weight, and the casts
    "autocast": Recipe(weights="fp32", gradients="fp32", states="fp32", autocast=True),
    "fp32": Recipe(weights="fp32", gradients="fp32", states="fp32", compute="fp32"),
    # 16 bytes a weight: ZeRO section 3.1, arXiv:1910.02054
    "master": Recipe(weights="bf16", gradients="bf16", states="fp32", master=True, buffers=True, fused=True),
    # fp32 copies that torch's AdamW updates; a gradient goes as it is cast (Megatron-LM, without a main_grad buffer)
    "master-each": Recipe(weights="bf16", gradients="bf16", states="fp32", master=True, casts="each"),
    # the same, but 16-bit gradients stay until the end (Apex O2)
    "master-all": Recipe(weights="bf16", gradients="bf16", states="fp32", master=True, casts="all"),
    # the same as DeepSpeed 0.19.8 holds it (runtime/zero/stage_1_and_2.py and stage3.py), with its defaults for
    # reduce_bucket_size, stage3_max_reuse_distance, stage3_prefetch_bucket_size and sub_group_size (zero/config.py);
    # allgather_bucket_size only divides views, and stage3_max_live_parameters only stops prefetching
    "deepspeed": Recipe(
        weights="bf16",
        gradients="bf16",
        states="fp32",
        master=True,
        buffers=True,
        flattened=True,
        bucket=500_000_000,
        reuse=1_000_000_000,
        prefetch=50_000_000,
        sub_group=1_000_000_000,
        casts_model=True,
        fused=True,
    ),
    # 18 bytes a weight: gradients are reduced in fp32 (Megatron-LM, distributed optimizer)
    "megatron": Recipe(weights="bf16", gradients="fp32", states="fp32", master=True, buffers=True, fused=True),
}
