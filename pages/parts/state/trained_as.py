"""A training step as a trainer sets it up by default; TRL's losses as TRL does; and steps to start from."""

from dataclasses import dataclass

from calc import Objective, TrainingLayout, TrainingWorkload
from calc.errors import Message
from calc.hardware import usual_gpus
from calc.training import METHODS, TRAINERS, Colocation, Method, MethodName, Trainer, workload_set_by
from pages.parts.state.scenario import TrainingChoice

READERS = ("micro_batch", "sequence", "accumulation", "attention", "lora_rank", "lora_targets", "lora_dropout")
"""Fields of the step that no trainer decides."""
DEGREES = ("tp", "pp", "vp", "dp", "ep", "cp")
"""Fields of the layout that no trainer decides."""


def trained_as(choice: TrainingChoice, name: str | None) -> TrainingChoice:
    """The step on its data and GPUs, with a trainer's default flags for its method; with no trainer's for None."""
    method = choice.workload.method
    own = {field: getattr(choice.workload, field) for field in READERS}
    degrees = {field: getattr(choice.layout, field) for field in DEGREES}
    adapter = {} if method == "full" else {"method": method}
    bare = choice.model_copy(
        update={
            "workload": TrainingWorkload(**own, **adapter),
            "layout": TrainingLayout(**degrees),
            "recipe": TrainingChoice().recipe,
            "weights": None,
        }
    )
    if name is None:
        return bare
    trainer = TRAINERS[name].of(method)
    objective, colocation = by_trainer(choice, trainer)
    workload = workload_set_by(trainer, method, choice.loss_method)
    return bare.model_copy(
        update={
            "objective": objective,
            "colocation": colocation,
            "workload": bare.workload.model_copy(update=workload | adapter),
            "recipe": trainer.recipe,
            "weights": trainer.base,
            "layout": bare.layout.model_copy(update=trainer.layout),
        }
    )


def by_trainer(choice: TrainingChoice, trainer: Trainer) -> tuple[Objective, Colocation]:
    """The loss as a trainer makes it, where others than TRL have the method; and the engine, where it starts one."""
    objective, colocation = choice.objective, choice.colocation
    if choice.loss_method is not None and METHODS[choice.loss_method].others:
        objective = objective.model_copy(update={"log_probs": None} | trainer.objective)
    if choice.rollout == "colocated":
        colocation = colocation.model_copy(update=trainer.engine)
    return objective, colocation


def trainer_of(choice: TrainingChoice) -> str | None:
    """The trainer that sets it up so, whatever its engine takes; None where none does."""
    own = {"colocation": choice.colocation}
    return next((name for name in TRAINERS if trained_as(choice, name).model_copy(update=own) == choice), None)


def by_method(choice: TrainingChoice, method: str) -> TrainingChoice:
    """Another method, as the same trainer sets it up; without one, LoRA and QLoRA start with full activation
    checkpointing, as people run them."""
    trainer, work = trainer_of(choice), choice.workload
    changes: dict[str, object] = {"method": method, "fp32_rest": work.fp32_rest and method == "qlora"}
    if work.trains_base and method in ("lora", "qlora") and work.recompute == "none":
        changes["recompute"] = "full"
    changed = choice.model_copy(update={"workload": work.model_copy(update=changes), "weights": None})
    return changed if trainer is None else trained_as(changed, trainer)


def by_loss(choice: TrainingChoice, loss: MethodName | None) -> TrainingChoice:
    """Another loss; TRL's begin as TRL sets a step up. What only the loss before had is left open."""
    open_again = dict.fromkeys(("trl", "log_probs", "reference", "beta"))
    objective = choice.objective.model_copy(update=open_again)
    changed = choice.model_copy(update={"loss_method": loss, "objective": objective, "teacher": None})
    return trained_as(changed, "trl") if loss is not None and choice.loss_method is None else changed


def usual(choice: TrainingChoice) -> TrainingChoice:
    """The step that a link without its fields means; with a loss of TRL, as TRL sets it up for the trained weights."""
    if choice.loss_method is None:
        return TrainingChoice()
    work = TrainingWorkload(method=choice.workload.method)
    return trained_as(TrainingChoice(loss_method=choice.loss_method, workload=work), "trl")


@dataclass(frozen=True)
class Start:
    """A step to start from: what is trained, as which trainer sets it up, with full activation checkpointing, on so
    many of these GPUs."""

    title: Message
    method: Method
    trainer: str
    gpus: tuple[str, ...]
    count: int = 1

    def of(self, choice: TrainingChoice) -> TrainingChoice:
        """The step with the reader's batch and lengths."""
        work = choice.workload.model_copy(update={"method": self.method, "fp32_rest": False})
        layout = TrainingLayout(dp=self.count)
        bare = choice.model_copy(update={"workload": work, "layout": layout, "loss_method": None})
        set_up = trained_as(bare, self.trainer)
        checkpointed = set_up.workload.model_copy(update={"recompute": "full", "method": self.method})
        return set_up.model_copy(update={"workload": checkpointed})


NODES = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200")
"""GPUs that are rented by the node."""
STARTS: dict[str, Start] = {
    # Axolotl's examples, such as examples/llama-3/qlora.yml, turn gradient_checkpointing on
    "qlora": Start(
        Message("QLoRA on a home card"),
        "qlora",
        "axolotl",
        ("rtx-3060-12gb", "rtx-5060-ti-16gb", "rtx-3090", "rtx-4090", "rtx-5090"),
    ),
    "lora": Start(Message("LoRA on one GPU"), "lora", "axolotl", tuple(gpu.id for gpu in usual_gpus())),
    "full": Start(Message("Full, one node of 8"), "full", "fsdp2", NODES, 8),
    "pretrain": Start(Message("Pre-training, 64 GPUs"), "pretrain", "torchtitan", NODES, 64),
}


def start_of(choice: TrainingChoice) -> str | None:
    """The start that a step still is; None where it is none of them."""
    return next((name for name, start in STARTS.items() if start.of(choice) == choice), None)
