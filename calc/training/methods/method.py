"""What every method says of itself: how many sequences run, which passes go without gradients, and how its loss is made
of the states that the last norm gives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.training.methods.kernels import in_fp32, in_place
from calc.training.methods.log_probs import fused_log_probs, label_log_probs, loss_of, outputs_of, shifted, whole_logits
from calc.training.modules import Modules
from calc.training.objective import LogProbs, Objective, Release
from calc.training.recipe import Float
from calc.training.tape import TrackedTensor


class QuietPass(NamedTuple):
    """A forward pass without gradients, by the policy or by its reference: at the generation, in pieces of a
    micro-batch, or within each micro-batch before the policy's own pass or after it."""

    by_policy: bool
    when: Literal["generation", "before", "after"]
    times: int = 1


class Head(Protocol):
    """From the states that the last norm gives to the loss; a quiet pass ends with log-probabilities."""

    def __call__(
        self, t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool
    ) -> TrackedTensor: ...


class QuietPasses(Protocol):
    """The quiet passes of a step with a reference that runs, or without."""

    def __call__(self, objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]: ...


def no_passes(objective: Objective, *, runs_reference: bool) -> tuple[QuietPass, ...]:
    return ()


def unchanged(model: Architecture) -> Architecture:
    return model


@dataclass(frozen=True)
class TrainingMethod:
    """A loss of TRL, or of a trainer that computes the same."""

    title: Message
    sequences: int  # of a forward pass for each that a micro-batch counts: a pair has two
    head: Head
    ways: dict[Release, tuple[LogProbs, ...]]  # how its releases make logits, the default first
    others: tuple[LogProbs, ...] = ()  # how other trainers make them
    passes: QuietPasses = no_passes
    model: Callable[[Architecture], Architecture] = unchanged  # whose loss it is
    reads_table: bool = True  # False: its head is no table of the vocabulary, which the embedding may share
    reference: bool = False  # whether the policy is compared with one
    beta: float = 0.1  # weight of that by default
    teacher: bool = False  # whether that is a teacher, whose whole distribution is learned; beta is then between both
    teacher_type: Float | None = None  # of the teacher's weights; None: that of the policy's
    generates: bool = False  # whether completions are generated
    groups: bool = True  # whether these are compared with others of their prompt
    values: bool = False  # whether a value model is trained too, and a reward model stands next to both
    verified: bool = True  # False: nothing computed or measured stands behind it

    @property
    def newest(self) -> Release:
        """The newest release that is known."""
        return next(iter(self.ways))


@dataclass(frozen=True)
class Scoring:
    """The head of a step: that of a method, with its settings."""

    head: Head
    objective: Objective
    quiet: bool

    def __call__(self, t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
        return self.head(t, model, x, self.objective, quiet=self.quiet)


def fused(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
    """A loss on log-probabilities of the fused head, which stands in the model's forward; then the reference runs."""
    scored = fused_log_probs(t, model, x)
    t.leave_autocast()
    t.mark_reference()
    return loss_of(t, scored)


def fused_or(whole: Head) -> Head:
    """The head of a release that builds no logits, those of other trainers, and what an older release makes of whole
    logits."""

    def head(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective, *, quiet: bool) -> TrackedTensor:
        ways: dict[LogProbs | None, Head] = {"fused": fused, "in-place": in_place, "in-fp32": in_fp32}
        return ways.get(objective.log_probs, whole)(t, model, x, objective, quiet=quiet)

    return head


def logits_in_rows(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """Log-probabilities from whole logits of all tokens."""
    return label_log_probs(t, shifted(t, outputs_of(t, whole_logits(t, model, x))))
