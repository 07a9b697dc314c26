"""Mixed precision: in what a step keeps the trained weights, their gradients and the optimizer's states."""

from typing import Literal

from calc.errors import Frozen

Float = Literal["bf16", "fp16", "fp32"]
WIDTH: dict[Float, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
RecipeName = Literal["bf16", "master", "deepspeed", "megatron", "autocast", "fp32"]


class Recipe(Frozen):
    """Storage of a trained weight and what belongs to it; `compute` is that of activations and gathered weights."""

    weights: Float
    gradients: Float
    states: Float
    master: bool = False  # the optimizer updates an fp32 copy
    compute: Float = "bf16"
    copies_gradients: bool = False  # the optimizer's step flattens them all, and casts what is flat to fp32
    bucket: int = 0  # elements of each of the two buffers that gradients are reduced in

    @property
    def casts(self) -> bool:
        """Whether the matrices are cast for every product."""
        return WIDTH[self.weights] > WIDTH[self.compute]


RECIPES: dict[RecipeName, Recipe] = {
    # everything in 16 bits, as torchtune trains: 8 bytes a weight with Adam
    "bf16": Recipe(weights="bf16", gradients="bf16", states="bf16"),
    # 16 bytes a weight: ZeRO section 3.1, arXiv:1910.02054
    "master": Recipe(weights="bf16", gradients="bf16", states="fp32", master=True),
    # the same as DeepSpeed holds it (runtime/zero/stage_1_and_2.py), with its default reduce_bucket_size
    "deepspeed": Recipe(
        weights="bf16", gradients="bf16", states="fp32", master=True, copies_gradients=True, bucket=500_000_000
    ),
    # 18 bytes a weight: gradients are reduced in fp32 (Megatron-LM, distributed optimizer)
    "megatron": Recipe(weights="bf16", gradients="fp32", states="fp32", master=True),
    # fp32 weights that torch.autocast or FSDP casts for every product: 16 bytes a weight, and the casts
    "autocast": Recipe(weights="fp32", gradients="fp32", states="fp32"),
    "fp32": Recipe(weights="fp32", gradients="fp32", states="fp32", compute="fp32"),
}
