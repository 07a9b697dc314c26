"""Times of a server's step, of a prompt, and of both at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from calc.budget import spent
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.serving.memory import Serving
from calc.serving.workload import Workload
from calc.time.arrays import any_nonzero, maximum, minimum, where
from calc.time.cluster import USUAL, Cluster
from calc.time.estimate import End
from calc.time.operations import Demand, Forward, PassPart, decode, demand, prefill
from calc.time.roofline import Machine, Timed, communication, machine, shared_tokens, sharing, timed

TimedParts = Sequence[Timed]
"""Parts of a pass's time, where known already; else empty."""


@dataclass(frozen=True)
class Speed:
    """A model laid out on GPUs of one kind under an engine, ready to be timed. Batches are those of all data-parallel
    copies; figures may be numbers or arrays."""

    demands: tuple[Demand, ...]  # of each pipeline stage
    layout: Layout
    machines: Callable[[End], Machine]
    splits_batch: bool = True  # whether pipeline stages work on one part of the sequences each, at the same time
    state_width: int | None = None  # bytes of an element that a stage passes on; None: as wide as the activations
    all_to_all: bool = False  # whether ranks send tokens to experts; else copies gather them

    def parts(self, forward: Forward, end: End, *, decodes: bool) -> Iterator[Timed]:
        """Parts of a pass's time: operations, communication, and the host, stage after stage."""
        on = self.machines(end)
        for stage in self.demands:
            operations = stage.operations(forward)
            yield from (timed(operation, on) for operation in operations)
            if not decodes:
                yield from on.prompt_kernels(stage, operations)
            yield Timed("communication", self.communication(stage, forward, on))
            yield Timed("host", on.host(stage, decodes=decodes))

    def communication(self, stage: Demand, forward: Forward, on: Machine) -> Any:
        """Seconds within the layers of a stage, and to the next."""
        within = communication(on, self.layout, stage, forward.tokens, self.all_to_all)
        if any_nonzero(stage.dcp > 1):
            decoded = forward.sum(lambda part: part.tokens if part.decodes else 0)
            within += shared_tokens(
                on, stage.dcp, stage.attention_layers, decoded * stage.exchanged_elements * stage.width
            )
        state = stage.hidden * (self.state_width or stage.width)
        passed_on = on.all_reduce + forward.tokens * state / on.link
        return where(self.layout.pp == 1, within, within + stage.stages * passed_on)

    def seconds(self, forward: Forward, end: End, *, decodes: bool) -> Any:
        """Seconds of one pass through all stages."""
        return sum(part.seconds for part in self.parts(forward, end, decodes=decodes))

    def decoding(self, batch: Any, context: Any, new: Any = 1) -> Forward:
        """The pass of a decode step on one rank: a data-parallel copy has its share of the sequences, of which pipeline
        stages work on one part each at a time, or on all one after the other."""
        stages = self.layout.pp if self.splits_batch else 1
        return decode(largest_share(batch, self.layout.dp * stages), context, new)

    def pace(self, batch: Any) -> Any:
        """Factor of a step's time over the sum of its stages: with a part of the sequences in each, all wait for the
        one with the most layers."""
        longest = reduce(np.maximum, (stage.longest_stage for stage in self.demands))
        parts = np.minimum(self.layout.pp, largest_share(batch, self.layout.dp))
        return np.maximum(1.0, parts * longest / sum(stage.layers for stage in self.demands))

    def decode_parts(self, batch: Any, context: Any, end: End, new: Any = 1) -> Iterator[Timed]:
        """Parts of a step in which each of `batch` sequences of `context` tokens gets `new` more."""
        parts = self.parts(self.decoding(batch, context, new), end, decodes=True)
        if not self.splits_batch or not any_nonzero(self.layout.pp > 1):
            return parts
        pace = self.pace(batch)
        return (part.times(pace) for part in parts)

    def step(self, batch: Any, context: Any, end: End, new: Any = 1) -> Any:
        """Seconds of such a step."""
        return sum(part.seconds for part in self.decode_parts(batch, context, end, new))

    def prompt(self, sequences: Any, tokens: int, end: End, chunk: int | None = None, past: int = 0) -> Any:
        """Seconds until the first token of prompts that come together behind `past` cached tokens, in passes of at most
        `chunk` tokens in all."""
        parts = self.prompt_parts(largest_share(sequences, self.layout.dp), tokens, end, chunk, past)
        return self.machines(end).request + sum(part.seconds for part in parts)

    def prompt_parts(
        self, sequences: Any, tokens: int, end: End, chunk: Any = None, past: int = 0
    ) -> tuple[Timed, ...]:
        """Parts of the time of such prompts on one rank, each summed over all passes."""
        passes = (
            total_parts(partial(self.parts, end=end, decodes=False), each)
            for each in chunked(sequences, tokens, chunk, past, windows_of(self.demands))
        )
        return tuple(
            Timed(first.what, *map(sum, zip(*(part.figures for part in (first, *others)), strict=True)))
            for first, *others in zip(*passes, strict=True)
        )

    def speculative(self, batch: Any, context: Any, end: End, drafted: int, draft: "Speed") -> Any:
        """Seconds of a step that drafts so many tokens one by one and verifies them in one pass."""
        return self.step(batch, context, end, drafted + 1) + drafted * draft.step(batch, context, end)


