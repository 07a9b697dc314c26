"""What the solvers say beside slow ones that try size after size: the largest micro-batch and sequence of a step, the
fewest replicas, the least flags with which a model fits.

python -m benchmarks.speed.solvers [EVERY]

All presets on all GPUs, or every so manyth of them.
"""

import sys
from collections.abc import Callable, Iterator

from calc import Architecture, ConfigError, Layout, Overhead, Precision, TrainingLayout, TrainingWorkload, Workload
from calc.hardware.gpu import GPU
from calc.hardware.solver import largest
from calc.serving.engines import ENGINES
from calc.serving.memory import Allocation, Serving
from calc.serving.verdict import remedy
from calc.training import MOST, RECIPES, Training, TrainingScenario, fewest_replicas, unmodelled
from presets import gpus, models

Answers = tuple[object, ...]
MOST_REPLICAS = 1024


def steps(architecture: Architecture) -> Iterator[Training]:
    """A step on one GPU, and one that is cut in every way that the model allows; none of a model whose step isn't
    modelled."""
    if any(unmodelled(architecture)):
        return
    base = Precision(weights="nf4")
    yield Training(architecture, TrainingScenario())
    work = TrainingWorkload(micro_batch=3, sequence=3000, accumulation=4, method="qlora", attention="eager")
    for tp, pp in ((2, 2), (1, 2), (1, 1)):
        layout = TrainingLayout(tp=tp, pp=pp, dp=2, zero=2, cp=2)
        try:
            yield Training(
                architecture, TrainingScenario(workload=work, recipe=RECIPES["bf16"], layout=layout, frozen=base)
            )
        except ConfigError:
            continue
        return


def fitting(training: Training, usable: int) -> Answers:
    most = training.most_sequences(usable, MOST), training.most_tokens(usable, MOST)
    return *most, fewest_replicas(training, usable)


def sharded(training: Training) -> list[int]:
    """Bytes with 1, 2, 3, … replicas."""
    most = MOST_REPLICAS // (training.layout.gpus // training.layout.dp)
    layouts = (training.layout.model_copy(update={"dp": dp, "zero": 3}) for dp in range(1, most + 1))
    return [training.changed(layout=layout).memory().high for layout in layouts]


def slowly_fitting(training: Training, usable: int, over: list[int]) -> Answers:
    one = training.layout.gpus // training.layout.dp
    fewest = next((dp for dp, nbytes in enumerate(over, 1) if nbytes <= usable), None)
    return (
        largest(lambda n: training.memory(micro_batch=n).high <= usable, MOST),
        largest(lambda n: training.memory(sequence=n).high <= usable, MOST),
        None if fewest is None else one * fewest,
    )


def servings(architecture: Architecture, precision: Precision) -> Iterator[Serving]:
    for name in ("vllm", "sglang"):
        try:
            yield Serving.of(architecture, ENGINES[name](), precision, Layout(), Overhead())
        except ConfigError:
            continue


def slow_remedy(allocation: Allocation) -> object:
    memory, engine = allocation.memory, allocation.serving.engine
    if memory.weights + memory.vision + memory.kv_cache > allocation.gpu.usable_bytes:
        return None
    remedies = engine.remedies(allocation.limits, allocation.workload)
    return next((one for one in remedies if allocation.with_engine(engine.with_options(**one)).surely_fits), None)


def compared(name: str, kinds: list[GPU]) -> Iterator[tuple[str, object, object]]:
    """What is asked, and both answers."""
    config = models()[name].config
    architecture = Architecture.from_config(config)
    for number, step in enumerate(steps(architecture)):
        over = sharded(step)
        for gpu in kinds:
            fast, slow = fitting(step, gpu.usable_bytes), slowly_fitting(step, gpu.usable_bytes, over)
            yield f"{name}, step {number} on {gpu.id}", fast, slow
    for serving in servings(architecture, Precision.of(config)):
        for gpu in kinds:
            allocation = serving.on(gpu, Workload(batch=4))
            if not allocation.surely_fits:
                what = f"{name}, {serving.engine.name} on {gpu.id}"
                yield what, remedy(allocation), slow_remedy(allocation)


def main(every: int = 1, say: Callable[[str], None] = print) -> None:
    asked = different = 0
    for name in list(models())[::every]:
        for what, fast, slow in compared(name, list(gpus().values())):
            asked += 1
            if fast != slow:
                different += 1
                say(f"{what}: {fast} where trying says {slow}")
    say(f"{asked:,} questions, {different:,} answers differ")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
