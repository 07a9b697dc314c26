"""Commands of a training step: those of `accelerate launch` and `torchrun`, TRL's own, and those of verl, OpenRLHF and
Unsloth."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from calc.errors import Message
from calc.serving.engines.launch import Launch, parallel_flags
from calc.training.layout import TrainingLayout, TrainingScenario
from calc.training.methods import METHODS
from calc.training.workload import Colocation, MethodName, Objective, Recipe, TrainingWorkload

NODE = 8
"""GPUs of a node."""
SCRIPT = "train.py"


def torchrun(layout: TrainingLayout) -> Launch:
    """One process a GPU; the script itself lays them out."""
    nodes, each = machines(layout.gpus)
    several = ("--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", "HOST:29500")
    where = several if nodes > 1 else ("--standalone",)
    words = ("torchrun", *where, "--nproc-per-node", str(each), SCRIPT)
    # Megatron-LM, megatron/training/arguments.py; torchtitan, config/configs.py
    interleaved = Message(
        "Interleaved stages are set in the script: Megatron-LM's --num-virtual-stages-per-pipeline-rank {vp:,}; "
        "torchtitan's --parallelism.pipeline_parallel_schedule Interleaved1F1B, with the layers of a piece as "
        "--parallelism.pipeline_parallel_layers_per_stage.",
        vp=layout.vp,
    )
    return Launch(words=words, notes=(interleaved,) if layout.vp > 1 else ())


def accelerate(workload: TrainingWorkload, recipe: Recipe, layout: TrainingLayout) -> Launch:
    """FSDP2 where the weights are sharded, DeepSpeed for ZeRO 1 and 2; tensor and context parallel ranks by its
    parallelism config."""
    nodes, _ = machines(layout.gpus)
    return Launch(
        words=(
            *("accelerate", "launch", "--num_processes", str(layout.gpus), "--num_machines", str(nodes)),
            *("--mixed_precision", mixed_precision(recipe)),
            *parallel_flags({"--gradient_accumulation_steps": workload.accumulation}),
            *sharding(workload, layout),
            *ranks(layout),
            SCRIPT,
        ),
        notes=tuple(layout_notes(layout)),
    )


def machines(gpus: int) -> tuple[int, int]:
    """Nodes, and the GPUs of each."""
    nodes = -(-gpus // NODE)
    return nodes, -(-gpus // nodes)


def mixed_precision(recipe: Recipe) -> str:
    """Accelerate's word: `no` where nothing is cast."""
    plain = recipe.weights == recipe.gradients == recipe.compute and not recipe.master and not recipe.autocast
    return "no" if plain else recipe.compute


