"""Derivations of a report's figures: lines of formula, values and result, which the formulas themselves yield, and the
sections that these make on paper."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from calc.errors import Message
from calc.formats import CACHE_BITS, HEAD_SCALE_BITS, CacheFormat
from calc.formats.stored import CheckpointSize
from calc.hardware.overhead import MIDDLE, OverheadSizes
from calc.model.architecture import Architecture
from calc.model.derivation import Legend, Step, Symbols, derive, window_steps
from calc.model.formula import Formula, Operand, bare, floor, quotient, repeated, total
from calc.model.named import steps
from calc.model.paper import Anchor, Equation, Exact, Heading, Item, PaperTable, Section, added, legend_of, lines
from calc.model.rough import RuleOfThumb, cache_rule, gated_rule, square_rule
from calc.model.tensor import Component
from calc.serving.engines.cache import Pool
from calc.serving.kv_cache import sequence_bytes
from calc.serving.memory import Allocation, Serving
from calc.serving.report import Report
from calc.serving.verdict import Verdict

Lines = list[Step]


def cache_steps(architecture: Architecture, kv: CacheFormat) -> list[Step]:
    """Bytes that a token adds, by window and formula. Those of the whole context sum to the bytes a token; those of a
    window hold until it is full."""
    symbols = Symbols()
    model = symbols, architecture, symbols.apply(architecture)
    parts = [("bits", CACHE_BITS[kv], window_steps(*model))]
    if kv in HEAD_SCALE_BITS:
        scales = window_steps(*model, lambda mixer: (mixer.cached_head_vectors(), 0))
        parts.append(("scale_bits", HEAD_SCALE_BITS[kv], scales))
    return [
        Step(
            what=step.what,
            formula=in_bytes(step.formula, name),
            values=in_bytes(step.values, bits),
            result=step.result * bits // 8,
            unit="bytes a token" if window is None else f"bytes a token, up to {window:,} tokens",
        )
        for name, bits, steps in parts
        for window, step in steps
    ]


def in_bytes(elements: Formula | None, bits: Operand) -> Formula:
    """Elements of so many bits each, in bytes."""
    assert elements is not None
    count, group = elements.parts
    return quotient(repeated(count, bare(group), bits), 8)


def total_cache_steps(report: Report) -> tuple[Lines, Legend]:
    """Bytes of all sequences, each counted once, and what the symbols mean."""
    cache, workload, symbols = report.kv_cache, report.scenario.workload, Symbols()
    batch = symbols.named("batch", workload.batch, "sequences")
    context = symbols.named("context", workload.context, "tokens of a sequence")
    per_token = symbols.named("bytes_per_token", cache.bytes_per_token, "bytes a token of layers that keep all tokens")
    windows = symbols.named("window_bytes", cache.window_bytes, "bytes of layers with a window")
    states = symbols.named("state_bytes", cache.state_bytes, "bytes of states that do not grow")
    cached = sequence_bytes(
        context, per_token, windows if cache.window_bytes else 0, states if cache.state_bytes else 0
    )
    return [symbols.line("kv_cache", batch * cached)], symbols.occurring()


class Derivations:
    """Derivations of one allocation: each method has the lines of one figure, their legend stands in `symbols`."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation, self.serving, self.memory = allocation, allocation.serving, allocation.memory
        self.most_loaded = allocation.most_loaded
        self.overhead_items: OverheadSizes = allocation.stages[self.most_loaded].sizes
        """Bytes of each part of the overhead, from low to high."""
        self.symbols = Symbols()

    def weights(self) -> Lines:
        """Bytes by component and format, on one GPU of the most loaded stage."""
        serving, laid_out = self.serving, self.serving.laid_out
        of_stages = serving.engine.draft_weights_per_stage(
            laid_out.whole, serving.precision, serving.layout.tp, len(laid_out.ranges)
        )
        drafts = plain({"draft": of_stages[self.most_loaded]})
        return [*weight_steps(serving, laid_out.ranges[self.most_loaded]), *drafts]

    def loaded(self) -> Lines:
        """Bytes of the weights after the engine has loaded them."""
        return plain(asdict(self.serving.laid_out.stages[self.most_loaded].loaded))

    def kv_cache(self) -> Lines:
        """Bytes of the cache of all sequences on one GPU: in blocks where the engine has them, else at the peak."""
        symbols, cache, workload = self.symbols, self.allocation.cache, self.allocation.workload
        if not isinstance(cache, Pool):
            return plain({"kv_cache": self.memory.kv_cache}, "kv_cache")
        batch = symbols.of("batch", workload.batch)
        blocks = symbols.named("blocks", cache.request_blocks(workload.context), "blocks of a request")
        size = symbols.named("block_bytes", cache.block_bytes[self.most_loaded], "bytes of a block")
        fixed = cache.fixed_bytes(self.most_loaded)
        more = symbols.named("fixed", fixed, "bytes that flags set aside") if fixed else 0
        return [symbols.line("kv_cache", batch * blocks * size + more)]

    def activations(self) -> Lines:
        """The tensors that are alive at the moment that decides."""
        stage_peaks, allocation = self.serving.engine.stage_peaks, self.allocation
        arguments = allocation.requirements.setup, self.most_loaded, allocation.workload
        peaks, formulas = stage_peaks(*arguments), stage_peaks(*arguments, write=self.symbols)
        index = max(range(len(peaks)), key=lambda i: peaks[i].bytes)
        return steps(self.symbols, peaks[index].working, formulas[index].working)

    def overhead(self) -> Lines:
        """The least and the most of all items, and the middle, which counts."""
        symbols, items, memory = self.symbols, self.overhead_items.items(), self.memory
        least = sum(symbols.named(f"{item}_low", low, "least") for item, (low, _) in items)
        most = sum(symbols.named(f"{item}_high", high, "most") for item, (_, high) in items)
        low = symbols.named("low", memory.overhead_low, "least overhead")
        middle = (low + symbols.named("high", memory.overhead_high, "most overhead")) // 2
        figures = {"overhead_low": least, "overhead_high": most, "overhead": middle}
        return [symbols.line(name, figure) for name, figure in figures.items()]

    def total(self) -> Lines:
        """The parts of the memory of one GPU."""
        names = "weights", "vision", "kv_cache", "activations", "overhead"
        return plain({name: getattr(self.memory, name) for name in names}, *set(names) - {"vision"})

    def kv_budget(self) -> Lines:
        """Bytes that the engine requests, those of them that are not for the cache, those left for it, and how many
        blocks that is: on the stage with room for the fewest."""
        allocation, symbols, cache = self.allocation, self.symbols, self.allocation.cache
        if not isinstance(cache, Pool) or not allocation.sets_aside:
            return []
        room = allocation.room(MIDDLE)
        budget = room.budgets[self.most_loaded]
        parts = {"requested": budget.requested, **budget.allocated}
        requested, *reserved = (symbols.named(name, size, "bytes") for name, size in parts.items())
        available = symbols.line("available", requested - sum(reserved))
        budgeted = [*plain(parts, *parts), available]
        if room.blocks:
            left, size = min((share for share in cache.shares(room.available) if share[1]), key=lambda s: s[0] // s[1])
            whole = symbols.named("available", left, "bytes for the cache, where there is room for the fewest blocks")
            blocks = whole // symbols.named("block_bytes", size, "bytes of a block there")
            budgeted.append(symbols.line("blocks", blocks, "blocks"))
        return budgeted

    def host_memory(self) -> Lines:
        """Bytes of the host: files of the weights while they are read, on each machine, and what waits there pinned, of
        all ranks: LoRA adapters, each whole, and blocks of the KV cache."""
        symbols, serving, layout = self.symbols, self.serving, self.serving.layout
        files = CheckpointSize.of(serving.architecture, serving.precision).total
        host = self.allocation.host_memory(files)
        of_host = [
            symbols.line("files while they are read", symbols.named("checkpoint", files, "bytes of the model's files"))
        ]
        _, waiting = serving.engine.adapters
        if host.adapters:
            each = host.adapters // waiting // layout.gpus
            adapter = symbols.named("adapter", each, "bytes of an adapter of the largest rank")
            count = symbols.named("adapters", waiting, "adapters that wait in the host's memory")
            of_host.append(
                symbols.line("adapters on the host", adapter * count * symbols.named("ranks", layout.gpus, "ranks"))
            )
        if host.cache is not None:
            blocks = symbols.named("host_blocks", host.cache.blocks, "blocks in the host's memory")
            size = symbols.named("host_block_bytes", host.cache.block_bytes, "bytes of a block there on all ranks")
            of_host.append(
                symbols.line("KV cache on the host", blocks * size * symbols.named("copies", layout.dp, "copies"))
            )
        return of_host

    def spare(self) -> Lines:
        """Headroom: what the engine may take, less what is required."""
        usable = self.symbols.named("usable", self.allocation.usable, "bytes that the engine may take")
        required = self.symbols.named("required", self.memory.total, "bytes that are required")
        return [self.symbols.line("headroom", usable - required)]


def plain(figures: Mapping[str, int], *always: str) -> Lines:
    """Figures that have lines of their own elsewhere; of 0 only those that are shown always."""
    return [Step(what=what, result=size, unit="bytes") for what, size in figures.items() if size or what in always]


def weight_steps(serving: Serving, layers: range) -> Iterator[Step]:
    """Bytes as stored on one GPU of a stage, by component and format."""
    taken = {None, serving.engine.loads_draft and "multi_token_prediction"}
    counts: dict[tuple[Component, int], tuple[int, int]] = {}  # parameters, and bits of scales
    for piece in serving.engine.on_gpus(serving.weighing.whole, serving.weighing.file):
        piece, copies = serving.weighing.at(piece, layers), serving.weighing.copies(piece, layers)
        tensor = piece.tensor
        if tensor.excluded_as in taken and copies:
            key = tensor.component, piece.form.bits
            parameters, more = counts.get(key, (0, 0))
            scale_bits = 8 * piece.nbytes - piece.form.bits * tensor.numel
            counts[key] = parameters + tensor.numel * copies, more + scale_bits * copies
    for (component, bits), (parameters, scale_bits) in counts.items():
        yield weight_step(component, bits, parameters, scale_bits)


def weight_step(component: Component, bits: int, parameters: int, scale_bits: int) -> Step:
    """`scale_bits`: of scales and of what fills whole bytes."""
    symbols = Symbols()
    n, width = symbols.named("parameters", parameters, "on this GPU"), symbols.named("bits", bits, "of a weight")
    more = symbols.named("scale_bits", scale_bits, "scales and zero points") if scale_bits else 0
    return symbols.line(component, (n * width + more) / 8)


BYTES = Message("Bytes")
VERDICTS = {
    "fits": Message("It fits."),
    "fits with": Message("It fits with other flags than those set."),
    "tight": Message("It is tight: the overhead decides."),
    "does not fit": Message("It does not fit."),
    "does not run": Message("It does not run there, whatever memory there is."),
}


def rules(architecture: Architecture, report: Report) -> Section:
    """Rules of thumb against the exact figures."""
    items: list[Item] = [
        Message("Rules of thumb that articles use, beside the exact figure: where each goes wrong, and by how much.")
    ]
    gated = gated_rule(architecture)
    if gated is None:
        items.append(
            Message(
                "{rule} does not describe this model: it takes one grouped attention and one gated feed-forward.",
                rule="`V·h·2 + L·(4 + 3·M)·h²`",
            )
        )
    cache = cache_rule(architecture, CACHE_BITS[report.scenario.precision.kv])
    for rule in (gated, square_rule(architecture), cache):
        if rule is not None:
            items += on_paper(rule)
    return Section(anchor="rules", title=Message("Rules of thumb"), items=tuple(items))


def on_paper(rule: RuleOfThumb) -> Iterator[Item]:
    yield Heading(title=rule.what)
    yield Equation(step=Step(what="", formula=rule.formula, values=rule.values, result=rule.rough, unit=rule.unit))
    yield PaperTable(
        head=(Message("Part"), Message("Rule"), Message("Exact"), Message("Difference"), Message("Why")),
        rows=tuple(
            (
                term.what,
                Exact(number=term.rough),
                Exact(number=term.exact),
                Exact(number=term.rough - term.exact),
                term.why or Message("The same."),
            )
            for term in rule.terms
        ),
    )
    if rule.exact == rule.rough:
        yield Message("Exact: **{exact:,}**. The rule gives the same.", exact=rule.exact)
    elif rule.exact:
        yield Message(
            "Exact: **{exact:,}**. The rule gives {rough:,}: {difference:+,}, or {error:+.1%}.",
            exact=rule.exact,
            rough=rule.rough,
            difference=rule.rough - rule.exact,
            error=rule.rough / rule.exact - 1,
        )
    else:
        yield Message("Exact: **0**. The rule gives {rough:,}.", rough=rule.rough)


class ServingPaper:
    """The sections of a report, on the GPU that `of` is about."""

    def __init__(self, architecture: Architecture, report: Report, of: Derivations) -> None:
        self.architecture, self.report, self.of = architecture, report, of

    def sections(self, verdict: Verdict | None) -> list[Section]:
        parts: dict[Anchor, tuple[Message, Iterator[Item]]] = {
            "weights": (Message("Weights in memory"), self.weights()),
            "kv_cache_per_token": (Message("KV cache per token"), self.per_token()),
            "kv_cache": (Message("KV cache of all sequences"), self.cache()),
            "activations": (Message("Working memory at its peak"), self.activations()),
            "overhead": (Message("Overhead"), self.overhead()),
            "memory": (Message("Memory per GPU"), self.memory()),
        }
        if verdict is not None:
            parts["verdict"] = Message("Verdict"), self.verdict(verdict)
        return [Section(anchor=anchor, title=title, items=tuple(items)) for anchor, (title, items) in parts.items()]

    def equations(self, derived: Lines) -> Iterator[Item]:
        """Lines as equations, and what their symbols mean."""
        for step in derived:
            yield Equation(step=step)
        yield from legend_of(derived, self.of.symbols.occurring())

    def weights(self) -> Iterator[Item]:
        yield Message("Parameters on this GPU, times the bits of their format, and the bits of scales beside them.")
        steps = self.of.weights()
        yield lines(steps, BYTES)
        yield added(Message("Weights"), [step.result for step in steps], "bytes")
        loaded = self.of.loaded()
        if len(loaded) > 1:
            yield Message("Once the engine has loaded them:")
            yield lines(loaded, BYTES)
            yield added(Message("Loaded"), [step.result for step in loaded], "bytes")

    def per_token(self) -> Iterator[Item]:
        cache = self.report.kv_cache
        steps = cache_steps(self.architecture, self.report.scenario.precision.kv)
        yield Message("Elements that attention caches for a token in each layer, in the format of the cache.")
        if steps:
            yield lines(steps, Message("Bytes per token"), Message("Kept"))
            yield from legend_of(steps, derive(self.architecture).legend)
        yield Message(
            "The layers that keep the whole context: **{bytes:,} bytes** per token. Layers with a window stop "
            "growing; they hold {windows:,} bytes a sequence here. States that do not grow: {states:,} bytes.",
            bytes=cache.bytes_per_token,
            windows=cache.window_bytes,
            states=cache.state_bytes,
        )

    def cache(self) -> Iterator[Item]:
        steps, meanings = total_cache_steps(self.report)
        yield Message("Of all sequences, each counted once:")
        for step in steps:
            yield Equation(step=step)
        yield from legend_of(steps, meanings)
        yield Message("The part on one GPU, as the engine allocates it:")
        yield from self.equations(self.of.kv_cache())

    def activations(self) -> Iterator[Item]:
        steps = self.of.activations()
        yield Message("The tensors that are alive at the peak:")
        yield lines(steps, BYTES, Message("Tensor"))
        yield added("activations", [step.result for step in steps], "bytes")
        yield from legend_of(steps, self.of.symbols.occurring())

    def overhead(self) -> Iterator[Item]:
        allocation, memory = self.of.allocation, self.of.memory
        yield Message("Memory without a formula, as a range from public logs; the middle counts.")
        items = self.of.overhead_items.items()
        yield PaperTable(
            head=(Message("Overhead"), Message("At least"), Message("At most")),
            rows=tuple((name, Exact(number=low), Exact(number=high)) for name, (low, high) in items),
        )
        engine, laid_out = allocation.serving.engine, allocation.serving.laid_out
        yield from engine.overhead_notes(allocation.gpu, laid_out, allocation.limits)
        values = floor(quotient(total(memory.overhead_low, memory.overhead_high), 2))
        yield Equation(step=Step(what="overhead", values=values, result=memory.overhead, unit="bytes"))

    def memory(self) -> Iterator[Item]:
        steps = self.of.total()
        yield lines(steps, BYTES)
        yield added(Message("Memory per GPU"), [step.result for step in steps], "bytes")

    def verdict(self, verdict: Verdict) -> Iterator[Item]:
        yield VERDICTS[verdict.verdict]
        yield verdict.reason
        yield from self.equations(self.of.spare())
        budget = self.of.kv_budget()
        if budget:
            yield Message("Set aside for the KV cache:")
            yield lines(budget, Message("Bytes, blocks"))
            yield from legend_of(budget, self.of.symbols.occurring())
