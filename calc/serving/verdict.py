"""One kind of GPU against one scenario: does it fit, what else would, and on how few GPUs."""

from collections.abc import Callable, Hashable, Iterator
from typing import Literal, TypeVar, get_args

from pydantic import Field

from calc.errors import Frozen, Message
from calc.hardware.engine_rules import format_note
from calc.hardware.mig import slice_notes
from calc.hardware.overhead import HIGH, LOW, MIDDLE, left_for_overhead
from calc.hardware.parallel import Layout
from calc.hardware.solver import largest, largest_near
from calc.serving.engines.engine import Engine
from calc.serving.engines.sizes import Limits
from calc.serving.fewest import fewest_gpus
from calc.serving.memory import MOST_TOKENS, Allocation, Memory, Serving
from calc.serving.workload import Workload
from calc.units import GIB, size

VerdictWord = Literal["fits", "fits with", "tight", "does not fit", "does not run"]
VERDICT_WORDS: tuple[VerdictWord, ...] = get_args(VerdictWord)
"""Verdicts, the best first."""
MOST_BATCH = 2**24
SECANT_STEPS = 4
"""Steps of the secant method by which an estimate comes closer."""
T = TypeVar("T")
ON_HOST = Message(
    "Part of the model lies in the host's memory: how fast it is depends on the host, which My machine asks about."
)


class Verdict(Frozen):
    """Bytes are those of one GPU.

    With an engine that sets its cache aside at start, `fits` means that it starts with these settings, even at the high
    end of the overhead, and that its cache holds every sequence; `fits with`, that it does so with the `flags`. With
    one that takes memory as it goes, that even the high end fits. `tight`: the range of the overhead decides.
    `does not run`: the engine does not serve this family, in this format, on this GPU, whatever memory it has.
    `required` counts the middle of that range, and `usable` is what the engine may take.
    """

    gpu: str
    gpus: int
    verdict: VerdictWord
    flags: tuple[str, ...] = ()  # of the least change that does, where the verdict is `fits with`
    required: int
    usable: int
    spare: int
    max_context: int | None  # tokens a sequence at this batch, of what memory and the model allow; None: no limit
    max_context_memory: int | None  # the same of what memory allows alone
    max_batch: int | None  # sequences at this context; None: no limit
    min_gpus: int | None  # None: not even 1,024 will do
    layout: Layout | None  # the one that does on `min_gpus`
    reason: Message
    notes: tuple[Message, ...]
    memory: Memory
    limits: Limits
    pools: bool = Field(default=False, exclude_if=lambda pools: not pools)
    """Whether the model makes a vector or scores of a text, which no figure of decoding describes."""
    on_host: bool = Field(default=False, exclude_if=lambda on_host: not on_host)
    """Whether weights or the cache stay on the host so, or with the flags, whose speed is that of a whole machine."""

    @property
    def serves(self) -> bool:
        """Whether it may start so, and makes tokens on GPUs alone: its speed is known."""
        return not (self.pools or self.on_host) and self.verdict in ("fits", "fits with", "tight")


def judge(allocation: Allocation, serving: Serving, workload: Workload) -> Verdict:
    """The verdict on what a kind of GPU holds of a model as laid out, of which it has its share of the sequences."""
    gpu = allocation.gpu
    word = verdict_word(allocation)
    changes = remedy(allocation) if word != "fits" else None
    fewest = None if word == "fits" and serving.layout.gpus == 1 else fewest_gpus(gpu, serving, workload)
    if word == "fits" and (fewest is None or fewest.gpus > serving.layout.gpus):
        fewest = serving.layout  # one, or more copies than the search lays out, which share sequences for stated blocks
    by_memory = agreeing_limit(allocation, "context", max_context(allocation))
    engine = allocation.serving.engine if changes is None else allocation.serving.engine.with_options(**changes)
    on_host = engine.leaves_on_host(serving.architecture, serving.layout.gpus)
    batch = agreeing_limit(allocation, "batch", max_batch(allocation, copies=1))
    limits = [limit for limit in (by_memory, serving.architecture.max_positions) if limit is not None]
    return Verdict(
        gpu=gpu.id,
        gpus=serving.layout.gpus,
        verdict=word if changes is None else "fits with",
        flags=() if changes is None else serving.engine.flags(changes),
        required=allocation.memory.total,
        usable=allocation.usable,
        spare=allocation.spare,
        max_context=min(limits) if limits else None,
        max_context_memory=by_memory,
        max_batch=None if batch is None else batch * serving.layout.dp,
        min_gpus=None if fewest is None else fewest.gpus,
        layout=fewest,
        reason=reason(allocation),
        notes=(*notes(allocation), *([ON_HOST] if on_host else [])),
        memory=allocation.memory,
        limits=allocation.limits,
        pools=serving.architecture.pooled,
        on_host=on_host,
    )