@dataclass(frozen=True)
class FullServer:
    """A server that is always full: where an answer ends a prompt comes, of which `cached` tokens are there already.

    A step is one of decoding, each sequence on average half way through its output, and its share of a prompt's passes,
    for which all micro-batches of a pipeline wait.
    (The mean of the steps is not the step of the mean: experts that a step reads level off with its tokens.) The host
    launches the passes of a prompt while those of others run.
    """

    speed: Speed
    prompt: int
    output: int
    chunk: Any  # tokens of a prompt in one pass; [rows, 1] of machines that are
    cached: int = 0
    end: End = "expected"
    poll: Any = 1  # steps from one look for new requests to the next
    by_chance: bool = False  # requests come at random, and not where an answer ends
    together: float = 0  # prompts of others that come with one: of clients in step, whose lengths are equal

    @cached_property
    def prompt_parts(self) -> tuple[Timed, ...]:
        """Times of all passes of a prompt, each part summed."""
        sequences = 1.0  # no int: FLOPs of a long prompt's pairs are beyond an array's 64 bits
        return self.speed.prompt_parts(sequences, self.prompt - self.cached, self.end, self.chunk, self.cached)

    @property
    def launched_parts(self) -> Iterator[Timed]:
        """Times of a prompt's passes on a GPU that is never idle: all but the host's."""
        return (part for part in self.prompt_parts if part.what != "host")

    @cached_property
    def launched(self) -> Any:
        """Seconds that a prompt adds to the steps of such a GPU."""
        return sum(part.seconds for part in self.launched_parts)

    @cached_property
    def unqueued_ttft(self) -> Any:
        """Seconds until the first token of a prompt that meets no other, its request's own time included."""
        return self.speed.machines(self.end).request + sum(part.seconds for part in self.prompt_parts)

    def running(self, batch: Any) -> Any:
        """Sequences of a data-parallel copy, and pipeline stage, that run together."""
        return largest_share(batch, self.speed.layout.dp * self.speed.layout.pp)

    def decode_parts(self, batch: Any) -> Iterator[Timed]:
        """Parts of a step in which every sequence decodes, half way through its output."""
        return self.speed.decode_parts(batch, self.prompt + self.output // 2, self.end)

    def decode_step(self, batch: Any, decoded: TimedParts = ()) -> Any:
        """Seconds of such a step."""
        return sum(part.seconds for part in decoded or self.decode_parts(batch))

    def first_token(self, batch: Any, decoded: TimedParts = ()) -> Any:
        """Seconds until a prompt's first token (TTFT). With others it waits until the engine looks for requests, on
        average half as long as from one look to the next, and admits it; for the decode step that its pass is part of;
        for prompts that come with its own; and for a share of the others': of n - 1 that come within as many turns,
        half are ahead of it. Requests that come by chance meet the prompts that an average step has."""
        on, others = self.speed.machines(self.end), self.running(batch) - 1
        steps = self.poll / 2 + 1
        if self.by_chance:
            ahead = steps * self.step(batch, decoded)
        else:
            prompts = (self.together + on.queue * others / 2) * self.launched
            ahead = steps * self.decode_step(batch, decoded) + prompts
        return self.unqueued_ttft + np.where(others > 0, on.admission + ahead, 0.0)

    def parts(self, batch: Any, own: int = 0, decoded: TimedParts = ()) -> Iterator[Timed]:
        """Parts of a step with `batch` sequences, without the prompts of `own` of a copy's; `decoded` are those of
        decoding, where known."""
        yield from decoded or self.decode_parts(batch)
        delays = self.delays(np.maximum(self.running(batch) - own, 0) / self.output)
        yield from (part.times(delays) for part in self.launched_parts)

    def delays(self, prompts: Any) -> Any:
        """Prompts that a sequence waits for in a step, where a micro-batch of a pipeline has so many: they follow one
        another around it, so that all wait for a prompt's pass in any of them (bubbles, arXiv:2308.16369)."""
        passes = -(-(self.prompt - self.cached) // self.chunk)
        laden = 1 - (1 - np.minimum(prompts * passes, 1.0)) ** self.speed.layout.pp
        return np.maximum(prompts, laden / passes)

    def step(self, batch: Any, decoded: TimedParts = ()) -> Any:
        """Seconds of a step; a sequence takes as many as it puts out tokens, its own prompt included."""
        return sum(part.seconds for part in self.parts(batch, decoded=decoded))

    def token(self, batch: Any, decoded: TimedParts = ()) -> Any:
        """Seconds in which one who reads an answer gets its next token (TPOT): it includes the others' prompts."""
        return sum(part.seconds for part in self.parts(batch, own=1, decoded=decoded))


def accepted_tokens(rate: float, drafted: int) -> float:
    """Tokens that a speculative step yields, where each drafted token is right with the same chance: 1 + a + a² + …
    (arXiv:2211.17192 section 3.1)."""
    return float(sum(rate**i for i in range(drafted + 1)))


class PromptPasses(NamedTuple):
    """Passes of as many tokens, each behind those of the one before, whose work grows evenly from the first to the
    last."""

    first: Forward
    last: Forward
    count: Any
    times: Any = 1  # how often all of them come


def chunked(
    sequences: Any, tokens: int, chunk: Any, past: int = 0, windows: Iterable[int] = ()
) -> Iterator[PromptPasses]:
    """The passes of prompts behind `past` cached tokens each: as many whole prompts in one as fit into `chunk` tokens,
    or chunks of each. Attention over a window reads evenly more up to its length and as much beyond it: the pass that
    crosses it stands alone."""
    if chunk is None:
        yield PromptPasses(only := prefill(sequences, tokens, past), only, 1)
        return
    together = minimum(maximum(chunk // tokens, 1), sequences)
    before_last = -(-tokens // chunk) - 1
    borders = [(window - past) // chunk + crossed for window in sorted(windows) for crossed in (0, 1)]
    for count, times in ((together, sequences // together), (sequences % together, 1)):
        if not any_nonzero(count):
            continue
        start: Any = 0
        for border in spent((*borders, before_last)):
            stop = minimum(maximum(border, start), before_last)
            if any_nonzero(stop > start):
                behind = (past + chunk * at for at in (start, maximum(stop - 1, start)))
                first, last = (Forward((PassPart(count, chunk, at),), logits=0) for at in behind)
                yield PromptPasses(first, last, stop - start, times)
            start = stop
        last = prefill(count, tokens - chunk * before_last, past + chunk * before_last)
        yield PromptPasses(last, last, 1, times)


def windows_of(demands: Iterable[Demand]) -> frozenset[int]:
    """Tokens that windows of attention reach back."""
    return frozenset(back for stage in demands for back in (*stage.pair_flops, *stage.read_bits) if back is not None)


def total_parts(parts: Callable[[Forward], Iterable[Timed]], passes: PromptPasses) -> Iterator[Timed]:
    """Each part of a pass's time, summed over the passes."""
    first, last, count, times = passes
    if first is last:
        yield from (part.times(count * times) for part in parts(first))
        return
    for begun, ended in zip(parts(first), parts(last), strict=True):
        yield summed_series(begun, ended, count).times(times)


def summed_series(first: Timed, last: Timed, count: Any) -> Timed:
    """The sum of `count` times of an operation whose arithmetic and memory traffic grow evenly: that of an arithmetic
    series, less, where one of both binds at first and the other at last, what the larger at either end is too much."""
    seconds, compute, memory = (count * (a + b) / 2 for a, b in zip(first.figures, last.figures, strict=True))
    begun, ended = first.compute - first.memory, last.compute - last.memory
    most = np.maximum(begun, ended)
    changes = (begun * ended < 0) & (count > 1)
    step = np.where(changes, np.abs(ended - begun), 1.0) / np.maximum(count - 1, 1)
    bound = np.floor(most / step) + 1  # passes in which arithmetic binds
    over = most * (count / 2 - bound) + step * bound * (bound - 1) / 2
    return Timed(first.what, seconds - np.where(changes, over, 0.0), compute, memory)


def largest_share(batch: Any, parts: Any) -> Any:
    """Largest of the parts into which a batch is divided."""
    if isinstance(parts, np.ndarray):
        return np.ceil(batch / parts)
    return batch if parts == 1 else -(-batch // parts)


def speed_on(
    gpu: GPU,
    serving: Serving,
    cluster: Cluster = USUAL,
    *,
    sibling: Speed | None = None,
    kernels: str | None = None,
    machine_of: Callable[..., Machine] = machine,
) -> Speed:
    """The speed of a model that is laid out for its memory; `sibling` is that of these ranks in other formats,
    `kernels` the name under which they are measured, if not its engine's; `machine_of` is `machine`, or remembers what
    it gave. Its work is computed once for all GPUs."""
    laid_out, engine = serving.laid_out, serving.engine
    precision, layout = laid_out.precision, laid_out.layout
    if serving.known_demands is None:
        states = partial(engine.state_bytes, laid_out.whole)
        model = laid_out.whole, laid_out.rank, precision, layout
        work = partial(demand, *model, file=serving.weighing.read, states=states)
        others = [None] * len(laid_out.ranges) if sibling is None else sibling.demands
        stages = zip(laid_out.ranges, others, strict=True)
        serving.known_demands = tuple(work(stage, sibling=other) for stage, other in stages)
    demands: tuple[Demand, ...] = serving.known_demands
    ranks = sharing(layout, experts=demands[0].routing is not None)
    on = gpu, kernels or engine.kernels, precision.weights, ranks
    machines = cache(lambda end: machine_of(*on, end, cluster))
    return Speed(demands, layout, machines, engine.splits_batch, engine.state_width, engine.all_to_all(layout))


def halfway(workload: Workload) -> int:
    """Tokens of a sequence whose answer is half written."""
    return max(2, workload.context - workload.generated // 2)
