"""Changes that would make a model fit: other layouts on the same GPUs, and changes to what is asked, each one
computed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.errors import ConfigError, Frozen, Message
from calc.formats import CACHE_BITS, Native, Precision, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout, shapes
from calc.remembered import remembered
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.fewest import fewest_gpus
from calc.serving.memory import Allocation, Serving
from calc.serving.verdict import VERDICT_WORDS, VerdictWord, max_batch, max_context, remedy, verdict_word
from calc.serving.workload import Workload

WORKLOAD_FIELDS = Workload.model_fields.keys()
PORTABLE_FORMATS: tuple[WeightFormat, ...] = ("bf16", "int8-gptq", "int4-gptq")
"""Formats with kernels on GPUs that have none for others."""
LEAST_CONTEXT = 1024
"""Tokens. Nobody is helped by a shorter context."""


class LayoutVerdict(Frozen):
    """A layout of a model over some equal GPUs, and how it does."""

    layout: Layout
    verdict: VerdictWord
    spare: int  # bytes on the most loaded GPU; below zero, what is missing there
    max_batch: int | None  # sequences at this context; None: no limit


class Lever(Frozen):
    """A change with which it fits."""

    what: tuple[Message, ...]
    changes: dict[str, Any]  # by the fields' names, as on the command line
    saves: int  # bytes on the most loaded GPU
    spare: int  # bytes that are free there afterwards
    gpus: int


@dataclass(frozen=True)
class Setting:
    """Settings of one model on one kind of GPU that a reader can change."""

    engine: Engine
    precision: Precision
    layout: Layout
    workload: Workload
    checkpoint: Native

    def with_weights(self, weights: WeightFormat) -> "Setting":
        """The setting in another format of the weights; the cache stays as it is."""
        return replace(self, precision=self.engine.precision(self.checkpoint, weights, self.precision.kv))

    def fields(self) -> dict[str, Any]:
        """Every field by its name, in the order of the least change."""
        return {
            **self.engine.options.model_dump(),
            **self.layout.model_dump(),
            **self.precision.model_dump(include={"kv"}),
            **self.workload.model_dump(),
            **self.precision.model_dump(include={"weights"}),
        }

    def changes(self, before: "Setting") -> dict[str, Any]:
        known = before.fields()
        return {name: value for name, value in self.fields().items() if value != known[name]}

    def sentences(self, before: "Setting") -> Iterator[Message]:
        """Sentences that say which fields differ."""
        changes = self.changes(before)
        flags = {name: value for name, value in changes.items() if name in type(self.engine.options).model_fields}
        if flags:
            yield Message("`{flags}`", flags=" ".join(self.engine.flags(flags)))
        if self.layout.gpus != before.layout.gpus:
            yield Message("{n:,} GPUs", n=self.layout.gpus)
        if self.layout != before.layout:
            yield Message("{layout}", layout=layout_label(self.layout))
        if "kv" in changes:
            yield Message("KV cache in {kv}", kv=self.precision.kv)
        if "batch" in changes:
            yield Message("{n:,} concurrent sequence", plural="{n:,} concurrent sequences", n=self.workload.batch)
        if "context" in changes:
            yield Message("{n:,} tokens of context", n=self.workload.context)
        if "weights" in changes:
            yield Message("Weights in {weights}", weights=self.precision.weights)


def layout_label(layout: Layout) -> str:
    """Degrees of a layout as text: TP 8; DP 8 + EP 8; TP 4 + PP 2."""
    return " + ".join(f"{name.upper()} {n}" for name, n in layout if n > 1) or "TP 1"


def layout_verdicts(gpu: GPU, serving: Serving, workload: Workload, gpus: int) -> tuple[LayoutVerdict, ...]:
    """Every layout over so many GPUs that the engine takes, the best first: one that fits; of these the one with fewer
    pipeline stages, since each waits for the one before; of these the one that holds more sequences."""
    by_layout = []
    for shape in shapes(serving.architecture):
        stages, rest = divmod(gpus, shape.gpus)
        if rest or not 0 < stages <= serving.architecture.num_layers:
            continue
        layout = shape.model_copy(update={"pp": stages})
        if serving.accepts(layout):
            allocation = serving.with_accepted_layout(layout).on(gpu, workload)
            most = max_batch(allocation, shape.dp)
            by_layout.append(
                LayoutVerdict(layout=layout, verdict=verdict_word(allocation), spare=allocation.spare, max_batch=most)
            )

    def order(way: LayoutVerdict) -> tuple[int, int, int, int]:
        return VERDICT_WORDS.index(way.verdict), way.layout.pp, -(way.max_batch or 2**62), way.layout.dp

    return tuple(sorted(by_layout, key=order))


def chosen_layout(
    gpus: Sequence[GPU], serving: Serving, workload: Workload, num_gpus: int, layout: Layout | None
) -> Layout:
    """Layout of a model on so many GPUs: as asked, else the one that does best on the smallest of `gpus` where one
    fits, or on the largest. Raises ConfigError where the two disagree, or there is no way."""
    if layout is not None:
        if layout.gpus != num_gpus:
            raise ConfigError(
                Message(
                    "The layout spreads over {n:,} GPUs, not over {requested:,}.", n=layout.gpus, requested=num_gpus
                ),
                "num_gpus",
                [layout.gpus],
            )
        return layout
    *smaller, largest = sorted(gpus, key=lambda gpu: gpu.usable_bytes)
    layouts = layout_verdicts(largest, serving, workload, num_gpus)
    if not layouts:
        counts = num_gpus - 1, serving.architecture.num_layers, 8 * (num_gpus // 8)
        raise ConfigError(
            Message("No layout spreads this model over {n:,} GPUs.", n=num_gpus),
            "num_gpus",
            [n for n in counts if n and layout_verdicts(largest, serving, workload, n)][:1],
        )
    if layouts[0].verdict != "fits":
        return layouts[0].layout
    least = sum(stage.loaded.total for stage in serving.laid_out.stages)
    roomy = (gpu for gpu in smaller if gpu.fewest(least) <= num_gpus)
    each = (layout_verdicts(gpu, serving, workload, num_gpus)[0] for gpu in roomy)
    return next((way for way in each if way.verdict == "fits"), layouts[0]).layout


class SettingAllocations:
    """Allocations of a model on one kind of GPU by setting; weights are weighed once for each format."""

    def __init__(self, gpu: GPU, serving: Serving) -> None:
        self.gpu, self.serving = gpu, serving
        self.formats = {serving.precision: serving}

    @remembered
    def allocation(self, setting: Setting) -> Allocation | None:
        """Allocation with a setting; None where the engine does not take it."""
        serving, precision = self.serving, setting.precision
        try:
            if precision not in self.formats:
                model = serving.architecture, serving.engine, precision, setting.layout, serving.overhead
                self.formats[precision] = Serving.of(*model, sibling=serving)
            changed = self.formats[precision].with_layout(setting.layout)
            changed = changed if setting.engine is serving.engine else changed.with_engine(setting.engine)
            return changed.on(self.gpu, setting.workload)
        except ConfigError:
            return None


def levers(gpu: GPU, serving: Serving, workload: Workload, checkpoint: Native) -> tuple[Lever, ...]:
    """The changes with which it fits, the least first; where none does it alone without less work, two together. More
    GPUs come last. Weights in the checkpoint's own format are as it stores them. Raises ConfigError where the model
    can't read sequences so long."""
    serving.engine.check(Question(serving.architecture, workload=workload))
    now = Setting(serving.engine, serving.precision, serving.layout, workload, checkpoint)
    allocations, before = SettingAllocations(gpu, serving), serving.on(gpu, workload)

    def fitting(settings: Iterable[Setting]) -> Iterator[Lever]:
        for setting in settings:
            after = allocations.allocation(setting)
            if after is not None and verdict_word(after) == "fits":
                yield Lever(
                    what=tuple(setting.sentences(now)),
                    changes=setting.changes(now),
                    saves=after.spare - before.spare,
                    spare=after.spare,
                    gpus=setting.layout.gpus,
                )

    fits = tuple(fitting(single_changes(before, now, allocations)))
    if all(lever.changes.keys() & WORKLOAD_FIELDS for lever in fits):
        fits = (*fitting(double_changes(now, allocations)), *fits)
    more = fewest_gpus(gpu, serving, workload)
    if more is not None and more.gpus > serving.layout.gpus:
        fits += tuple(fitting([replace(now, layout=more)]))
    return fits