def verdict_word(allocation: Allocation) -> VerdictWord:
    if allocation.refusal is not None:
        return "does not run"
    return "fits" if allocation.surely_fits else "tight" if allocation.fits(LOW) else "does not fit"


def remedy(allocation: Allocation) -> dict[str, object] | None:
    """The least change of options with which it fits; None where no change does."""
    return once_for_alike_gpus(allocation, ("remedy", allocation.workload), lambda: least_change(allocation))


def least_change(allocation: Allocation) -> dict[str, object] | None:
    if allocation.refusal is not None:
        return None
    memory, serving, workload = allocation.memory, allocation.serving, allocation.workload
    engine, needed = serving.engine, memory.weights + memory.vision + memory.kv_cache - set_aside(allocation)

    def fits_with(changes: dict[str, object]) -> bool:
        return allocation.with_engine(engine.with_options(**changes)).surely_fits

    if needed <= allocation.gpu.usable_bytes:
        for changes in candidates(engine, allocation.limits, workload, fits_with):
            if fits_with(changes):
                return changes
    offload = engine.offloaded(serving.laid_out, allocation.gpu, workload, serving.overhead)
    return offload if offload is not None and fits_with(offload) else None


def set_aside(allocation: Allocation) -> int:
    """Bytes of the cache on the most loaded GPU that flags set aside, whatever is asked."""
    pool = allocation.requirements.pool
    return 0 if pool is None else pool.fixed_bytes(allocation.most_loaded)


def candidates(
    engine: Engine, limits: Limits, workload: Workload, fits_with: Callable[[dict[str, object]], bool]
) -> Iterator[dict[str, object]]:
    """The engine's remedies, the least first, without kinds of which even the greatest does not help. A larger share of
    the GPU is a kind of its own: it may leave too little outside."""
    remedies = list(engine.remedies(limits, workload))
    greatest = {engine.share_option in changes: changes for changes in remedies}  # the last of each kind
    hopeful = {kind for kind in sorted(greatest) if fits_with(greatest[kind])}
    return (changes for changes in remedies if (engine.share_option in changes) in hopeful)


def max_context(allocation: Allocation, most: int = MOST_TOKENS) -> int | None:
    """The longest context at this batch that fits, up to `most`; None where memory sets no limit."""
    if allocation.refusal is not None:
        return 0
    workload = allocation.workload
    first = workload.generated + 1

    def fits(tokens: int) -> bool:
        return tokens < first or allocation.with_workload(context=tokens).surely_fits

    def search() -> int:
        if allocation.sets_aside:
            return largest_near(fits, most, min(most, max(first, allocation.max_cached_context())))
        if fits(most):
            return most
        if has_no_room(allocation.with_workload(context=first)):
            return 0
        return largest(fits, most, max(first, estimated_limit(allocation, "context", most)), step=1)

    longest = once_for_alike_gpus(allocation, ("context", most, workload.batch, workload.generated), search)
    return None if longest == most else 0 if longest < first else longest


def has_no_room(allocation: Allocation) -> bool:
    """Whether weights and cache alone are more than a GPU has."""
    return allocation.least_memory(HIGH) > allocation.gpu.usable_bytes


def max_batch(allocation: Allocation, copies: int) -> int | None:
    """The most sequences of this context that fit, over all data-parallel copies; None where memory sets no limit."""
    if allocation.sets_aside:  # a cache that does not depend on the batch
        accepts = allocation.request_refusal is None and allocation.starts(HIGH)
        largest_batch = int(min(allocation.concurrency(MIDDLE), MOST_BATCH)) if accepts else 0
    else:

        def search() -> int:
            if has_no_room(allocation.with_workload(batch=1)):
                return 0
            near = estimated_limit(allocation, "batch", MOST_BATCH)
            return largest(lambda batch: allocation.with_workload(batch=batch).surely_fits, MOST_BATCH, near, step=1)

        workload = allocation.workload
        largest_batch = once_for_alike_gpus(allocation, ("batch", workload.context, workload.generated), search)
    return None if largest_batch == MOST_BATCH else largest_batch * copies


