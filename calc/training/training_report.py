"""Everything about one training step, in one object: the sibling of calc.report."""

from collections.abc import Iterable, Mapping
from typing import Any

from calc.errors import Frozen, Message
from calc.families.vision_fields import uncounted
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.hardware.overhead import Overhead, OverheadItem
from calc.model.architecture import Architecture, Parameters
from calc.model.feedforward import MoE
from calc.model.mixers import CompressedAttention, Recurrent
from calc.model.recurrent import ShortConv
from calc.training.moments import Phase
from calc.training.on_disk import SavedBytes, on_disk
from calc.training.parts import Part
from calc.training.peft import adapts_experts, plain_experts
from calc.training.recipe import RECIPES, Recipe
from calc.training.scenario import TrainingScenario
from calc.training.sharding import TrainingLayout
from calc.training.step import Training, TrainingMemory, usual_overhead
from calc.training.training_verdict import TrainingVerdict, judge_training
from calc.training.training_workload import TrainingWorkload

SEQUENCES = tuple(2**power for power in range(9, 18))  # 512 to 128k tokens


class PhaseMemory(Frozen):
    """One GPU at the peak of a phase."""

    memory: TrainingMemory
    tensors: tuple[Part, ...]  # by name; they sum to all but the overhead


class TrainingReport(Frozen):
    model: str
    parameters: Parameters
    trained_parameters: int  # of all GPUs, each counted once
    global_batch: int  # sequences of a step, over all micro-batches and replicas
    on_disk: SavedBytes
    memory: TrainingMemory
    overhead_items: dict[OverheadItem, tuple[int, int]]
    stages: tuple[TrainingMemory, ...]  # the same of each pipeline stage
    by_sequence: dict[int, TrainingMemory]  # the same with other lengths
    phases: dict[Phase, PhaseMemory]  # of the most loaded GPU, in their order; `memory` is of the largest
    verdicts: tuple[TrainingVerdict, ...]
    assumptions: tuple[Message, ...]
    scenario: TrainingScenario

    @property
    def memories(self) -> tuple[TrainingMemory, ...]:
        """Of each GPU that is asked about."""
        return (self.memory,) * len(self.verdicts)

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.global_batch * self.scenario.workload.sequence

    @property
    def trained_share(self) -> float:
        """Of all parameters."""
        return self.trained_parameters / self.parameters.total


def training_report(
    config: Mapping[str, Any],
    *,
    architecture: Architecture | None = None,
    model: str | None = None,
    workload: TrainingWorkload | None = None,
    recipe: Recipe | None = None,
    frozen: Precision | None = None,
    layout: TrainingLayout | None = None,
    overhead: Overhead | None = None,
    gpus: Iterable[GPU] | None = None,
) -> TrainingReport:
    """Weigh a step that trains a config's model. Raises ConfigError with a sentence for people, and nothing else.

    `architecture` is what the config describes, where it has been read already.
    Trained weights are 16-bit with an fp32 copy unless `recipe` says otherwise; `frozen` is how LoRA's base is stored,
    by default in 16 bits, and for QLoRA in NF4 with double quantization; `gpus` are the usual ones.
    """
    return laid_out_step(
        config,
        architecture=architecture,
        model=model,
        workload=workload,
        recipe=recipe,
        frozen=frozen,
        layout=layout,
        overhead=overhead,
        gpus=gpus,
    )[1]


