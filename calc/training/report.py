"""Everything about one training step, in one object: the sibling of calc.report; with its derivation."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field

from calc.budget import budget
from calc.errors import ConfigError, Frozen, Message
from calc.families.vision_fields import uncounted
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.hardware.overhead import Overhead, OverheadItem
from calc.model.architecture import Architecture, Parameters
from calc.model.derivation import Legend, Step
from calc.model.paper import Heading, Item, Section, added, legend_of, lines
from calc.model.traced import TracedSymbols
from calc.serving.engines.launch import Launch
from calc.serving.notebook import gib, page, table
from calc.training.colocated import Colocated, RolloutReport
from calc.training.course import Part, Phase, TrainingComponent
from calc.training.launch import objective_launches
from calc.training.layout import TrainingLayout, TrainingScenario, usual_base
from calc.training.methods import METHODS, said_of, without_effect
from calc.training.states import adapts_experts, plain_experts, state_bytes, widths
from calc.training.step import Training, TrainingMemory, TrainingVerdict, judge_training, usual_overhead
from calc.training.workload import RECIPES, Colocation, Objective, Recipe, TrainingWorkload
from calc.units import GIB

# What a trainer writes to disk, all GPUs together.


class SavedBytes(Frozen):
    """Bytes of a checkpoint: trained weights of the whole model or the adapters; next to them fp32 copies of that, and
    the optimizer's states, without which training can't go on where it was."""

    weights: int
    master_weights: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.weights + self.master_weights + self.optimizer


def on_disk(training: Training) -> SavedBytes:
    """Each weight once, in the type in which it is trained."""
    work, recipe, parameters = training.work, training.recipe, training.parameters
    width, _, state = widths(work, recipe)
    return SavedBytes(
        weights=parameters * width,
        master_weights=4 * parameters if recipe.master else 0,
        optimizer=sum(part.count * state_bytes(work.optimizer, part, state) for part in training.trained),
    )


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
    rollouts: tuple[RolloutReport, ...] = Field(default=(), exclude_if=lambda rollouts: not rollouts)
    launches: dict[str, Launch] = Field(default={}, exclude_if=lambda launches: not launches)
    """Commands that start it, by trainer, where the loss is one of TRL's."""

    @property
    def memories(self) -> tuple[TrainingMemory, ...]:
        """Memory of each GPU that is asked about."""
        return (self.memory,) * len(self.verdicts)

    @property
    def tokens(self) -> int:
        """Tokens of a step, with both sequences of a pair."""
        objective = self.scenario.objective
        each = 1 if objective is None else METHODS[objective.method].sequences
        return self.global_batch * each * self.scenario.workload.sequence

    def _repr_html_(self) -> str:
        """The report as a notebook shows it: memory of a GPU at the peak of a step, and a row for each kind."""
        memory = self.memory
        sizes = {str(part): size for part, size in memory.parts.items()}
        sizes |= {"overhead": memory.overhead, "total": memory.total}
        verdicts = (
            (verdict.gpu, verdict.gpus, verdict.verdict, gib(verdict.spare), verdict.reason)
            for verdict in self.verdicts
        )
        counts = (("parameters", f"{self.parameters.total:,}"), ("trained", f"{self.trained_parameters:,}"))
        tables = (
            table(("", "parameters"), counts),
            table(("", "bytes"), ((name, gib(size)) for name, size in sizes.items())),
            table(("GPU", "GPUs", "verdict", "spare", "why"), verdicts),
        )
        return page(self.model, tables, self.assumptions)


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
    objective: Objective | None = None,
    colocation: Colocation | None = None,
) -> TrainingReport:
    """Weigh a step that trains a config's model. Raises ConfigError with a sentence for people, and nothing else.

    `architecture` is what the config describes, where it has been read already.
    Trained weights are 16-bit with an fp32 copy unless `recipe` says otherwise; `frozen` is how LoRA's base is stored,
    by default in 16 bits, and for QLoRA in NF4 with double quantization; `gpus` are the usual ones. `objective` is the
    loss where it is not transformers' own: a preference or reinforcement method, whose lengths are then the sequence's;
    `colocation` is the engine that generates its completions, with which the verdicts are then.
    """
    workload = workload or TrainingWorkload()
    scenario = TrainingScenario(
        workload=workload,
        recipe=recipe or RECIPES["master"],
        frozen=frozen or usual_base(workload.method),
        layout=layout or TrainingLayout(),
        overhead=overhead or Overhead(),
        objective=objective,
        colocation=colocation,
    )
    return laid_out_step(config, scenario, architecture=architecture, model=model, gpus=gpus)[1]


