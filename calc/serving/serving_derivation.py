"""How each figure of a report comes about: lines of formula, values and result, which the formulas themselves yield."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from calc.errors import Message
from calc.formats import CACHE_BITS, CacheFormat
from calc.hardware.overhead import MIDDLE, OverheadSizes
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.derivation import Legend, Step, Symbols, window_steps
from calc.model.named import steps
from calc.model.tensor import Component
from calc.serving.engines.cache import Pool
from calc.serving.kv_cache import sequence_bytes
from calc.serving.memory import Allocation, Serving
from calc.serving.report import Report

Lines = list[Step]


def cache_steps(architecture: Architecture, kv: CacheFormat) -> list[Step]:
    """Bytes that a token adds, by window and formula. Those of the whole context sum to the bytes a token; those of a
    window hold until it is full."""
    symbols = Symbols()
    bits = CACHE_BITS[kv]
    return [
        Step(
            what=step.what,
            formula=f"{step.formula} · bits / 8",
            values=f"{step.values} · {bits} / 8",
            result=step.result * bits // 8,
            unit="bytes a token" if window is None else f"bytes a token, up to {window:,} tokens",
        )
        for window, step in window_steps(symbols, architecture, symbols.apply(architecture))
    ]


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
        self.allocation, self.serving = allocation, allocation.serving
        self.stage = allocation.serving.laid_out.stages[allocation.most_loaded]
        self.memory = allocation.memory
        self.symbols = Symbols()

    @property
    def overhead_items(self) -> OverheadSizes:
        """Bytes of each part of the overhead, from low to high."""
        return self.allocation.stages[self.allocation.most_loaded].sizes

    def weights(self) -> Lines:
        """Bytes by component and format, on one GPU of the most loaded stage."""
        serving, stage = self.serving, self.allocation.most_loaded
        laid_out = serving.laid_out
        of_stages = serving.engine.draft_weights_per_stage(
            laid_out.whole, serving.precision, serving.layout.tp, len(laid_out.ranges)
        )
        draft = of_stages[stage]
        lines = list(weight_steps(serving, serving.laid_out.ranges[stage]))
        return [*lines, self.plain("draft", draft)] if draft else lines

    def loaded(self) -> Lines:
        """What the weights take once the engine has loaded them."""
        return [self.plain(name, size) for name, size in asdict(self.stage.loaded).items() if size]

    def kv_cache(self) -> Lines:
        """What the sequences take on one GPU, in the engine's blocks; else what is held at the peak."""
        symbols, cache, workload = self.symbols, self.allocation.cache, self.allocation.workload
        if not isinstance(cache, Pool):
            return [self.plain("kv_cache", self.memory.kv_cache)]
        batch = symbols.of("batch", workload.batch)
        blocks = symbols.named("blocks", cache.request_blocks(workload.context), "blocks of a request")
        size = symbols.named("block_bytes", cache.block_bytes[self.allocation.most_loaded], "bytes of a block")
        fixed = cache.fixed_bytes(self.allocation.most_loaded)
        more = symbols.named("fixed", fixed, "bytes that flags set aside") if fixed else 0
        return [symbols.line("kv_cache", batch * blocks * size + more)]

    def activations(self) -> Lines:
        """The tensors that are alive at the moment that decides."""
        serving, allocation = self.serving, self.allocation
        arguments = serving.laid_out, allocation.most_loaded, allocation.cache, allocation.limits, allocation.workload
        peaks = serving.engine.stage_peaks(*arguments)
        index = max(range(len(peaks)), key=lambda i: peaks[i].bytes)
        formulas = serving.engine.stage_peaks(*arguments, write=self.symbols)
        return steps(self.symbols, peaks[index].working, formulas[index].working)

    def overhead(self) -> Lines:
        """The least and the most of all items, and the middle, which counts."""
        symbols, sizes = self.symbols, self.allocation.stages[self.allocation.most_loaded].sizes
        ends = [
            (symbols.named(f"{item}_low", low, "least"), symbols.named(f"{item}_high", high, "most"))
            for item, (low, high) in sizes.items()
        ]
        low, high = self.memory.overhead_low, self.memory.overhead_high
        middle = (symbols.named("low", low, "least overhead") + symbols.named("high", high, "most overhead")) // 2
        return [
            symbols.line("overhead_low", sum(least for least, _ in ends)),
            symbols.line("overhead_high", sum(most for _, most in ends)),
            symbols.line("overhead", middle),
        ]

    def overhead_notes(self) -> Iterator[Message]:
        """How its ranges come about."""
        allocation = self.allocation
        yield from self.serving.engine.overhead_notes(allocation.gpu, self.serving.laid_out, allocation.limits)

    def total(self) -> Lines:
        """The parts of the memory of one GPU."""
        memory = self.memory
        parts = {"weights": memory.weights, "vision": memory.vision, "kv_cache": memory.kv_cache}
        parts |= {"activations": memory.activations, "overhead": memory.overhead}
        return [self.plain(name, size) for name, size in parts.items() if size or name != "vision"]

    def kv_budget(self) -> Lines:
        """What the engine takes, what it holds of that beside its cache, what is left, and the blocks that this is."""
        allocation, symbols, cache = self.allocation, self.symbols, self.allocation.cache
        if not isinstance(cache, Pool) or not allocation.sets_aside:
            return []
        budget = allocation.room(MIDDLE).budgets[allocation.most_loaded]
        parts = {"requested": budget.requested, **budget.allocated}
        requested, *reserved = (symbols.named(name, size, "bytes") for name, size in parts.items())
        lines = [self.plain(name, size) for name, size in parts.items()]
        lines.append(symbols.line("available", requested - sum(reserved)))
        if allocation.room(MIDDLE).blocks:
            lines.append(symbols.line("blocks", self.blocks(cache), "blocks"))
        return lines

    def blocks(self, cache: Pool) -> Any:
        """Blocks on the stage that has room for the fewest."""
        shares = cache.shares(self.allocation.room(MIDDLE).available)
        left, size = min((share for share in shares if share[1]), key=lambda share: share[0] // share[1])
        whole = "bytes for the cache, where there is room for the fewest blocks"
        return self.symbols.named("available", left, whole) // self.symbols.named(
            "block_bytes", size, "bytes of a block there"
        )

    def spare(self) -> Lines:
        """What the verdict depends on: what the engine may take, less what is required."""
        usable = self.symbols.named("usable", self.allocation.usable, "bytes that the engine may take")
        required = self.symbols.named("required", self.memory.total, "bytes that are required")
        return [self.symbols.line("headroom", usable - required)]

    def plain(self, what: str, size: int) -> Step:
        """A figure that has lines of its own elsewhere."""
        return Step(what=what, formula="", values="", result=size, unit="bytes")


