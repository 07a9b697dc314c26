"""Buffers that llama.cpp's log states against those that it would plan for the model on screen, and why they differ."""

from collections.abc import Iterator
from typing import Literal

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision, WeightFormat
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.options import made
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.engines.llamacpp.slots import set_up
from calc.serving.engines.llamacpp.startup_log import BufferLog
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import DeviceBuffers
from calc.units import MIB

BufferName = Literal["model", "context", "compute"]
ROUNDING = MIB // 100
"""Sizes have two decimals, and a few of them are added up."""
CLOSE = 0.01
"""Share within which the buffer of a pass agrees: it depends on the version."""


class BufferRow(Frozen):
    """A buffer in the log and ours."""

    device: str
    what: BufferName
    log: int
    ours: int
    agrees: bool
    sentence: Message


class PlannedAs(Frozen):
    """Settings that the planned buffers are for."""

    weights: WeightFormat
    options: LlamaCppOptions
    rows: tuple[BufferRow, ...]


def planned_buffers_of(log: BufferLog, architecture: Architecture, weights: WeightFormat) -> PlannedAs:
    """`weights` are those of the screen, where the log names no mix. Raises ConfigError."""
    weights = log.weights or weights
    options = made(LlamaCppOptions, dict(log.flags))
    gpus = sum(buffer.device != "host" for buffer in log.buffers)
    if options.n_gpu_layers == 0 or not gpus:
        options = options.model_copy(update={"n_gpu_layers": None, "device": None if gpus else "none"})
    if gpus > 1 and options.tensor_split is None:
        options = options.model_copy(update={"tensor_split": split_of(log, architecture.num_layers)})
    LlamaCpp(options).check(Question(architecture, Precision(weights=weights), Layout(pp=max(1, gpus))))
    ours = {buffer.device: buffer for buffer in planned(architecture, weights, options, gpus)}
    rows = [
        row
        for buffer in log.buffers
        for row in rows_of(buffer, ours.get(buffer.device), architecture, weights, options, gpus)
    ]
    return PlannedAs(weights=weights, options=options, rows=tuple(rows))


def split_of(log: BufferLog, layers: int) -> str | None:
    """The layers of each GPU by its share of the cache, the output with the last; None: the log does not tell."""
    sizes = [buffer.context for buffer in log.buffers if buffer.device != "host"]
    if not all(sizes) or log.flags.get("n_gpu_layers", layers + 1) != layers + 1:
        return None
    counts = [round(layers * size / sum(sizes)) for size in sizes]
    return ",".join(map(str, (*counts[:-1], layers + 1 - sum(counts[:-1]))))


def planned(
    architecture: Architecture, weights: WeightFormat, options: LlamaCppOptions, gpus: int
) -> list[DeviceBuffers]:
    cache = set_up(architecture, Precision(weights=weights), options, gpus)
    return cache.buffers(options.parallel or 1, options.ctx_size or architecture.max_positions or 4096)


def rows_of(
    log: DeviceBuffers,
    ours: DeviceBuffers | None,
    architecture: Architecture,
    weights: WeightFormat,
    options: LlamaCppOptions,
    gpus: int,
) -> Iterator[BufferRow]:
    if ours is None:
        return
    names: tuple[BufferName, ...] = ("model", "context", "compute")
    for what in names:
        stated, known = getattr(log, what), getattr(ours, what)
        if not stated:
            continue
        room = max(ROUNDING, CLOSE * known) if what == "compute" else ROUNDING
        agrees = abs(stated - known) <= room
        why = Message("They agree.")
        if not agrees and what == "compute":
            why = other_plan(log, architecture, weights, options, gpus)
        elif not agrees:
            why = WHY[what]
        yield BufferRow(device=log.device, what=what, log=stated, ours=known, agrees=agrees, sentence=why)


WHY: dict[BufferName, Message] = {
    "model": Message(
        "The file holds other types, or tensors, than llama.cpp's own mix of that name; or other layers lie here."
    ),
    "context": Message("The cache is for another context, other slots or another type than the log states."),
}


def other_plan(
    log: DeviceBuffers, architecture: Architecture, weights: WeightFormat, options: LlamaCppOptions, gpus: int
) -> Message:
    """Setting that would make the buffer of a pass what the log states."""
    for changes, sentence in OTHER_PLANS:
        try:
            plan = planned(architecture, weights, options.model_copy(update=changes), gpus)
        except ConfigError:
            continue
        same = next((buffer for buffer in plan if buffer.device == log.device), None)
        if same is not None and abs(same.compute - log.compute) <= max(ROUNDING, CLOSE * same.compute):
            return sentence
    return Message("Another version plans its passes otherwise.")


OTHER_PLANS: tuple[tuple[dict[str, object], Message], ...] = (
    ({"n_outputs_max": 0}, Message("It is that of logits for every token of a pass, as versions before 2026 plan it.")),
    ({"flash_attn": "off"}, Message("It is that of attention without flash attention.")),
    (
        {"n_outputs_max": 0, "flash_attn": "off"},
        Message("It is that of logits for every token, and of attention without flash attention."),
    ),
)