def single_changes(before: Allocation, now: Setting, allocations: SettingAllocations) -> Iterator[Setting]:
    """Settings that differ in one thing: flags, layout, a smaller cache, smaller weights, fewer users, less context."""
    serving, workload = before.serving, now.workload
    if (flags := remedy(before)) is not None:
        yield replace(now, engine=now.engine.with_options(**flags))
    for way in layout_verdicts(before.gpu, serving, workload, now.layout.gpus)[:1]:
        if way.layout != now.layout:
            yield replace(now, layout=way.layout)
    yield from smaller_caches(now)
    yield from smaller_weights(now, allocations) if before.refusal is None else other_weights(now)
    fewer, shorter = max_batch(before, now.layout.dp), max_context(before)
    if fewer is not None and 1 <= fewer < workload.batch:
        yield replace(now, workload=workload.model_copy(update={"batch": fewer}))
    if shorter is not None and LEAST_CONTEXT <= shorter < workload.context:
        yield replace(now, workload=workload.model_copy(update={"context": shorter}))


def double_changes(now: Setting, allocations: SettingAllocations) -> Iterator[Setting]:
    """Settings that differ in two things: smaller weights, or a smaller cache, in the layout then best; or both."""
    weights, caches = list(smaller_weights(now, allocations)), list(smaller_caches(now))
    for setting in [*caches, *weights]:
        changed = allocations.allocation(setting)
        if changed is not None:
            for way in layout_verdicts(allocations.gpu, changed.serving, now.workload, now.layout.gpus)[:1]:
                yield replace(setting, layout=way.layout)
    for setting in weights:
        for cache in caches:
            precision = setting.precision.model_copy(update={"kv": cache.precision.kv})
            yield replace(setting, precision=precision)


def smaller_caches(now: Setting) -> Iterator[Setting]:
    """Settings with the cache in each smaller format that the engine has."""
    for kv in now.engine.cache_formats:
        if CACHE_BITS[kv] < CACHE_BITS[now.precision.kv]:
            yield replace(now, precision=now.precision.model_copy(update={"kv": kv}))


def other_weights(now: Setting) -> Iterator[Setting]:
    """Settings with the weights in each other usual format, the largest first, for an engine that refuses this one."""
    for weights in dict.fromkeys((*PORTABLE_FORMATS, *now.engine.weight_formats)):
        if weights != now.precision.weights:
            yield now.with_weights(weights)


def smaller_weights(now: Setting, allocations: SettingAllocations) -> Iterator[Setting]:
    """Settings with weights in each smaller format that the engine runs on the GPU; if none, in portable formats."""
    for formats in (now.engine.weight_formats, PORTABLE_FORMATS):
        settings = [now.with_weights(weights) for weights in formats]
        tried = ((setting, allocations.allocation(setting)) for setting in settings)
        running = [(setting, after) for setting, after in tried if after is not None and after.refusal is None]
        if running:
            yield from (setting for setting, after in running if after.serving.weights < allocations.serving.weights)
            return
