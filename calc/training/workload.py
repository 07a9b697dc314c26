"""The question that a step answers: its workload, the loss of a preference or reinforcement method with the engine that
generates for it, mixed precision, and the defaults of trainers."""

from typing import Any, Literal

from pydantic import Field, field_serializer, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.formats import WeightFormat
from calc.model.architecture import Architecture
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
        default="full", description="The weights that are trained: all, or adapters beside frozen ones."
    )
    """LoRA: arXiv:2106.09685; QLoRA, which quantizes the frozen weights: arXiv:2305.14314."""
    lora_rank: int = Field(default=16, ge=1, le=2**16, description="Rank of the adapters of LoRA and QLoRA.")
    fp32_rest: bool = Field(
        default=False, description="QLoRA: cast what is not quantized to fp32, as PEFT does by default."
    )
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
    """Selective and full: arXiv:2205.05198 section 5. Alternate, torchtitan's default: arXiv:2410.06511 section 2.2.1,
    all but a layer's input, attention's output and every other matrix product."""
    reentrant: bool = Field(default=False, description="The older kind of checkpointing, use_reentrant=True.")
    fused: bool = Field(
        default=False,
        description="Norms and activation functions in one kernel each: Liger, Transformer Engine, torch.compile.",
    )
    loss: Loss = Field(
        default="whole",
        description="Computation of the loss from the logits. Chunked: one chunk of tokens at a time; fused: with the "
        "output layer, so that the logits are never whole.",
    )
    """Whole: in fp32; native: whole, in the type of the activations; compiled: one kernel on whole logits; chunked: in
    fp32 for one chunk of tokens at a time (torchtune); stepwise: so, with head and backward of each chunk (torchtitan);
    tiled: with the head by tiles of tokens and vocabulary, made again going back (TRL); fused: with the head, so that
    logits are never whole (Liger)."""
    loss_chunks: int = Field(default=8, ge=1, le=2**16, description="Chunks of a chunked loss.")
    keep_outputs: bool = Field(
        default=False, description="The training loop keeps the logits through the backward pass; Trainers do not."
    )
    offload_activations: bool = Field(
        default=False, description="The inputs that full activation checkpointing keeps wait in CPU memory."
    )
    products: Products = Field(
        default="compute",
        description="Format of matrix products, for the time: the type of the recipe, FP8 with a scale for each "
        "tensor, MXFP8 or NVFP4. The memory is that of the recipe.",
    )
    optimizer: Optimizer = Field(
        default="adamw", description="The optimizer, and the states that it keeps for each weight."
    )
    optimizer_kernel: OptimizerKernel | None = Field(
        default=None,
        description="Implementation of torch's AdamW and SGD: all tensors at once (foreach, torch's default), tensor "
        "by tensor (for-loop), or one kernel (fused); none: the framework's default.",
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


# What a step's loss is: the method, its lengths, its reference, and how the trainer makes log-probabilities; and the
# engine that generates what it is computed on.


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
        description="The policy is compared with a frozen copy (model), log-probabilities made before training "
        "(precomputed), the base under the adapters (adapter-off), or nothing.",
    )
    prompt: int = Field(default=512, ge=0, le=2**30, description="Tokens of each prompt.")
    completion: int = Field(default=512, ge=1, le=2**30, description="Tokens of each completion.")
    mean_completion: int | None = Field(
        default=None,
        ge=1,
        le=2**30,
        exclude_if=lambda tokens: tokens is None,
        description="Average tokens of a generated completion, for the time; none given: all have the greatest length.",
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
        return self.prompt + self.completion


class Colocation(Frozen):
    """Engine that generates, and what it gives back while the model is trained."""

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
        description="Memory that the engine gives back after generating: 0 nothing, 1 weights and cache, with the "
        "weights kept in host memory, 2 both, read anew; graphs and libraries stay.",
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
        return self.rollout_tp * self.rollout_dp

    @property
    def share(self) -> float:
        """Share of the GPU that the engine takes (TRL 1.16, trainer/grpo_config.py and scripts/vllm_serve.py)."""
        return self.engine_share or (0.3 if self.rollout == "colocated" else 0.9)


# Mixed precision: in what a step keeps the trained weights, their gradients and the optimizer's states; and what
# trainers set by default.


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
    compute: Float = Field(default="bf16", description="Format of matrix products.")
    autocast: bool = Field(default=False, description="torch.autocast runs round the forward pass and the loss.")
    buffers: bool = Field(default=False, description="Gradients accumulate in permanent buffers of their own type.")
    casts: Literal["none", "each", "all"] = Field(
        default="none",
        description="At the optimizer's step gradients are cast to fp32: each is then freed, or all are kept.",
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
    that it sets otherwise for adapters, and `base` is how it stores what is frozen; None: in 16 bits, and
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
        """Options for one method, its own among all."""
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