def laid_out_step(
    config: Mapping[str, Any],
    *,
    architecture: Architecture | None = None,
    model: str | None = None,
    workload: TrainingWorkload | None = None,
    recipe: Recipe | None = None,
    frozen: Precision | None = None,
    layout: TrainingLayout | None = None,
    overhead: Overhead | None = None,
    gpus: Iterable[GPU] | None = None,
) -> tuple[Training, TrainingReport]:
    """A report, and the step that it is read off: what else is asked about it need not be weighed again."""
    architecture = architecture or Architecture.from_config(config)
    workload, recipe = workload or TrainingWorkload(), recipe or RECIPES["master"]
    layout, overhead = layout or TrainingLayout(), overhead or Overhead()
    frozen = frozen or Precision(weights="nf4-dq" if workload.method == "qlora" else "bf16")
    training = Training(architecture, workload, recipe, layout, overhead, frozen)
    memory, tensors = training.memory(), training.phases()
    return training, TrainingReport(
        model=model or architecture.model_type,
        parameters=architecture.parameters(),
        trained_parameters=training.trained_parameters(),
        global_batch=workload.micro_batch * workload.accumulation * layout.dp,
        on_disk=on_disk(architecture, workload, recipe),
        memory=memory,
        overhead_items=overhead.sizes(usual_overhead(layout.gpus), memory.total - memory.overhead),
        stages=training.by_stage,
        by_sequence={tokens: training.memory(sequence=tokens) for tokens in SEQUENCES},
        phases={phase: PhaseMemory(memory=peak, tensors=tensors[phase]) for phase, peak in training.by_phase().items()},
        verdicts=tuple(judge_training(gpu, training) for gpu in (usual_gpus() if gpus is None else gpus)),
        assumptions=tuple(training_assumptions(architecture, training, memory, uncounted(config))),
        scenario=TrainingScenario(workload=workload, recipe=recipe, frozen=frozen, layout=layout, overhead=overhead),
    )


PEAKS: dict[Phase, Message] = {
    "after_init": Message("The step peaks before it begins: what is kept between steps is all there is."),
    "forward": Message("The step peaks in the forward pass, when its last layer is at work."),
    "loss": Message("The step peaks at the loss, when every layer still waits for its backward pass."),
    "backward": Message("The step peaks in the backward pass."),
    "optimizer": Message("The step peaks at the optimizer's update, when all gradients are there."),
    "after_step": Message("The step peaks after the update: what is kept between steps is all there is."),
}


def training_assumptions(
    architecture: Architecture, training: Training, memory: TrainingMemory, tower: str | None
) -> Iterable[Message]:
    """What the numbers take for granted, in sentences; `tower` is one that is not counted."""
    yield from architecture.assumptions
    blocks, work, layout = architecture.all_blocks, training.work, training.layout
    yield PEAKS[memory.moment]
    mixers = [mixer for block in blocks for mixer in block.mixers]
    if any(isinstance(mixer, Recurrent) and not isinstance(mixer, ShortConv) for mixer in mixers):
        yield Message(
            "Recurrent layers run by transformers' own code, as where neither flash-linear-attention nor mamba-ssm is "
            "installed; with their kernels a step takes less."
        )
    if any(isinstance(mixer, CompressedAttention) for mixer in mixers):
        yield Message(
            "Compressed attention is assumed to keep queries, keys and outputs; no computed value stands behind it."
        )
    if any(isinstance(block.ffn, MoE) for block in blocks):
        yield Message("Tokens are assumed to spread evenly over the experts and their GPUs.")
        if plain_experts(work, training.frozen):
            yield Message("Experts stay in 16 bits: bitsandbytes quantizes linear modules, and these are stacked.")
    if not work.trains_base:
        if adapts_experts(architecture, work):
            yield Message("PEFT's all-linear puts adapters on stacked experts too, and folds them in at every use.")
        else:
            yield Message("Routed experts, embedding and head have no adapters.")
    if work.recompute == "selective" and work.attention == "flash":
        yield Message(
            "Selective recomputation drops attention scores, which flash attention does not keep in any case."
        )
    if layout.vp > 1:
        yield Message(
            "Pieces are interleaved as Megatron-LM does by default: {pp:,} micro-batches in a row through each.",
            pp=layout.pp,
        )
    if layout.zero == 3 and training.recipe.reuse:
        yield Message("Of sharded weights, DeepSpeed keeps the head and those that are needed again soon gathered.")
    elif layout.fully_sharded:
        yield Message("Of sharded weights, those of a layer at work are gathered, and those of the next on their way.")
    excluded = architecture.parameters().not_in_total
    if excluded["vision"]:
        yield Message("The vision encoder is neither loaded nor trained: {n:,} parameters.", n=excluded["vision"])
    if excluded["multi_token_prediction"]:
        yield Message(
            "The multi-token prediction (MTP) layers are neither loaded nor trained: {n:,} parameters.",
            n=excluded["multi_token_prediction"],
        )
    if tower is not None:
        yield Message(
            "The encoder for images or sound ({tower}) is of an unknown class: neither counted nor loaded.", tower=tower
        )
    yield Message("Overhead is a range measured in public logs; the totals count its middle.")