@budget()
def laid_out_step(
    config: Mapping[str, Any],
    scenario: TrainingScenario,
    *,
    architecture: Architecture | None = None,
    model: str | None = None,
    gpus: Iterable[GPU] | None = None,
) -> tuple[Training, TrainingReport]:
    """A report, and the step that it is read off: what else is asked about it need not be weighed again."""
    architecture = architecture or Architecture.from_config(config)
    objective, colocation = scenario.objective, scenario.colocation
    loss = None if objective is None else objective.method
    for refusal in without_effect(() if colocation is None else ("rollout",), scenario.workload.method, loss):
        raise ConfigError(*refusal)
    if objective is not None and colocation is not None:
        objective = objective.model_copy(update={"engine_generates": True})
    if objective is not None:
        workload = scenario.workload.model_copy(update={"sequence": objective.sequence})
        scenario = scenario.model_copy(update={"workload": workload, "objective": objective})
    training = Training(architecture, scenario)
    scenario = scenario.model_copy(update={"objective": training.objective})
    architecture, workload, layout = training.architecture, scenario.workload, scenario.layout
    memory, tensors = training.memory(), training.phases()
    kinds = list(usual_gpus() if gpus is None else gpus)
    engines = [] if colocation is None else [Colocated(training, colocation, gpu) for gpu in kinds]
    verdicts = [engine.verdict() for engine in engines] or [judge_training(gpu, training) for gpu in kinds]
    name = model or architecture.model_type
    return training, TrainingReport(
        model=name,
        parameters=architecture.parameters(),
        trained_parameters=training.trained_parameters(),
        global_batch=workload.micro_batch * workload.accumulation * layout.dp,
        on_disk=on_disk(training),
        memory=memory,
        overhead_items=scenario.overhead.sizes(usual_overhead(layout.gpus), memory.total - memory.overhead),
        stages=training.by_stage,
        by_sequence={tokens: training.memory(sequence=tokens) for tokens in SEQUENCES},
        phases={phase: PhaseMemory(memory=peak, tensors=tensors[phase]) for phase, peak in training.by_phase().items()},
        verdicts=tuple(verdicts),
        rollouts=tuple(engine.report() for engine in engines),
        assumptions=tuple(training_assumptions(training, memory.moment, uncounted(config))),
        scenario=scenario,
        launches=objective_launches(name, scenario),
    )


PEAKS: dict[Phase, Message] = {
    "after_init": Message("The step peaks before it begins: what is kept between steps is all there is."),
    "reference": Message("The step peaks in a pass without gradients: of the reference, or of the policy before."),
    "forward": Message("The step peaks in the forward pass, when its last layer is at work."),
    "loss": Message("The step peaks at the loss, when every layer still waits for its backward pass."),
    "backward": Message("The step peaks in the backward pass."),
    "optimizer": Message("The step peaks at the optimizer's update, when all gradients are there."),
    "after_step": Message("The step peaks after the update: what is kept between steps is all there is."),
}


def training_assumptions(training: Training, moment: Phase, tower: str | None) -> Iterable[Message]:
    """Assumptions behind the numbers, in sentences; `tower` names an encoder that is not counted."""
    architecture, work, layout = training.architecture, training.work, training.layout
    blocks = architecture.all_blocks
    yield from architecture.assumptions
    yield PEAKS[moment]
    if training.objective is not None:
        yield from said_of(training.objective)
    if any(mixer.state_elements() for block in blocks for mixer in block.recurrences):
        yield Message(
            "Recurrent layers run by transformers' own code, as where neither flash-linear-attention nor mamba-ssm is "
            "installed; with their kernels a step takes less."
        )
    if any(mixer.compressed_elements() for block in blocks for mixer in block.attentions):
        yield Message(
            "Compressed attention is assumed to keep queries, keys and outputs; no computed value confirms it."
        )
    if architecture.experts:
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
    if layout.cpu_offload:
        yield Message(
            "Sharded weights, their gradients and optimizer states wait in CPU memory: {gib:,.1f} GiB of all GPUs "
            "together, at the least.",
            gib=training.offloaded_bytes / GIB,
        )
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


# How the memory of a step comes about: the same step, run on numbers that remember their formulas.


def phase_steps(
    architecture: Architecture, scenario: TrainingScenario, phase: Phase, of: TrainingComponent | None = None
) -> tuple[list[Step], Legend]:
    """One line for each part of what is alive in a phase, or of one component of it, and what the symbols mean."""
    symbols, work = TracedSymbols(), scenario.workload
    work = work.model_copy(update={"lora_rank": symbols.of("lora_rank", work.lora_rank)})
    model = symbols.apply(architecture)
    training = Training(model, scenario.model_copy(update={"workload": work}))
    alone, positions, tokens, stream, pairs, *scanned = training.units(work.micro_batch, work.sequence)
    sequence, t = symbols.of("sequence", positions), symbols.of("tokens", tokens)
    shared = t if stream == tokens else symbols.of("stream_tokens", stream)
    scores = t * sequence if pairs == tokens * positions else pairs
    names = ("chunks", "followed_chunks", "micro_batch", "logit_tokens", "scored_tokens", "scored_row", "tile_tokens")
    by_chunks = (symbols.of(name, count) for name, count in zip(names, scanned, strict=False))
    parts = training.phases((alone, sequence, t, shared, scores, *by_chunks))[phase]
    lines = [symbols.step(part.name, part.bytes) for part in parts if of in (None, part.component)]
    return lines, symbols.occurring()


# The memory of a training step on paper: every part that is alive at its peak.


def training_section(architecture: Architecture, report: TrainingReport) -> Section:
    return Section(anchor="training", title=Message("A training step"), items=tuple(step_items(architecture, report)))


def step_items(architecture: Architecture, report: TrainingReport) -> Iterator[Item]:
    """Each part of the peak by its tensors, then their sum with the overhead."""
    memory = report.memory
    yield PEAKS[memory.moment]
    steps, meanings = phase_steps(architecture, report.scenario, memory.moment)
    parts = report.phases[memory.moment].tensors
    for name in dict.fromkeys(part.component for part in parts):
        own = [step for step, part in zip(steps, parts, strict=True) if part.component == name]
        yield Heading(title=name)
        yield lines(own, Message("Bytes"), Message("Tensor"))
    yield from legend_of(steps, meanings)
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.component] = sums.get(part.component, 0) + part.bytes
    sums["overhead"] = memory.overhead
    rows = [Step(what=name, result=size) for name, size in sums.items() if size]
    yield Heading(title=Message("Memory per GPU"))
    yield lines(rows, Message("Bytes"))
    yield added(Message("Memory per GPU"), [step.result for step in rows], "bytes")
