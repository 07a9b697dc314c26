"""A phase of a step with generation as charts draw it: its parts by their names, the overhead as a range."""

from calc import Memory
from calc.training import TRAINER, RolloutPhase, RolloutReport

NAMES: dict[str, str] = {
    **{message.template: name for name, message in TRAINER.items()},
    "weights of the engine": "engine_weights",
    "KV cache": "kv_cache",
    "overhead": "overhead",
}
"""calc's name of a part -> the chart's; all else is other memory of the engine."""


class RolloutMemory(Memory):
    """Bytes on one GPU of trainer and engine."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    master_weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    logits: int = 0
    temporaries: int = 0
    engine_weights: int = 0
    engine_rest: int = 0


def rollout_memory(phase: RolloutPhase) -> RolloutMemory:
    sizes: dict[str, int] = {"overhead": 0}
    for part in phase.parts:
        name = NAMES.get(part.name.template, "engine_rest")
        sizes[name] = sizes.get(name, 0) + part.bytes
    rest = phase.total - sizes["overhead"]
    return RolloutMemory(overhead_low=phase.low - rest, overhead_high=phase.high - rest, total=phase.total, **sizes)


def peak_of(rollout: RolloutReport) -> RolloutMemory:
    """Bytes of each part of trainer and engine in the phase that is the peak."""
    return rollout_memory(next(phase for phase in rollout.phases if phase.name == rollout.peak))
