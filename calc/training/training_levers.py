"""What makes a training step smaller: each change with what it saves, and the least of them that make it fit."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Literal, get_args

from calc.errors import ConfigError, Frozen, Message
from calc.hardware.gpu import GPU
from calc.serving.fewest import MOST_GPUS
from calc.serving.verdict import Word
from calc.training.peft import has_experts
from calc.training.step import Training
from calc.training.training_changes import CHANGES, CHEAP, GivesUp, StepChange, TrainingSetting
from calc.training.training_verdict import MOST, fewest_replicas, limit, word


class TrainingLever(Frozen):
    """A change, by itself. Bytes are those of the most loaded GPU."""

    name: str
    what: Message
    cost: Message
    changes: dict[str, Any]
    saves: int
    spare: int
    verdict: Word


class Together(Frozen):
    """The least changes with which it fits."""

    what: tuple[Message, ...]
    changes: dict[str, Any]
    saves: int
    spare: int
    gpus: int


class Smaller:
    """A step on one kind of GPU, and the smaller steps that it could be."""

    def __init__(self, gpu: GPU, training: Training, allowed: Collection[GivesUp] = get_args(GivesUp)) -> None:
        self.gpu, self.training, self.now = (
            gpu,
            training,
            TrainingSetting(
                training.work,
                training.recipe,
                training.layout,
                training.frozen,
                has_experts(training.architecture),
            ),
        )
        self.changes = [change for change in CHANGES if change.gives_up in allowed]

    def at(self, setting: TrainingSetting) -> Training:
        return self.training.changed(setting.work, setting.recipe, setting.layout, setting.frozen)

    def needs(self, setting: TrainingSetting) -> int:
        """Bytes on the most loaded GPU."""
        return self.at(setting).memory().total

    def fits(self, setting: TrainingSetting) -> bool:
        return self.at(setting).fits(self.gpu.usable_bytes)

    def largest(self, setting: TrainingSetting, of: Literal["micro_batch", "sequence"]) -> int | None:
        """The most sequences or tokens that fit; None where memory sets no limit."""
        training, usable = self.at(setting), self.gpu.usable_bytes
        most = training.most_sequences if of == "micro_batch" else training.most_tokens
        return limit(most(usable, MOST))

    @property
    def before(self) -> int:
        return self.needs(self.now)

    @property
    def levers(self) -> tuple[TrainingLever, ...]:
        """Each change that saves something by itself."""
        alone = ((change, change.on(self.largest, self.now)) for change in self.changes)
        return tuple(
            self.lever(change, after)
            for change, after in alone
            if after is not None and self.needs(after) < self.before
        )

    def lever(self, change: StepChange, after: TrainingSetting) -> TrainingLever:
        memory, usable = self.at(after).memory(), self.gpu.usable_bytes
        return TrainingLever(
            name=change.name,
            what=change.what(after),
            cost=change.cost(after),
            changes=after.changes(self.now),
            saves=self.before - memory.total,
            spare=usable - memory.total,
            verdict=word(memory, usable),
        )

    @property
    def chosen(self) -> list[StepChange] | None:
        """The least changes with which it fits: the first that does alone and gives nothing up but time; else all that
        help, in their order, less those without which it fits still, the dearest first. None where all of them do not
        do."""
        if self.fits(self.now):
            return []
        for change in self.changes:
            after = change.on(self.largest, self.now)
            if change.gives_up in CHEAP and after is not None and self.fits(after):
                return [change]
        chosen = list(self.helping())
        if not self.fits(self.after(chosen)):
            return None
        for change in reversed(chosen.copy()):
            fewer = [other for other in chosen if other is not change]
            if self.fits(self.after(fewer)):
                chosen = fewer
        return chosen

    @property
    def least(self) -> Together | None:
        """The same with what they come to; None where it fits, too."""
        chosen = self.chosen
        return self.together(chosen, self.after(chosen)) if chosen else None

    def helping(self, *, all_of_them: bool = False) -> Iterator[StepChange]:
        """Changes that save something on top of those before; until it fits, where not all are asked for."""
        setting, needed = self.now, self.before
        for change in self.changes:
            if not all_of_them and self.fits(setting):
                return
            after = change.on(self.largest, setting)
            if after is not None and (smaller := self.needs(after)) < needed:
                setting, needed = after, smaller
                yield change

    def after(self, chosen: Iterable[StepChange]) -> TrainingSetting:
        """With each of these changes, where it is one on top of those before."""
        setting = self.now
        for change in chosen:
            setting = change.on(self.largest, setting) or setting
        return setting

    def together(self, chosen: Iterable[StepChange], after: TrainingSetting) -> Together:
        needed = self.needs(after)
        return Together(
            what=tuple(change.what(after) for change in chosen),
            changes=after.changes(self.now),
            saves=self.before - needed,
            spare=self.gpu.usable_bytes - needed,
            gpus=after.layout.gpus,
        )


def more_gpus(gpu: GPU, training: Training) -> Together | None:
    """The fewest GPUs on which it fits with everything sharded over them (ZeRO-3); where no number of replicas does,
    for none makes activations smaller, with cheap changes beside. None where these do not do either."""
    own = training.layout
    replica = own.gpus // own.dp
    try:
        most = training.changed(layout=own.model_copy(update={"dp": MOST_GPUS // replica, "zero": 3}))
    except ConfigError:  # the experts are not spread over so many
        return None
    spread = Smaller(gpu, most, CHEAP)
    chosen = [] if spread.fits(spread.now) else list(spread.helping(all_of_them=True))
    gpus = fewest_replicas(spread.at(spread.after(chosen)), gpu.usable_bytes)
    if gpus is None:
        return None
    for change in reversed(chosen.copy()):
        fewer = [other for other in chosen if other is not change]
        if spread.fits(spread.after(fewer).spread(dp=gpus // replica)):
            chosen = fewer
    return Smaller(gpu, training).together(chosen, spread.after(chosen).spread(dp=gpus // replica))
