"""Everything about one scenario, in one object: what the page draws, the command line prints and the download holds."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pydantic import Field, SerializeAsAny

from calc.budget import budget
from calc.errors import Frozen, Message
from calc.families.vision_fields import uncounted
from calc.formats import FLOATS, MIXES, Precision, native
from calc.formats.stored import CheckpointSize
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.hardware.overhead import Overhead, OverheadItem
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture, Parameters
from calc.options import made
from calc.serving.engines import DEFAULT_ENGINE, ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import DeviceBuffers, Limits, LoadedWeights
from calc.serving.kv_cache import bytes_per_token, cache_bytes, growth, length_bytes, window_bytes
from calc.serving.levers import chosen_layout
from calc.serving.memory import Allocation, HostMemory, KVBudget, Memory, Serving
from calc.serving.notebook import gib, page, table
from calc.serving.verdict import Verdict, judge
from calc.serving.workload import Workload
from calc.units import GIB, size

LONG = 2**17
"""Tokens up to which memory is shown over the context, at least."""
POINTS = 8


class KVCache(Frozen):
    """Bytes over all layers. The first is what one more token of one sequence adds where the whole context is kept;
    window and state, with tokens that wait to be compressed, are per sequence and stop growing; `total` is of all
    sequences on all GPUs, each counted once: the least that is needed. What an engine holds on a GPU is in `memory`."""

    bytes_per_token: int
    window_bytes: int
    state_bytes: int
    total: int


class ServingScenario(Frozen):
    """The question."""

    workload: Workload
    engine: str
    options: SerializeAsAny[Frozen]
    precision: Precision
    layout: Layout
    overhead: Overhead


class Report(Frozen):
    """Figures of one GPU are those of the first kind that is asked about; each verdict has its own."""

    model: str
    parameters: Parameters
    kv_cache: KVCache
    memory: Memory
    stages: tuple[Memory, ...]  # the same of each pipeline stage
    checkpoint: CheckpointSize  # files that hold the whole model in these formats
    loaded: LoadedWeights  # what weights take on the most loaded GPU once an engine has loaded them
    overhead_items: dict[OverheadItem, tuple[int, int]]
    by_context: dict[int, Memory]  # the same with other contexts
    buffers: tuple[DeviceBuffers, ...] = Field(default=(), exclude_if=lambda buffers: not buffers)
    """Buffers on each GPU of the first kind and on the host, of engines that plan all of it."""
    draft_buffers: tuple[DeviceBuffers, ...] = Field(default=(), exclude_if=lambda buffers: not buffers)
    """Memory of the draft that guesses tokens: a model of its own, or the model's prediction layers."""
    kv_budget: tuple[KVBudget, ...]  # of an engine that sets its cache aside, on each GPU
    host: tuple[HostMemory, ...] = ()  # next to each kind of GPU
    verdicts: tuple[Verdict, ...]
    assumptions: tuple[Message, ...]
    scenario: ServingScenario

    @property
    def memories(self) -> tuple[Memory, ...]:
        """One for each GPU in the question."""
        return tuple(verdict.memory for verdict in self.verdicts)

    def _repr_html_(self) -> str:
        """The report as a notebook shows it: parameters, memory of a GPU, and a row for each kind."""
        memory, parameters = self.memory, self.parameters
        sizes = {str(part): size for part, size in memory.parts.items()}
        sizes |= {"overhead": memory.overhead, "total": memory.total}
        counts = [("parameters", parameters.total), *parameters.components.items()]
        verdicts = (
            (verdict.gpu, verdict.gpus, " ".join((verdict.verdict, *verdict.flags)), gib(verdict.spare), verdict.reason)
            for verdict in self.verdicts
        )
        tables = (
            table(("", "parameters"), ((name, f"{count:,}") for name, count in counts)),
            table(("", "bytes"), ((name, gib(size)) for name, size in sizes.items())),
            table(("GPU", "GPUs", "verdict", "spare", "why"), verdicts),
        )
        return page(self.model, tables, self.assumptions)

    @property
    def overtaken_at(self) -> int | None:
        """The first of these contexts at which the cache outweighs the weights."""
        return next((tokens for tokens, memory in self.by_context.items() if memory.kv_cache > memory.weights), None)


def report(
    config: Mapping[str, Any],
    *,
    architecture: Architecture | None = None,
    model: str | None = None,
    workload: Workload | None = None,
    engine: Engine | None = None,
    precision: Precision | None = None,
    layout: Layout | None = None,
    num_gpus: int | None = None,
    overhead: Overhead | None = None,
    gpus: Iterable[GPU] | None = None,
) -> Report:
    """Weigh a config. Raises ConfigError with a sentence for people when it can't be read, and nothing else.

    `architecture` is what the config describes, where it has been read already.
    Weights are as the checkpoint stores them unless `precision` says otherwise; the engine is vLLM with its defaults;
    `gpus` are the usual ones. Where `num_gpus` is given and no layout, it is the one over so many that does best on the
    smallest of `gpus` where one fits, or on the largest. A context that nobody asked for is the usual one, or what
    learned positions allow.
    """
    return laid_out_report(
        config,
        architecture=architecture,
        model=model,
        workload=workload,
        engine=engine,
        precision=precision,
        layout=layout,
        num_gpus=num_gpus,
        overhead=overhead,
        gpus=gpus,
    )[1]


