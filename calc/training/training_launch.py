"""How a training step's processes are started: the words of `accelerate launch` and of `torchrun`."""

from collections.abc import Iterator

from calc.errors import Message
from calc.serving.engines.launch import Launch, degrees
from calc.training.recipe import Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import TrainingWorkload

NODE = 8
"""GPUs of a node."""
SCRIPT = "train.py"


def torchrun(layout: TrainingLayout, node: int = NODE) -> Launch:
    """One process a GPU; the script itself lays them out."""
    nodes, each = machines(layout.gpus, node)
    several = ("--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", "HOST:29500")
    where = several if nodes > 1 else ("--standalone",)
    words = ("torchrun", *where, "--nproc-per-node", str(each), SCRIPT)
    return Launch(words=words, notes=tuple(interleaved(layout)))


def interleaved(layout: TrainingLayout) -> Iterator[Message]:
    """How the script is told to interleave its stages (Megatron-LM, megatron/training/arguments.py; torchtitan,
    config/configs.py)."""
    if layout.vp > 1:
        yield Message(
            "Interleaved stages are set in the script: Megatron-LM's --num-virtual-stages-per-pipeline-rank {vp:,}; "
            "torchtitan's --parallelism.pipeline_parallel_schedule Interleaved1F1B, with the layers of a piece as "
            "--parallelism.pipeline_parallel_layers_per_stage.",
            vp=layout.vp,
        )


def accelerate(workload: TrainingWorkload, recipe: Recipe, layout: TrainingLayout, node: int = NODE) -> Launch:
    """FSDP2 where the weights are sharded, DeepSpeed for ZeRO 1 and 2; tensor and context parallel ranks by its
    parallelism config."""
    nodes, _ = machines(layout.gpus, node)
    return Launch(
        words=(
            *("accelerate", "launch", "--num_processes", str(layout.gpus), "--num_machines", str(nodes)),
            *("--mixed_precision", mixed_precision(recipe)),
            *degrees({"--gradient_accumulation_steps": workload.accumulation}),
            *sharding(workload, layout),
            *ranks(layout),
            SCRIPT,
        ),
        notes=tuple(unsaid(layout)),
    )


def machines(gpus: int, node: int) -> tuple[int, int]:
    """Nodes, and processes on each."""
    nodes = -(-gpus // node)
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
        yield from degrees(sizes)


def unsaid(layout: TrainingLayout) -> Iterator[Message]:
    """What the command can't say."""
    if layout.pp > 1:
        yield Message("accelerate starts no pipeline stages; Megatron-LM and torchtitan do, under torchrun.")
    if layout.ep > 1:
        yield Message("Expert parallelism is up to the training script.")