def agreeing_limit(allocation: Allocation, axis: Literal["context", "batch"], most: int | None) -> int | None:
    """The largest amount, `most` by a search, that agrees with the verdict on the requested one. llama.cpp places a
    pass of more sequences or tokens in other gaps (ggml-alloc.c), where it may take some megabytes less: an amount may
    fit although a smaller one does not, and the search finds one of the limits."""
    requested: int = getattr(allocation.workload, axis)
    if allocation.sets_aside or (most is None or requested <= most) == allocation.surely_fits:
        return most
    if allocation.surely_fits:
        return requested
    return largest_near(lambda n: allocation.with_workload(**{axis: n}).surely_fits, requested - 1, requested - 1)


def once_for_alike_gpus(allocation: Allocation, question: Hashable, answer: Callable[[], T]) -> T:
    """Answer about what a GPU holds, computed once for all GPUs with equal `memory_key`."""
    serving = allocation.requested
    known, key = serving.remembered_answers, (serving.engine.memory_key(allocation.gpu), question)
    if key not in known:
        known[key] = answer()
    answered: T = known[key]
    return answered


def estimated_limit(allocation: Allocation, axis: Literal["context", "batch"], most: int) -> int:
    """Estimate of the largest batch or context that fits, by the secant method: passes grow only from some amount on,
    and weights that a GPU takes over from the host hide small ones. Where the engine decides for each amount what stays
    on the host, the answer with as much there as may be."""
    requested = allocation.requested
    if (roomiest := requested.engine.most_on_host) is not requested.engine:
        there = Allocation(requested.with_engine(roomiest), allocation.gpu, allocation.workload)
        largest_there = max_context(there, most) if axis == "context" else max_batch(there, 1)
        return most - 1 if largest_there is None else max(1, largest_there)

    def excess_bytes(amount: int) -> int:
        there = allocation.with_workload(**{axis: amount})
        return max(stage.memory.high for stage in there.stages) - there.gpu.usable_bytes

    def crossing(amount: int, excess: int, slope: float) -> int:
        return min(most - 1, max(1, int(amount - excess / slope))) if slope > 0 else amount

    amount = allocation.workload.context if axis == "context" else allocation.workload.batch
    cached, excess = allocation.memory.kv_cache, excess_bytes(amount)
    crossed = crossing(amount, excess, cached / amount) if cached else most
    for _ in range(SECANT_STEPS):
        if crossed == amount:
            break
        before, excess_before, amount, excess = amount, excess, crossed, excess_bytes(crossed)
        crossed = crossing(amount, excess, (excess - excess_before) / (amount - before))
    return crossed


def reason(allocation: Allocation) -> Message:
    """Reason of the verdict, a sentence."""
    if allocation.refusal is not None:
        return allocation.refusal
    if (sentence := allocation.request_refusal) is not None:
        return sentence
    if allocation.sets_aside:
        return reason_at_start(allocation)
    memory, usable = allocation.memory, allocation.usable
    required = memory.total - memory.overhead
    if usable < required:
        name, size = max(memory.parts.items(), key=lambda part: part[1])
        return Message(
            "Weights, cache and activations need {needed:.2f} GiB before any overhead, {more:.2f} more than there are; "
            "the largest part is the {part} with {size:.2f}.",
            needed=required / GIB,
            more=(required - usable) / GIB,
            part=name,
            size=size / GIB,
        )
    return left_for_overhead(usable - required, memory.overhead_low, memory.overhead_high)