@budget()
def laid_out_report(
    config: Mapping[str, Any],
    *,
    architecture: Architecture | None = None,
    model: str | None = None,
    workload: Workload | None = None,
    engine: Engine | None = None,
    precision: Precision | None = None,
    layout: Layout | None = None,
    num_gpus: int | None = None,
    overhead: Overhead | None = None,
    gpus: Iterable[GPU] | None = None,
    serving: Serving | None = None,
) -> tuple[Serving, Report]:
    """A report, and the laid-out model that it is read off: what else is asked about it need not be weighed again.
    `serving` is that of another workload, of the same in all else."""
    architecture = architecture or Architecture.from_config(config)
    workload, overhead = within_positions(workload or Workload(), architecture), overhead or Overhead()
    engine = engine or ENGINES[DEFAULT_ENGINE]()
    engine.check(Question(architecture, workload=workload))
    precision = precision or engine.precision(native(config))
    checkpoint = CheckpointSize.of(architecture, precision)
    kinds = usual_gpus() if gpus is None else list(gpus)
    first_layout = layout or Layout(pp=(num_gpus and engine.stated_gpus) or 1)
    serving = serving or Serving.of(architecture, engine, precision, first_layout, overhead)
    gpu = kinds[0] if kinds else usual_gpus()[0]
    if num_gpus is not None:
        serving = serving.with_layout(chosen_layout(kinds or [gpu], serving, workload, num_gpus, layout))
    layout, allocations = serving.layout, [serving.on(kind, workload) for kind in kinds]
    first = allocations[0] if allocations else serving.on(gpu, workload)
    whole = serving.laid_out.whole
    blocks = whole.all_blocks + (tuple(module.block for module in whole.prediction) if engine.loads_draft else ())
    bits, states = growth(blocks, precision.kv), engine.state_bytes(architecture, blocks)
    state = length_bytes(blocks, precision.kv, workload.context, states)
    budgets = (allocation.kv_budget for allocation in allocations)
    cache, lengths = first.cache, (first.workload.batch, first.workload.context)
    guessing = [] if cache is None else cache.draft_buffers(*lengths)
    return serving, Report(
        model=model or architecture.model_type,
        parameters=architecture.parameters(),
        kv_cache=KVCache(
            bytes_per_token=bytes_per_token(bits),
            window_bytes=window_bytes(bits, workload.context),
            state_bytes=state,
            total=cache_bytes(bits, state, workload.batch, workload.context),
        ),
        memory=first.memory,
        checkpoint=checkpoint,
        loaded=max((stage.loaded for stage in first.serving.laid_out.stages), key=lambda loaded: loaded.total),
        stages=tuple(stage.memory for stage in first.stages),
        overhead_items=first.stages[first.most_loaded].sizes,
        by_context={length: first.with_workload(context=length).memory for length in contexts(workload, architecture)},
        buffers=() if cache is None else tuple(cache.buffers(*lengths)),
        draft_buffers=tuple(guessing),
        kv_budget=tuple(budget for budget in budgets if budget is not None),
        host=tuple(allocation.host_memory(checkpoint.total) for allocation in allocations),
        verdicts=tuple(judge(allocation, serving, workload) for allocation in allocations),
        assumptions=(*assumptions(serving, first, checkpoint, uncounted(config)), *draft_note(guessing)),
        scenario=ServingScenario(
            workload=workload,
            engine=engine.name,
            options=engine.options,
            precision=precision,
            layout=layout,
            overhead=overhead,
        ),
    )


def draft_note(buffers: Sequence[DeviceBuffers]) -> Iterable[Message]:
    """A sentence on the memory of the draft, which the figures include."""
    on_gpus = [buffer for buffer in buffers if buffer.device != "host"]
    parts = {what: sum(getattr(part, what) for part in on_gpus) / GIB for what in ("model", "context", "compute")}
    if any(parts.values()):
        yield Message(
            "The draft's memory is included: {model:.2f} GiB of weights, {context:.2f} GiB of cache and {compute:.2f} "
            "GiB for its passes on the GPUs.",
            **parts,
        )


def pooling_notes(architecture: Architecture, engine: Engine, limits: Limits) -> Iterable[Message]:
    """Memory of a run of a model that makes no tokens, in sentences."""
    if not architecture.pooled:
        return
    yield Message("The model makes a vector or scores of each text, and no output tokens.")
    if architecture.encodes:
        yield Message(
            "Each token sees the whole text: texts are read whole and leave no KV cache. Memory is weights, the "
            "largest forward pass and overhead."
        )
    if (free := engine.free_at_start) is not None and limits.share is None:
        yield Message(
            "{engine} sets nothing aside for it, and yet starts only where {share:.0%} of the GPU are free: lower "
            "{flag} where other models run on the same GPU.",
            engine=engine.title,
            share=free,
            flag=engine.share_option,
        )
    elif limits.share is not None:
        yield Message(
            "{engine} sets a KV cache aside as for a model that generates: attention looks back only.",
            engine=engine.title,
        )


