"""What a trainer writes to disk, all GPUs together."""

from calc.errors import Frozen
from calc.model.architecture import Architecture
from calc.training.optimizer import state_bytes
from calc.training.peft import trained_of
from calc.training.recipe import Recipe
from calc.training.states import state_width, trained_width
from calc.training.training_workload import TrainingWorkload


class SavedBytes(Frozen):
    """Of a checkpoint: what was trained, the whole model or the adapters; beside it fp32 copies of that, and the
    optimizer's states, without which training can't go on where it was."""

    weights: int
    master_weights: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.weights + self.master_weights + self.optimizer


def on_disk(architecture: Architecture, work: TrainingWorkload, recipe: Recipe) -> SavedBytes:
    """Each weight once, in the type in which it is trained."""
    tensors = [tensor for tensor in architecture.tensors() if tensor.excluded_as is None]
    trained = [part for tensor in tensors for part in trained_of(architecture, tensor, work)]
    parameters, width = sum(part.parameters for part in trained), state_width(work, recipe)
    return SavedBytes(
        weights=parameters * trained_width(work, recipe),
        master_weights=4 * parameters if recipe.master else 0,
        optimizer=sum(part.count * state_bytes(work.optimizer, part, width) for part in trained),
    )