def reason_at_start(allocation: Allocation) -> Message:
    """Notes on an engine that sets its cache aside: whether it starts, and what the cache then holds."""
    engine, context, batch = allocation.serving.engine.title, allocation.workload.context, allocation.workload.batch
    roomy, budget, scarce = (allocation.room(end).budgets[allocation.most_loaded] for end in (LOW, MIDDLE, HIGH))
    pool, blocks = allocation.requirements.pool, allocation.room(MIDDLE).blocks
    fixed = set_aside(allocation)
    profiled = 0 if pool is None else pool.profiled_bytes(allocation.most_loaded)
    cache, need = (budget.cache - profiled) / GIB, (allocation.memory.kv_cache - fixed) / GIB
    if allocation.starts(LOW) and not allocation.starts(HIGH):
        return Message(
            "Whether {engine} starts depends on the overhead: it leaves {low:.2f} to {high:.2f} GiB for the cache, of "
            "which a request of {context:,} tokens needs {need:.2f}.",
            engine=engine,
            low=max(0, scarce.cache - profiled) / GIB,
            high=(roomy.cache - profiled) / GIB,
            context=context,
            need=need / batch,
        )
    if budget.shortage:
        return Message(
            "{engine} does not start: it sets {requested:.2f} GiB aside, and the GPU has {missing:.2f} GiB too little "
            "for that and what lies outside.",
            engine=engine,
            requested=budget.requested / GIB,
            missing=budget.shortage / GIB,
        )
    if budget.cache <= 0:
        name, most = max(budget.allocated.items(), key=lambda part: part[1])
        return Message(
            "{engine} does not start: it takes {requested:.2f} GiB, and {needed:.2f} are needed before there is any "
            "cache; the largest part is the {part} with {size:.2f}.",
            engine=engine,
            requested=budget.requested / GIB,
            needed=sum(budget.allocated.values()) / GIB,
            part=Message(name),
            size=most / GIB,
        )
    if budget.cache < fixed:
        return Message(
            "{engine} does not start: it sets {fixed:.2f} GiB aside for up to {sequences:,} sequences, and {cache:.2f} "
            "GiB are left for that and the cache.",
            engine=engine,
            fixed=fixed / GIB,
            sequences=allocation.limits.sequences,
            cache=budget.cache / GIB,
        )
    if pool is not None and blocks < pool.least_blocks(allocation.limits.sequences):
        return Message(
            "{engine} does not start: it would run up to {sequences:,} sequences at once, each of which needs a "
            "recurrent state, and the cache has {blocks:,} blocks.",
            engine=engine,
            sequences=allocation.limits.sequences,
            blocks=blocks,
        )
    if not allocation.starts(MIDDLE):
        return Message(
            "{engine} refuses requests of {context:,} tokens, which need {need:.2f} GiB each: the cache of {cache:.2f} "
            "GiB holds at most {longest:,}.",
            engine=engine,
            context=context,
            need=need / batch,
            cache=cache,
            longest=allocation.longest_request(MOST_TOKENS),
        )
    if allocation.fits(LOW) and not allocation.fits(MIDDLE):
        return Message(
            "The cache holds {few:,.2f} to {many:,.2f} requests of {context:,} tokens, by what overhead takes.",
            few=allocation.concurrency(HIGH),
            many=allocation.concurrency(LOW),
            context=context,
        )
    return Message(
        "The cache of {cache:.2f} GiB holds {requests:,.2f} requests of {context:,} tokens; one needs {need}.",
        plural="The cache of {cache:.2f} GiB holds {requests:,.2f} requests of {context:,} tokens; {n:,} need {need}.",
        n=batch,
        cache=cache,
        requests=allocation.concurrency(MIDDLE),
        context=context,
        need=size(allocation.memory.kv_cache - fixed),
    )


def notes(allocation: Allocation) -> Iterator[Message]:
    """Formats without native arithmetic on the card, and limits of the engine."""
    gpu, precision, limits = allocation.gpu, allocation.serving.precision, allocation.limits
    weights, kv, engine = gpu.lacks(precision.weights), gpu.lacks(precision.kv), allocation.serving.engine.support
    yield from slice_notes(gpu)
    if (warning := format_note(gpu, engine, precision.weights)) is not None:
        yield warning
    elif weights is not None and allocation.refusal is None:
        yield weights
    if kv is not None and precision.kv != precision.weights:
        yield Message("KV cache: {note}", note=kv)
    if limits.sequences < allocation.workload.batch:
        yield Message(
            "{engine} runs one sequence at once; the others wait.",
            plural="{engine} runs at most {n:,} sequences at once; the others wait.",
            engine=allocation.serving.engine.title,
            n=limits.sequences,
        )
