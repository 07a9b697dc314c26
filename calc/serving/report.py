"""Everything about one scenario, in one object: what the page draws, the command line prints and the download holds."""

from collections.abc import Iterable, Mapping
from typing import Any

from calc.errors import Frozen
from calc.families.towers import uncounted
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.hardware.overhead import Overhead, OverheadItem
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture, Parameters
from calc.serving.budget import KVBudget, kv_budget
from calc.serving.kv_cache import bytes_per_token, cache_bytes, growth, state_bytes, window_bytes
from calc.serving.memory import Memory, Serving, with_draft
from calc.serving.verdict import Verdict, judge
from calc.serving.weights import Parts, stored_bytes
from calc.serving.workload import Workload
from calc.units import GIB

CONTEXTS = tuple(2**power for power in range(10, 18))  # 1k to 128k tokens


class KVCache(Frozen):
    """Bytes over all layers. The first is what one more token of one sequence adds where the whole context is kept;
    window and state are per sequence, in layers that stop growing; `total` is of all sequences on all GPUs, each
    counted once: the least that is needed. What the engine holds on one GPU is in `memory`."""

    bytes_per_token: int
    window_bytes: int
    state_bytes: int
    total: int


class Scenario(Frozen):
    """What was asked."""

    workload: Workload
    precision: Precision
    layout: Layout
    overhead: Overhead


class Report(Frozen):
    model: str
    parameters: Parameters
    kv_cache: KVCache
    memory: Memory
    stages: tuple[Memory, ...]  # the same of each pipeline stage
    loaded: Parts  # what weights take on the fullest GPU once an engine has loaded them
    overhead_items: dict[OverheadItem, tuple[int, int]]
    by_context: dict[int, Memory]  # the same with other contexts
    kv_budget: tuple[KVBudget, ...]  # of vLLM, on each GPU
    verdicts: tuple[Verdict, ...]
    assumptions: tuple[str, ...]
    scenario: Scenario


def report(
    config: Mapping[str, Any],
    *,
    model: str | None = None,
    workload: Workload | None = None,
    precision: Precision | None = None,
    layout: Layout | None = None,
    overhead: Overhead | None = None,
    gpus: Iterable[GPU] | None = None,
) -> Report:
    """Weigh a config. Raises ConfigError with a sentence for people when it can't be read, and nothing else.

    Weights are as the checkpoint stores them unless `precision` says otherwise; `gpus` are the usual five.
    """
    architecture = Architecture.from_config(config)
    workload, layout, overhead = workload or Workload(), layout or Layout(), overhead or Overhead()
    precision = precision or Precision.of(config)
    gpus = usual_gpus() if gpus is None else list(gpus)
    tower = not workload.language_model_only
    serving = Serving(architecture, precision, layout, overhead, workload.speculative, tower=tower)
    memory = serving.memory(workload)
    held = memory.total - memory.overhead
    blocks, batch, context = architecture.all_blocks, workload.batch, workload.context
    drafting, speculates = with_draft(architecture, workload.speculative), workload.speculative != "none"
    if speculates:
        blocks += tuple(module.block for module in drafting.prediction)
    bits, state = growth(blocks, precision.kv), state_bytes(blocks)
    loaded = stored_bytes(drafting, precision, layout, workload.engine, draft=speculates, tower=tower)
    return Report(
        model=model or architecture.model_type,
        parameters=architecture.parameters(),
        kv_cache=KVCache(
            bytes_per_token=bytes_per_token(bits),
            window_bytes=window_bytes(bits, context),
            state_bytes=state,
            total=cache_bytes(bits, state, batch, context),
        ),
        memory=memory,
        loaded=max(loaded, key=lambda parts: parts.total),
        stages=tuple(serving.by_stage(workload)),
        overhead_items=overhead.items(workload.engine, layout.gpus, held),
        by_context={
            tokens: serving.memory(workload.model_copy(update={"context": tokens}))
            for tokens in CONTEXTS
            if tokens > workload.generated
        },
        kv_budget=tuple(kv_budget(gpu, serving, workload) for gpu in gpus if workload.engine == "vllm"),
        verdicts=tuple(judge(gpu, architecture, serving, workload) for gpu in gpus),
        assumptions=tuple(assumptions(architecture, workload, precision, layout, uncounted(config))),
        scenario=Scenario(workload=workload, precision=precision, layout=layout, overhead=overhead),
    )


def assumptions(
    architecture: Architecture, workload: Workload, precision: Precision, layout: Layout, tower: str | None
) -> Iterable[str]:
    """What the numbers take for granted, in sentences; `tower` is one that is not counted."""
    yield from architecture.assumptions
    apart = architecture.parameters().not_in_total
    experts = "experts_routed" in architecture.parameters().components
    if (sentence := precision.assumption(experts=experts)) is not None:
        yield sentence
    if apart["vision"]:
        size = f"{apart['vision']:,} parameters, {apart['vision'] * 2 / GIB:.2f} GiB in 16 bits"
        if workload.language_model_only:
            yield f"The image tower is left out: {size}."
        else:
            yield f"The image tower is loaded too: {size}. What it takes to read an image is not counted."
    if tower is not None:
        yield f"The tower for images or sound ({tower}) is of an unknown class: neither counted nor loaded."
    if workload.speculative == "eagle":
        yield "EAGLE's draft layer is taken to be one more like the model's last, with a cache of its own."
    if apart["multi_token_prediction"] and workload.speculative != "mtp":
        yield f"The multi-token-prediction layer is not loaded: {apart['multi_token_prediction']:,} parameters."
    if architecture.max_positions is not None and workload.context > architecture.max_positions:
        yield f"The model was made for {architecture.max_positions:,} tokens; {workload.context:,} go beyond that."
    yield f"The largest forward pass holds {workload.step_tokens:,} tokens."
    if layout.dp > 1:
        yield f"Each of {layout.dp:,} copies serves its share of the sequences; the cache budget is that of one rank."
    if layout.ep > 1:
        yield "Tokens are spread evenly over the routed experts."
    if workload.engine == "vllm":
        seqs = workload.max_num_seqs or workload.batch
        yield f"vLLM samples for {seqs:,} sequences at once here; what it leaves for its cache is by its own defaults."
    yield "Overhead is a range measured in public logs; the totals count its middle."
