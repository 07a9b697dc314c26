"""What trainers set by default, where a step's memory depends on it."""

from typing import Any

from calc.errors import Frozen
from calc.training.recipe import RecipeName


class Trainer(Frozen):
    """Options of a step, of mixed precision and of the layout as a trainer leaves them."""

    title: str
    workload: dict[str, Any] = {}
    recipe: RecipeName
    layout: dict[str, Any] = {}
    source: str


FUSED_ADAMW = {"optimizer": "adamw", "optimizer_kernel": "fused"}
PEFT = {"fp32_adapters": True}

TRAINERS: dict[str, Trainer] = {
    "transformers": Trainer(
        title="Transformers Trainer",
        workload=FUSED_ADAMW | PEFT,
        recipe="bf16",  # checkpoints are loaded in their own type, and bf16 is off
        source="transformers 5.23, training_args.py and modeling_utils.py; PEFT 0.21.2, autocast_adapter_dtype",
    ),
    "trl": Trainer(
        title="TRL SFTTrainer",
        workload=FUSED_ADAMW | PEFT | {"recompute": "full", "loss": "fused"},
        recipe="bf16-autocast",
        source="TRL 1.6, sft_config.py: gradient_checkpointing, bf16, and loss_type chunked_nll: logits never whole",
    ),
    "axolotl": Trainer(
        title="Axolotl",
        workload=FUSED_ADAMW | PEFT | {"recompute": "full"},
        recipe="bf16-autocast",
        source="Axolotl, examples: bf16 auto, gradient_checkpointing true, flash_attention true",
    ),
    "torchtune": Trainer(
        title="torchtune",
        workload=FUSED_ADAMW | {"recompute": "full", "loss": "chunked", "loss_chunks": 8, "repeated_keys": True},
        recipe="bf16",
        source="torchtune 0.6, recipes/configs: dtype, loss, enable_activation_checkpointing; modules/attention.py",
    ),
    "torchtitan": Trainer(
        title="torchtitan (FSDP2)",
        workload=FUSED_ADAMW | {"method": "pretrain", "recompute": "alternate", "repeated_keys": True},
        recipe="autocast",
        layout={"zero": 3, "reduce": "fp32"},
        source="torchtitan, arXiv:2410.06511 sections 2.1 and 2.2",
    ),
    "fsdp2": Trainer(
        title="FSDP2 (fully_shard)",
        recipe="autocast",
        layout={"zero": 3, "reduce": "fp32"},
        source="torch 2.13, distributed/fsdp; tracked by its own FSDPMemTracker",
    ),
    "megatron": Trainer(
        title="Megatron-LM",
        workload={"method": "pretrain", "fused": True},
        recipe="megatron",
        layout={"sequence_parallel": False},
        source="Megatron-LM, training/arguments.py: neither distributed optimizer nor sequence parallel by itself",
    ),
    "deepspeed": Trainer(
        title="DeepSpeed ZeRO-2",
        recipe="deepspeed",
        layout={"zero": 2},
        source="DeepSpeed, runtime/zero/stage_1_and_2.py and runtime/zero/config.py: reduce_bucket_size 5e8",
    ),
}
