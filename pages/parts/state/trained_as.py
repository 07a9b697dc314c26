"""A training step as a trainer sets it up by default."""

from calc.training.layout import TrainingLayout
from calc.training.recipe import TRAINERS
from calc.training.workload import TrainingWorkload
from pages.parts.state.scenario import TrainingChoice

READERS = ("micro_batch", "sequence", "accumulation", "attention", "lora_rank", "lora_targets", "lora_dropout")
"""Fields of the step that no trainer decides."""
DEGREES = ("tp", "pp", "vp", "dp", "ep", "cp")
"""The same of the layout."""


def trained_as(choice: TrainingChoice, name: str | None) -> TrainingChoice:
    """The same data and GPUs with the flags that a trainer has by default for the method; None: with none."""
    method = choice.workload.method
    own = {field: getattr(choice.workload, field) for field in READERS}
    degrees = {field: getattr(choice.layout, field) for field in DEGREES}
    adapter = {} if method == "full" else {"method": method}
    bare = TrainingChoice(workload=TrainingWorkload(**own, **adapter), layout=TrainingLayout(**degrees))
    if name is None:
        return bare
    trainer = TRAINERS[name].of(method)
    return TrainingChoice(
        workload=bare.workload.model_copy(update=trainer.workload | adapter),
        recipe=trainer.recipe,
        weights=trainer.base,
        layout=bare.layout.model_copy(update=trainer.layout),
    )


def trainer_of(choice: TrainingChoice) -> str | None:
    """The trainer that sets it up so; None where none does."""
    return next((name for name in TRAINERS if trained_as(choice, name) == choice), None)


def by_method(choice: TrainingChoice, method: str) -> TrainingChoice:
    """Another method, as the same trainer sets it up; without one, LoRA and QLoRA start with full activation
    checkpointing, as people run them."""
    trainer, work = trainer_of(choice), choice.workload
    changes: dict[str, object] = {"method": method, "fp32_rest": work.fp32_rest and method == "qlora"}
    if work.trains_base and method in ("lora", "qlora") and work.recompute == "none":
        changes["recompute"] = "full"
    changed = choice.model_copy(update={"workload": work.model_copy(update=changes), "weights": None})
    return changed if trainer is None else trained_as(changed, trainer)
