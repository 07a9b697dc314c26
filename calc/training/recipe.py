"""Mixed precision: in what a step keeps the trained weights, their gradients and the optimizer's states; and what
trainers set by default."""

from typing import Any, Literal

from pydantic import Field

from calc.errors import Frozen
from calc.formats import WeightFormat
from calc.training.workload import Method

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


# What trainers set by default, where a step's memory depends on it.


class Trainer(Frozen):
    """Options of a step, of mixed precision and of the layout as a trainer leaves them. `lora` and `qlora` are those
    that it sets otherwise for adapters, and `base` is how it stores what is frozen beside them; None: in 16 bits, and
    for QLoRA in 4. `objective` is how it makes the loss of a method of reinforcement learning, and `engine` how it runs
    the one that generates."""

    title: str
    workload: dict[str, Any] = {}
    recipe: RecipeName
    layout: dict[str, Any] = {}
    lora: dict[str, Any] = {}
    qlora: dict[str, Any] = {}
    adapter_recipe: RecipeName | None = None
    base: WeightFormat | None = None
    objective: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    source: str

    def of(self, method: Method) -> "Trainer":
        """The same for one method, whose own options stand among all."""
        if method not in ("lora", "qlora"):
            own_weights = {name: value for name, value in self.engine.items() if name != "shared_weights"}
            return self.model_copy(update={"base": None, "engine": own_weights})
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
        title="TRL",
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
    "verl": Trainer(
        title="verl (FSDP)",
        workload=FUSED_ADAMW | {"recompute": "full"},
        recipe="autocast",
        layout={"zero": 3, "reduce": "fp32"},
        lora=PEFT,
        objective={"log_probs": "in-place"},
        engine={"engine_share": 0.5, "sleep_level": 2, "own_process": True, "bucket_mib": 2048},
        source="verl 0.9.1, trainer/config: engine/fsdp.yaml (model_dtype fp32, no offload), model/hf_model.yaml "
        "(enable_gradient_checkpointing), rollout/rollout.yaml (gpu_memory_utilization 0.5, free_cache_engine, buckets "
        "of 2,048 MB); workers/engine/fsdp/transformer_impl.py",
    ),
    "openrlhf": Trainer(
        title="OpenRLHF (DeepSpeed)",
        workload={"optimizer": "adamw"},
        recipe="deepspeed",
        layout={"zero": 2},
        objective={"log_probs": "in-fp32"},
        engine={"engine_share": 0.95, "own_process": True},
        source="OpenRLHF 0.11.2, cli/train_ppo_ray.py: ds.zero_stage 2, actor.gradient_checkpointing_enable off, "
        "vllm.gpu_memory_utilization 0.95, vllm.enable_sleep off; models/actor.py",
    ),
    "unsloth": Trainer(
        title="Unsloth",
        workload={"optimizer": "adamw", "recompute": "full", "offload_activations": True, "fused": True},
        recipe="bf16-autocast",
        lora=PEFT,
        qlora=PEFT,
        engine={"engine_share": 0.5, "shared_weights": True},
        source="Unsloth 2026.10.9, models/loader.py: use_gradient_checkpointing unsloth (inputs of layers go to the "
        "host), fast_inference with gpu_memory_utilization 0.5 on the frozen weights of LoRA; its loss by chunks is "
        "counted as TRL's",
    ),
    "deepspeed": Trainer(
        title="DeepSpeed ZeRO-2",
        recipe="deepspeed",
        layout={"zero": 2},
        source="DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py and runtime/zero/config.py: reduce_bucket_size 5e8, "
        "overlap_comm false before stage 3; its own default stage is 0",
    ),
}