def within_positions(workload: Workload, architecture: Architecture) -> Workload:
    """A workload whose context, where nobody asked for it, is within the model's learned positions. Raises ConfigError
    where its output leaves no prompt of these."""
    most, usual = architecture.learned_positions, Workload.model_fields["context"].default
    if most is not None and most < workload.context == usual:
        return made(Workload, workload.model_dump() | {"context": most})
    return workload


def contexts(workload: Workload, architecture: Architecture) -> list[int]:
    """Powers of two up to 128k tokens, or as far as the context that is asked for, or as learned positions go; and that
    context."""
    last = max(LONG, 1 << (workload.context - 1).bit_length())
    last = min(last, architecture.learned_positions or last)
    points = {last >> halvings for halvings in range(POINTS)} | {workload.context}
    return sorted(tokens for tokens in points if tokens > workload.generated)


def quantizes_recurrences(architecture: Architecture, precision: Precision) -> bool:
    """Whether a format, no GGUF mix, holds matrices of recurrent mixers."""
    if precision.weights in (*FLOATS, *MIXES):
        return False
    scheme = precision.scheme(experts=bool(architecture.experts))
    mixers = (tensor for tensor in architecture.tensors() if tensor.component == "ssm_linear")
    return any(scheme.form(tensor, tensor.layers[0]).bits < 16 for tensor in mixers)


def assumptions(
    serving: Serving, allocation: Allocation, checkpoint: CheckpointSize, tower: str | None
) -> Iterable[Message]:
    """Assumptions of the numbers; `tower` is a vision or audio encoder that is not counted."""
    architecture, engine, precision = serving.architecture, serving.engine, serving.precision
    workload, layout, limits = allocation.workload, serving.layout, allocation.limits
    parameters = architecture.parameters()
    yield from architecture.assumptions
    excluded = parameters.not_in_total
    yield from precision.assumptions(
        experts="experts_routed" in parameters.components, recurrent=quantizes_recurrences(architecture, precision)
    )
    if precision.checkpoint is not None:
        sizes: list[str | Message] = [f"{size(nbytes)} {name}" for name, nbytes in checkpoint.formats.items()]
        yield Message(
            "Weights are stored as the checkpoint's quantization_config says, its files holding {total:,.2f} GiB: "
            "{sizes}.",
            total=checkpoint.total / GIB,
            sizes=reduce(lambda some, item: Message("{list}; {item}", list=some, item=item), sizes),
        )
    if excluded["vision"]:
        n, gib = excluded["vision"], excluded["vision"] * 2 / GIB
        if not engine.loads_vision:
            yield Message("The vision encoder is left out: {n:,} parameters, {gib:.2f} GiB in 16 bits.", n=n, gib=gib)
        elif patches := limits.image_patches:
            sentence = (
                "The vision encoder is loaded too: {n:,} parameters, {gib:.2f} GiB in 16 bits. Profiling passes "
                "images of {patches:,} patches through it."
            )
            yield Message(sentence, n=n, gib=gib, patches=patches)
        else:
            sentence = (
                "The vision encoder is loaded too: {n:,} parameters, {gib:.2f} GiB in 16 bits. What its own layers "
                "take while they read an image is not counted."
            )
            yield Message(sentence, n=n, gib=gib)
        if tokens := limits.image_tokens:
            sentence = "The largest image or video is {tokens:,} tokens of a prompt, which take {gib:.2f} GiB of cache."
            of_token = bytes_per_token(growth(architecture.blocks, precision.kv))
            yield Message(sentence, tokens=tokens, gib=tokens * of_token / GIB)
        if image_bytes := limits.encoder_bytes:
            yield Message("Profiling keeps {gib:.2f} GiB for the largest images or video.", gib=image_bytes / GIB)
    if tower is not None:
        yield Message(
            "The encoder for images or sound ({tower}) is of an unknown class: neither counted nor loaded.", tower=tower
        )
    if excluded["multi_token_prediction"] and not engine.loads_draft:
        yield Message(
            "The multi-token prediction (MTP) layer is not loaded: {n:,} parameters.",
            n=excluded["multi_token_prediction"],
        )
    yield from engine.left_out()
    yield from pooling_notes(architecture, engine, limits)
    if architecture.max_positions is not None and workload.context > architecture.max_positions:
        yield Message(
            "The model was made for {most:,} tokens; {context:,} go beyond that.",
            most=architecture.max_positions,
            context=workload.context,
        )
    yield Message("The largest forward pass holds {n:,} tokens.", n=limits.step_tokens)
    if layout.dp > 1:
        yield Message(
            "Each of {n:,} copies serves its share of the sequences; the cache budget is that of one rank.", n=layout.dp
        )
    if layout.ep > 1:
        yield Message("Tokens are spread evenly over the routed experts.")
    if limits.share is not None:
        yield engine.at_start(limits)
    yield Message("Overhead is a range measured in public logs; the totals count its middle.")