def weight_steps(serving: Serving, layers: range) -> Iterator[Step]:
    """Bytes as stored on one GPU of a stage, by component and format."""
    architecture = serving.laid_out.whole
    taken = {None, serving.engine.loads_draft and "multi_token_prediction"}
    counts: dict[tuple[Component, int], tuple[int, int]] = {}  # parameters, and bits beside them
    for piece in serving.engine.on_gpus(serving.weighing.whole, serving.weighing.file):
        tensor = piece.tensor
        copies = copies_within(architecture, tensor, layers) * piece.a_layer
        if tensor.excluded_as in taken and copies:
            key = tensor.component, piece.form.bits
            parameters, more = counts.get(key, (0, 0))
            scale_bits = 8 * piece.nbytes - piece.form.bits * tensor.numel
            counts[key] = parameters + tensor.numel * copies, more + scale_bits * copies
    for (component, bits), (parameters, scale_bits) in counts.items():
        yield weight_step(component, bits, parameters, scale_bits)


def weight_step(component: Component, bits: int, parameters: int, scale_bits: int) -> Step:
    """`beside`: bits of scales and of what fills whole bytes."""
    symbols = Symbols()
    n, width = symbols.named("parameters", parameters, "on this GPU"), symbols.named("bits", bits, "of a weight")
    more = symbols.named("scale_bits", scale_bits, "scales and zero points") if scale_bits else 0
    return symbols.line(component, (n * width + more) / 8)
