"""One GPU out of many: the smallest that does, or the one that costs least."""

from collections.abc import Callable, Iterable, Sequence

from calc.errors import Frozen
from calc.hardware.engine_rules import EngineSupport, note, runs
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.serving.engines import ENGINES
from calc.serving.fewest import fewest_gpus
from calc.serving.levers import layout_verdicts
from calc.serving.memory import Serving
from calc.serving.verdict import verdict_word
from calc.serving.workload import Workload
from calc.time.prices import price_of
from calc.training import Training


class Choice(Frozen):
    """A GPU, the layout over so many of them, and what they cost together where a price is known."""

    gpu: str
    layout: Layout
    usd_per_hour: float | None


def smallest(gpus: Iterable[GPU], serving: Serving, workload: Workload) -> Choice | None:
    """The GPU with the least memory of which as many as are asked for do; of equal memory the one with the fastest. It
    runs the engine's current version, as it is, and where several are asked for it can be linked to others."""
    for gpu in capable_gpus(gpus, serving.engine.support, serving.layout.gpus):
        if (layout := fitting_layout(gpu, serving, workload)) is not None:
            usd = price_of(gpu.id)
            return Choice(gpu=gpu.id, layout=layout, usd_per_hour=None if usd is None else usd * layout.gpus)
    return None


def capable_gpus(gpus: Iterable[GPU], engine: EngineSupport, count: int) -> list[GPU]:
    """GPUs that run an engine as it is, so many together: by memory, smallest first, of equal memory the fastest."""
    running = (gpu for gpu in gpus if note(gpu, engine) is None and (count == 1 or gpu.topology != "single"))
    return sorted(running, key=lambda gpu: (gpu.memory_gb, -gpu.bandwidth_gb_s))


def fitting_layout(gpu: GPU, serving: Serving, workload: Workload) -> Layout | None:
    """Layout over as many GPUs of this kind with which the model fits; None where there is none."""
    layout = serving.layout
    if weights_of_all(serving) > layout.gpus * gpu.usable_bytes:
        return None
    if verdict_word(serving.on(gpu, workload)) == "fits":
        return layout
    best = layout_verdicts(gpu, serving, workload, layout.gpus)[:1] if layout.gpus > 1 else ()
    return best[0].layout if best and best[0].verdict == "fits" else None


def weights_of_all(serving: Serving) -> int:
    """Bytes of weights that all GPUs hold together at least."""
    return serving.with_layout(Layout(pp=serving.engine.stated_gpus or 1)).weights


def cheapest(
    gpus: Iterable[GPU],
    serving: Serving,
    workload: Workload,
    price: Callable[[str], float | None] = price_of,
) -> Choice | None:
    """The GPU of which as many as are needed cost least by the hour, among those whose price is known."""
    weights, engine = weights_of_all(serving), serving.engine.support
    able = ((gpu, usd) for gpu in gpus if runs(gpu, engine) and (usd := price(gpu.id)) is not None)
    best: Choice | None = None
    for gpu, usd in sorted(able, key=lambda priced: priced[1] * priced[0].fewest(weights)):
        if best is not None and usd * gpu.fewest(weights) >= (best.usd_per_hour or 0):
            break  # so many must hold the weights alone
        layout = fewest_gpus(gpu, serving, workload)
        if layout is not None and (best is None or usd * layout.gpus < (best.usd_per_hour or 0)):
            best = Choice(gpu=gpu.id, layout=layout, usd_per_hour=usd * layout.gpus)
    return best


def trainable_gpus(gpus: Iterable[GPU], step: Training) -> list[GPU]:
    """The GPUs on which a training step fits as it is laid out, of those that PyTorch runs on as it is and that have
    units for what it computes in; the least memory first, of equal memory the fastest."""
    compute, on = step.recipe.compute, capable_gpus(gpus, ENGINES["transformers"].support, step.layout.gpus)
    typed = (gpu for gpu in on if compute == "fp32" or gpu.lacks(compute) is None)
    return [gpu for gpu in typed if step.fits(gpu.usable_bytes)]


def least_price(gpus: Sequence[GPU]) -> GPU | None:
    """The GPU that costs least by the hour, among those whose price is known."""
    priced = {gpu.id: usd for gpu in gpus if (usd := price_of(gpu.id)) is not None}
    return min((gpu for gpu in gpus if gpu.id in priced), key=lambda gpu: priced[gpu.id], default=None)
