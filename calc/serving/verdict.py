"""One GPU type against one scenario: does it fit, what still would, and how many GPUs would do."""

from collections.abc import Callable
from functools import partial
from typing import Literal

from calc.errors import Frozen, Message
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import divides
from calc.model.architecture import Architecture
from calc.serving.memory import Memory, Serving
from calc.serving.workload import Workload
from calc.units import GIB

Word = Literal["fits", "tight", "does not fit"]
MOST_GPUS = 1024
MOST = 2**30  # beyond this, memory is not what limits


class Verdict(Frozen):
    """Bytes are those of one GPU. `required` counts the middle of the overhead's range; `fits` means that even the high
    end does, `does not fit` that not even the low end does, `tight` that the range decides."""

    gpu: str
    gpus: int
    verdict: Word
    required: int
    usable: int
    spare: int
    max_context: int | None  # tokens a sequence at this batch; None: memory sets no limit
    max_batch: int | None  # sequences at this context; None: memory sets no limit
    min_gpus: int | None  # None: not even 1,024 will do
    reason: str
    notes: tuple[Message, ...]


def judge(gpu: GPU, architecture: Architecture, serving: Serving, workload: Workload) -> Verdict:
    """The verdict on this many GPUs as laid out; largest context and batch, and fewest GPUs, are those that fit."""
    memory, usable = serving.memory(workload), granted(gpu, serving.overhead, workload)

    def fits(**change: int) -> bool:
        return serving.memory(workload.model_copy(update=change)).high <= usable

    short = [gpu.lacks(serving.precision.weights)]
    if serving.precision.kv != serving.precision.weights and (note := gpu.lacks(serving.precision.kv)):
        short.append(Message("KV cache: {note}", note=note))
    return Verdict(
        gpu=gpu.id,
        gpus=serving.layout.gpus,
        verdict=word(memory, usable),
        required=memory.total,
        usable=usable,
        spare=usable - memory.total,
        max_context=largest(lambda context: fits(context=context)),
        max_batch=largest(lambda batch: fits(batch=batch)),
        min_gpus=fewest_gpus(architecture, usable, workload, serving),
        reason=reason(memory, usable),
        notes=tuple(dict.fromkeys(note for note in short if note)),
    )


def granted(gpu: GPU, overhead: Overhead, workload: Workload) -> int:
    """Bytes that may be taken: all, or the share that vLLM is given and, outside it, the CUDA context."""
    if workload.gpu_memory_utilization is None:
        return gpu.usable_bytes
    share = round(gpu.usable_bytes * workload.gpu_memory_utilization)
    return min(gpu.usable_bytes, share + round(overhead.cuda_context.high * GIB))


def word(memory: Memory, usable: int) -> Word:
    """The verdict in a word."""
    return "fits" if memory.high <= usable else "tight" if memory.low <= usable else "does not fit"


def reason(memory: Memory, usable: int, needs: str = "Weights, cache and activations need") -> str:
    """What the verdict hangs on, in a sentence, which `needs` begins where there is too little."""
    held = memory.total - memory.overhead
    left = usable - held
    if left < 0:
        name, size = max(memory.parts.items(), key=lambda part: part[1])
        return (
            f"{needs} {held / GIB:.2f} GiB before any overhead, {-left / GIB:.2f} more than there are; "
            f"the largest part is the {name} with {size / GIB:.2f}."
        )
    low, high = memory.overhead_low / GIB, memory.overhead_high / GIB
    return f"{left / GIB:.2f} GiB are left for overhead, which takes {low:.2f} to {high:.2f} GiB."


def largest(fits: Callable[[int], bool], most: int = MOST) -> int | None:
    """The largest n from 0 to `most` that fits, where more never fits better; None when even `most` does."""
    if fits(most):
        return None
    good, bad = 0, most
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def fewest_gpus(architecture: Architecture, usable: int, workload: Workload, serving: Serving) -> int | None:
    """The fewest equal GPUs on which it fits: tensor parallel inside a server, pipeline stages across."""

    def fits(tp: int, pp: int) -> bool:
        return serving.at(tp, pp).memory(workload).high <= usable

    best: int | None = None
    for tp in (tp for tp in (1, 2, 4, 8) if divides(architecture, tp)):
        most = min(architecture.num_layers, MOST_GPUS // tp if best is None else (best - 1) // tp)
        if most and fits(tp, most):
            best = tp * least(partial(fits, tp), most)
    return best


def least(fits: Callable[[int], bool], most: int) -> int:
    """The least n from 1 to `most` that fits, where `most` does and more never fits worse."""
    bad, good = 0, most
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if fits(middle) else (middle, good)
    return good
