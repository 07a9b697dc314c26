"""What trainers set by default, where a step's memory depends on it."""

from typing import Any

from calc.errors import Frozen
from calc.formats import WeightFormat
from calc.training.recipe import RecipeName
from calc.training.training_workload import Method


class Trainer(Frozen):
    """Options of a step, of mixed precision and of the layout as a trainer leaves them. `lora` and `qlora` are those
    that it sets otherwise for adapters, and `base` is how it stores what is frozen beside them; None: in 16 bits, and
    for QLoRA in 4."""

    title: str
    workload: dict[str, Any] = {}
    recipe: RecipeName
    layout: dict[str, Any] = {}
    lora: dict[str, Any] = {}
    qlora: dict[str, Any] = {}
    adapter_recipe: RecipeName | None = None
    base: WeightFormat | None = None
    source: str

    def of(self, method: Method) -> "Trainer":
        """The same for one method, whose own options stand among all."""
        if method not in ("lora", "qlora"):
            return self.model_copy(update={"base": None})
        return self.model_copy(
            update={
                "workload": self.workload | (self.qlora if method == "qlora" else self.lora),
                "recipe": self.adapter_recipe or self.recipe,
                "base": self.base if method == "lora" else None,
            }
        )


FUSED_ADAMW = {"optimizer": "adamw", "optimizer_kernel": "fused"}
PEFT = {"fp32_adapters": True}  # autocast_adapter_dtype

TRAINERS: dict[str, Trainer] = {
    "transformers": Trainer(
        title="Transformers Trainer",
        workload=FUSED_ADAMW,
        recipe="bf16",  # from_pretrained takes the checkpoint's own type, and bf16 is off
        lora=PEFT,
        qlora=PEFT,
        source="transformers 5.23, training_args.py and modeling_utils.py; PEFT 0.21.2, autocast_adapter_dtype",
    ),
    "trl": Trainer(
        title="TRL SFTTrainer",
        workload=FUSED_ADAMW | {"recompute": "full", "loss": "tiled"},
        recipe="autocast",  # a model that is named is loaded in fp32, unless model_init_kwargs says otherwise
        lora=PEFT,
        qlora={"fp32_rest": True},  # dtype float32; the adapters are cast to bf16
        adapter_recipe="bf16-autocast",
        base="fp32",
        source="TRL 1.16: base_config.py (gradient_checkpointing, bf16), sft_config.py and kernels/chunked_logprob.py "
        "(loss_type nll by tiles of logits, gradients in fp32), trainer/utils.py (create_model_from_path: "
        "dtype float32), sft_trainer.py (adapters of quantized models in bf16)",
    ),
    "axolotl": Trainer(
        title="Axolotl",
        workload=FUSED_ADAMW,
        recipe="bf16-autocast",
        lora=PEFT,
        qlora=PEFT,  # loaders/model.py casts norms and embeddings back to bf16 after prepare_model_for_kbit_training
        source="Axolotl 0.19, utils/schemas/config.py: bf16 auto, gradient_checkpointing false; training.py: "
        "adamw_torch_fused; loaders/model.py. Its examples turn gradient_checkpointing on",
    ),
    "torchtune": Trainer(
        title="torchtune",
        workload=FUSED_ADAMW | {"recompute": "full", "loss": "chunked", "loss_chunks": 8, "repeated_keys": True},
        recipe="bf16",
        source="torchtune 0.6.1, recipes/configs: bf16, CEWithChunkedOutputLoss, enable_activation_checkpointing true; "
        "modules/attention.py",
    ),
    "torchtitan": Trainer(
        title="torchtitan (FSDP2)",
        workload=FUSED_ADAMW | {"method": "pretrain", "recompute": "alternate", "loss": "stepwise", "loss_chunks": 8},
        recipe="autocast",
        layout={"zero": 3, "reduce": "fp32", "separate_embedding": True},
        source="torchtitan 0.3: trainer.py (SelectiveAC), config/configs.py (bf16 parameters, fp32 reduction), "
        "distributed/fsdp.py (a unit of the embedding, one of norm and head), "
        "models/llama3/config_registry.py (ChunkedLossWrapper), models/common/attention.py (enable_gqa)",
    ),
    "fsdp2": Trainer(
        title="FSDP2 (fully_shard)",
        recipe="autocast",
        layout={"zero": 3, "reduce": "fp32"},
        source="torch 2.13, distributed/fsdp, with MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32); "
        "tracked by its own FSDPMemTracker",
    ),
    "megatron": Trainer(
        title="Megatron-LM",
        workload={"method": "pretrain", "fused": True},
        recipe="megatron",
        layout={"sequence_parallel": False},
        source="Megatron-Core 0.16.1: model_parallel_config.py (sequence_parallel false), "
        "distributed_data_parallel_config.py (use_distributed_optimizer false), transformer_config.py "
        "(recompute_granularity none), optimizer_config.py (fp32 gradients and states)",
    ),
    "deepspeed": Trainer(
        title="DeepSpeed ZeRO-2",
        recipe="deepspeed",
        layout={"zero": 2},
        source="DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py and runtime/zero/config.py: reduce_bucket_size 5e8, "
        "overlap_comm false before stage 3; its own default stage is 0",
    ),
}
