"""What a GPU shows as taken, where that is more than a step has in use at its peak."""

from calc.training.moments import Phase
from calc.training.step import Training

PASSES: tuple[Phase, ...] = ("reference", "forward", "loss", "backward")


def reserved(training: Training) -> int:
    """Bytes that PyTorch's allocator has taken from the GPU by the end of the first step, overhead included: the peak
    of the passes, whose blocks stay cached, and on top the cast of flattened gradients to fp32, which is one block,
    and blocks that were taken one by one are not joined (torch 2.13, notes/cuda, memory management; DeepSpeed 0.19.8,
    runtime/zero). Memory that is short is given back before it runs out: a verdict does not depend on it."""
    phases, recipe = training.by_phase(), training.recipe
    peak = max(memory.total for memory in phases.values())
    if not recipe.flattened:
        return peak
    cast = phases["optimizer"].master_weights
    if training.layout.zero == 3 and recipe.sub_group:
        cast = min(cast, 4 * recipe.sub_group)
    return max(peak, cast + max(phases[phase].total for phase in PASSES if phase in phases))