def sharding(workload: TrainingWorkload, layout: TrainingLayout) -> Iterator[str]:
    match layout.zero:
        case 3:
            yield from ("--use_fsdp", "--fsdp_version", "2")
            yield from ("--fsdp_reshard_after_forward", str(layout.reshard_after_forward).lower())
            yield from ("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
            if layout.cpu_offload:
                yield from ("--fsdp_offload_params", "true")
            if workload.recompute == "full":
                yield from ("--fsdp_activation_checkpointing", "true")
        case 0:
            if layout.gpus > 1:
                yield "--multi_gpu"
        case stage:
            yield from ("--use_deepspeed", "--zero_stage", str(stage))


def ranks(layout: TrainingLayout) -> Iterator[str]:
    if layout.tp > 1 or layout.cp > 1:
        replicas = (
            "--parallelism_config_dp_shard_size" if layout.zero == 3 else "--parallelism_config_dp_replicate_size"
        )
        sizes = {
            replicas: layout.dp,
            "--parallelism_config_tp_size": layout.tp,
            "--parallelism_config_cp_size": layout.cp,
        }
        yield "--use_parallelism_config"
        yield from parallel_flags(sizes)


def layout_notes(layout: TrainingLayout) -> Iterator[Message]:
    """Notes on layouts for which the command has no option."""
    if layout.pp > 1:
        yield Message("accelerate starts no pipeline stages; Megatron-LM and torchtitan do, under torchrun.")
    if layout.ep > 1:
        yield Message("Expert parallelism is up to the training script.")


# How a step of one of TRL's losses is started: by TRL's own command, and in verl's, OpenRLHF's and Unsloth's words.


TrainerFlags = dict[str, object]
"""Names of a trainer's options with their values."""
SCRIPTS: tuple[MethodName, ...] = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
"""Methods that TRL 1.16 has a command for (trl/scripts)."""
CONFIGS: Mapping[MethodName, str] = {
    "orpo": "ORPOConfig",
    "cpo": "CPOConfig",
    "simpo": "CPOConfig",
    "gkd": "GKDConfig",
    "ppo": "PPOConfig",
}
"""Config classes that parse the flags of the others in a script of one's own (trl.experimental; PPO until TRL 1.12)."""
OPTIMIZERS = {"adamw": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "sgd": "sgd"}
SHARDED = {1: "zero1", 2: "zero2", 3: "fsdp2"}
"""trl/accelerate_configs."""
DATA = "DATASET"
REWARD = "REWARD"
TEACHER = "TEACHER"
ESTIMATORS: Mapping[MethodName, str] = {"grpo": "grpo", "rloo": "rloo", "ppo": "gae"}
"""verl's names, of algorithm.adv_estimator; OpenRLHF's are group_norm, rloo and gae."""
SCORED = Message("Write your own data and reward in place of {data} and {reward}.", data=DATA, reward=REWARD)


class Started(NamedTuple):
    """A step to start: its model's name or folder, its scenario and its loss."""

    model: str
    scenario: TrainingScenario
    objective: Objective
    teacher: str

    @property
    def work(self) -> TrainingWorkload:
        return self.scenario.workload

    @property
    def engine(self) -> Colocation | None:
        return self.scenario.colocation

    @property
    def sequences(self) -> int:
        return self.work.micro_batch * self.work.accumulation * self.scenario.layout.dp

    @property
    def group(self) -> int:
        """Completions of a prompt."""
        return self.objective.num_generations if METHODS[self.objective.method].groups else 1

    @property
    def prompts(self) -> int:
        """Prompts whose completions are generated at once."""
        return max(1, (self.objective.generation_batch or self.sequences) // self.group)

    @property
    def weight(self) -> float:
        method = METHODS[self.objective.method]
        if self.objective.reference == "none":
            return 0.0
        return method.beta if self.objective.beta is None else self.objective.beta


def objective_launches(model: str, scenario: TrainingScenario, teacher: str | None = None) -> dict[str, Launch]:
    """Commands by the names of trainers that have the method; none where the loss is transformers' own."""
    objective = scenario.objective
    if objective is None:
        return {}
    step = Started(model, scenario, objective, teacher or (model if objective.teacher is None else TEACHER))
    launches = {"TRL": trl(step)} if objective.method in (*SCRIPTS, *CONFIGS) else {}
    if objective.method in ESTIMATORS:
        launches |= {"verl": verl(step), "OpenRLHF": openrlhf(step)}
    elif objective.method == "dpo":
        launches["OpenRLHF"] = openrlhf_dpo(step)
    if scenario.layout.gpus == 1 and objective.method == "grpo" and not step.work.trains_base:
        launches["Unsloth"] = unsloth(step)
    return launches


def written(flags: TrainerFlags) -> Iterator[str]:
    """Words of a command line; switches are written out, as transformers' parser reads them."""
    for name, value in flags.items():
        yield f"--{name}"
        yield str(value).lower() if isinstance(value, bool) else str(value)


# TRL


def trl(step: Started) -> Launch:
    """`trl METHOD`, or a script of one's own under accelerate where TRL has no command for it."""
    method, layout = step.objective.method, step.scenario.layout
    flags = tuple(written(trl_flags(step)))
    if method not in SCRIPTS:
        launch = accelerate(step.work, step.scenario.recipe, layout)
        return Launch(words=(*launch.words, *flags), notes=(own_script(method), *launch.notes))
    spread: tuple[str, ...] = ()
    if layout.gpus > 1:
        spread = ("--accelerate_config", SHARDED.get(layout.zero, "multi_gpu"), "--num_processes", str(layout.gpus))
    return Launch(words=("trl", method, *flags, *spread), notes=tuple(trl_notes(step)))


def own_script(method: MethodName) -> Message:
    if METHODS[method].values:
        sentence = (
            "TRL has PPO until 1.12, without a command: train.py parses {config} of trl.experimental.ppo from these "
            "flags, and makes the value model of reward_model_path."
        )
        return Message(sentence, config=CONFIGS[method])
    sentence = "TRL has no command for it: train.py parses {config} of trl.experimental from these flags."
    return Message(sentence, config=CONFIGS[method])


def trl_notes(step: Started) -> Iterator[Message]:
    yield Message("Write your own data in place of {data}.", data=DATA)
    if METHODS[step.objective.method].generates and not METHODS[step.objective.method].teacher:
        yield Message("The reward is {flag}.", flag="--reward_funcs")
    if step.engine is not None and step.engine.rollout == "server":
        tp, dp = step.engine.rollout_tp, step.engine.rollout_dp
        command = f"trl vllm-serve --model {step.model} --tensor_parallel_size {tp} --data_parallel_size {dp}"
        yield Message("On the engine's GPUs: {command}", command=command)


def trl_flags(step: Started) -> TrainerFlags:
    """TRL 1.16, trainer/*_config.py and model_config.py; transformers' TrainingArguments."""
    work, recipe = step.work, step.scenario.recipe
    flags: TrainerFlags = {
        "model_name_or_path": step.model,
        "dtype": "float32" if recipe.weights == "fp32" else "bfloat16",
        "bf16": recipe.compute == "bf16" and (recipe.autocast or recipe.master),
        "dataset_name": DATA,
        "per_device_train_batch_size": work.micro_batch,
        "gradient_accumulation_steps": work.accumulation,
        "gradient_checkpointing": work.recompute == "full",
    }
    if work.optimizer in OPTIMIZERS:
        flags["optim"] = OPTIMIZERS[work.optimizer]
    if work.fused:
        flags["use_liger_kernel"] = True
    if not work.trains_base:
        flags |= {"use_peft": True, "lora_r": work.lora_rank, "lora_target_modules": "all-linear"}
    if work.method == "qlora":
        flags["load_in_4bit"] = True
    engine = None if METHODS[step.objective.method].values else step.engine  # PPO's completions are of generate()
    return flags | trl_objective(step) | (trl_engine(engine) if engine else {})


def trl_objective(step: Started) -> TrainerFlags:
    objective, method = step.objective, METHODS[step.objective.method]
    flags: TrainerFlags = {}
    if method.values:  # TRL 1.12, experimental/ppo/ppo_config.py
        return {
            "sft_model_path": step.model,
            "reward_model_path": REWARD,
            "response_length": objective.completion,
            "num_ppo_epochs": objective.iterations,
            "local_rollout_forward_batch_size": step.work.micro_batch,
            "kl_coef": step.weight,
        }
    if method.generates:
        flags["max_completion_length"] = objective.completion
    elif method.teacher:
        flags |= {"max_length": objective.sequence, "max_new_tokens": objective.completion}
    else:
        flags["max_length"] = objective.sequence
    if method.teacher:
        flags |= {"teacher_model_name_or_path": step.teacher, "beta": step.weight}
    elif method.reference:
        flags["beta"] = step.weight
    if objective.reference == "precomputed":
        flags["precompute_ref_log_probs"] = True
    if objective.method == "simpo":
        flags |= {"loss_type": "simpo", "cpo_alpha": 0.0}
    if method.generates and method.groups:
        flags |= {"num_generations": objective.num_generations, "num_iterations": objective.iterations}
        if objective.generation_batch is not None:
            flags["generation_batch_size"] = objective.generation_batch
    if objective.entropy_bonus:
        flags["entropy_coef"] = 0.001
    if objective.method == "sft" and objective.log_probs == "chunked":
        flags["loss_type"] = "chunked_nll"
    if objective.packed > 1:
        flags["packing"] = True
    return flags


def trl_engine(engine: Colocation) -> TrainerFlags:
    """vLLM, on these GPUs or on a server."""
    if engine.rollout == "server":
        return {"use_vllm": True, "vllm_mode": "server"}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": engine.share,
        "vllm_tensor_parallel_size": engine.rollout_tp,
        "vllm_enable_sleep_mode": engine.sleep_level > 0,
    }


# verl


def verl(step: Started) -> Launch:
    """verl 0.9.1, trainer/config (hydra): `python3 -m verl.trainer.main_ppo`."""
    work, objective = step.work, step.objective
    actor, rollout, micro = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "micro_batch_size_per_gpu"
    nodes, each = machines(step.scenario.layout.gpus)
    flags: TrainerFlags = {
        "algorithm.adv_estimator": ESTIMATORS[objective.method],
        "data.train_files": DATA,
        "data.train_batch_size": step.prompts,
        "data.max_prompt_length": objective.prompt,
        "data.max_response_length": objective.completion,
        "actor_rollout_ref.model.path": step.model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": work.recompute == "full",
        f"{actor}.ppo_mini_batch_size": max(1, step.sequences // step.group),
        f"{actor}.ppo_{micro}": work.micro_batch,
        f"{actor}.ppo_epochs": objective.iterations,
        f"{actor}.use_kl_loss": step.weight > 0,
        f"{rollout}.n": step.group,
        f"{rollout}.log_prob_{micro}": work.micro_batch,
        f"actor_rollout_ref.ref.log_prob_{micro}": work.micro_batch,
        "trainer.n_gpus_per_node": each,
        "trainer.nnodes": nodes,
    }
    if step.weight > 0:
        flags[f"{actor}.kl_loss_coef"] = step.weight
    if not work.trains_base:
        flags |= {"actor_rollout_ref.model.lora_rank": work.lora_rank}
    if (engine := step.engine) is not None:
        flags |= {
            f"{rollout}.name": "vllm",
            f"{rollout}.gpu_memory_utilization": engine.share,
            f"{rollout}.tensor_model_parallel_size": engine.rollout_tp,
            f"{rollout}.free_cache_engine": engine.sleep_level > 0,
            f"{actor}.fsdp_config.param_offload": engine.offload_weights,
            f"{actor}.fsdp_config.optimizer_offload": engine.offload_optimizer,
        }
    spelled = (f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in flags.items())
    return Launch(words=("python3", "-m", "verl.trainer.main_ppo", *spelled), notes=(SCORED,))


# OpenRLHF


def openrlhf(step: Started) -> Launch:
    """OpenRLHF 0.11.2, cli/train_ppo_ray.py. Its switches have no value."""
    work, objective, layout = step.work, step.objective, step.scenario.layout
    flags: TrainerFlags = {
        "actor.model_name_or_path": step.model,
        "data.prompt_dataset": DATA,
        "reward.model_name_or_path": REWARD,
        "algo.advantage.estimator": "group_norm" if objective.method == "grpo" else ESTIMATORS[objective.method],
        "rollout.n_samples_per_prompt": step.group,
        "rollout.batch_size": step.prompts,
        "data.max_len": objective.sequence,
        "rollout.max_new_tokens": objective.completion,
        "train.micro_batch_size": work.micro_batch,
        "train.batch_size": step.sequences,
        "train.max_epochs": objective.iterations,
        "algo.kl.init_coef": step.weight,
        "ds.zero_stage": layout.zero,
        "actor.num_gpus_per_node": layout.gpus,
        **({} if work.trains_base else {"ds.lora.rank": work.lora_rank}),
    }
    switches = ["train.colocate_all"]
    if (engine := step.engine) is not None:
        flags |= {
            "vllm.num_engines": max(1, layout.gpus // engine.rollout_tp),
            "vllm.tensor_parallel_size": engine.rollout_tp,
            "vllm.gpu_memory_utilization": engine.share,
        }
        switches = ["train.colocate_all"] if engine.rollout == "colocated" else []
        switches += ["vllm.enable_sleep"] if engine.sleep_level else []
        switches += ["ds.adam_offload"] if engine.offload_optimizer else []
    switches += ["actor.gradient_checkpointing_enable"] if work.recompute == "full" else []
    words = ("python3", "-m", "openrlhf.cli.train_ppo_ray", *written(flags), *(f"--{name}" for name in switches))
    return Launch(words=words, notes=(SCORED,))


def openrlhf_dpo(step: Started) -> Launch:
    """OpenRLHF 0.11.2, cli/train_dpo.py."""
    work, objective = step.work, step.objective
    flags: TrainerFlags = {
        "model.model_name_or_path": step.model,
        "data.dataset": DATA,
        "data.max_len": objective.sequence,
        "train.micro_batch_size": work.micro_batch,
        "train.batch_size": step.sequences,
        "model.beta": step.weight,
        "ds.zero_stage": step.scenario.layout.zero,
        **({} if work.trains_base else {"ds.lora.rank": work.lora_rank}),
    }
    switch = ("--model.gradient_checkpointing_enable",) if work.recompute == "full" else ()
    words = ("deepspeed", "--module", "openrlhf.cli.train_dpo", *written(flags), *switch)
    return Launch(words=words, notes=(Message("Write your own data in place of {data}.", data=DATA),))


# Unsloth


def unsloth(step: Started) -> Launch:
    """Unsloth 2026.10.9, models/loader.py, with TRL's GRPOConfig: lines of a script."""
    engine, objective = step.engine, step.objective
    loaded: TrainerFlags = {
        "model_name": step.model,
        "max_seq_length": objective.sequence,
        "load_in_4bit": step.work.method == "qlora",
        "max_lora_rank": step.work.lora_rank,
    }
    if engine is not None and engine.rollout == "colocated":
        loaded |= {"fast_inference": True, "gpu_memory_utilization": engine.share}
    trained: TrainerFlags = {
        "per_device_train_batch_size": step.work.micro_batch,
        "gradient_accumulation_steps": step.work.accumulation,
        "num_generations": objective.num_generations,
        "max_completion_length": objective.completion,
        "beta": step.weight,
    }
    adapted: TrainerFlags = {"r": step.work.lora_rank, "use_gradient_checkpointing": "unsloth"}
    lines = (
        "from unsloth import FastLanguageModel; from trl import GRPOConfig",
        f"model, tokenizer = FastLanguageModel.from_pretrained({python(loaded)})",
        f"model = FastLanguageModel.get_peft_model(model, {python(adapted)})",
        f"args = GRPOConfig({python(trained)})",
    )
    return Launch(words=("python", "-c", "; ".join(lines)), notes=(Message("Its trainer is TRL's GRPOTrainer."),))


def python(arguments: TrainerFlags) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
