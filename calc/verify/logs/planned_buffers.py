"""Buffers that llama.cpp's log states against those that it would plan for the model on screen, and why they differ."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Literal, get_args

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
from calc.verify.logs.log import Difference

BufferName = Literal["model", "context", "compute"]
BufferPlan = Callable[[Mapping[str, object]], dict[str, DeviceBuffers]]
"""Buffers by device, with other settings."""
ROUNDING = MIB // 100
"""Sizes have two decimals, and a few of them are added up."""
CLOSE = 0.01
"""Share within which the buffer of a pass agrees: it depends on the version."""


class BufferRow(Difference):
    """A buffer in the log and ours."""

    device: str
    what: BufferName


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

    def plan(changes: Mapping[str, object]) -> dict[str, DeviceBuffers]:
        """Buffers by device with other settings."""
        changed = options.model_copy(update=changes)
        cache = set_up(architecture, Precision(weights=weights), changed, gpus)
        length = changed.ctx_size or architecture.max_positions or 4096
        return {buffers.device: buffers for buffers in cache.buffers(changed.parallel or 1, length)}

    ours = plan({})
    pairs = ((buffers, ours[buffers.device]) for buffers in log.buffers if buffers.device in ours)
    rows = tuple(row for stated, known in pairs for row in rows_of(stated, known, plan))
    return PlannedAs(weights=weights, options=options, rows=rows)


def split_of(log: BufferLog, layers: int) -> str | None:
    """The layers of each GPU by its share of the cache, the output with the last; None: the log does not tell."""
    sizes = [buffer.context for buffer in log.buffers if buffer.device != "host"]
    if not all(sizes) or log.flags.get("n_gpu_layers", layers + 1) != layers + 1:
        return None
    counts = [round(layers * size / sum(sizes)) for size in sizes]
    return ",".join(map(str, (*counts[:-1], layers + 1 - sum(counts[:-1]))))


def rows_of(log: DeviceBuffers, ours: DeviceBuffers, plan: BufferPlan) -> Iterator[BufferRow]:
    """The buffers of a device that the log states."""
    for what in get_args(BufferName):
        stated, known = getattr(log, what), getattr(ours, what)
        if not stated:
            continue
        agrees = agree(what, stated, known)
        why = Message("They agree.")
        if not agrees:
            why = other_plan(log, plan) if what == "compute" else WHY[what]
        yield BufferRow(
            term=f"{what} on {log.device}",
            unit="bytes",
            device=log.device,
            what=what,
            log=stated,
            ours=known,
            agrees=agrees,
            sentence=why,
        )


def agree(what: BufferName, stated: int, known: int) -> bool:
    return abs(stated - known) <= (max(ROUNDING, CLOSE * known) if what == "compute" else ROUNDING)


WHY: dict[BufferName, Message] = {
    "model": Message(
        "The file holds other types, or tensors, than llama.cpp's own mix of that name; or other layers lie here."
    ),
    "context": Message("The cache is for another context, other slots or another type than the log states."),
}


def other_plan(log: DeviceBuffers, plan: BufferPlan) -> Message:
    """Setting that would make the buffer of a pass what the log states."""
    for changes, sentence in OTHER_PLANS:
        with suppress(ConfigError):
            same = plan(changes).get(log.device)
            if same is not None and agree("compute", log.compute, same.compute):
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
