"""The order in which a pipeline stage works: one forward pass, one backward pass (1F1B); interleaved where a stage
holds several pieces of the model (arXiv:2104.04473 section 2.2)."""

from collections.abc import Iterator
from functools import lru_cache
from operator import ge
from typing import NamedTuple

from calc.errors import ConfigError, Message
from calc.training.recipe import RECIPES, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import TrainingWorkload

ROUNDS = 3
"""Micro-batches for each stage behind which the order of an interleaved schedule begins again."""


class AtWork(NamedTuple):
    """A piece of the model at work for one micro-batch, and how often each piece waits for its backward pass."""

    piece: int
    backward: bool
    waiting: tuple[int, ...]


def warm_up(stages: int, pieces: int, batches: int, stage: int) -> int:
    """Forward passes of a piece before the first backward pass: until the first micro-batch is back from the stages
    behind. With several pieces a stage goes through all but the last of them first, and twice as far ahead of the next
    stage (Megatron-Core 0.16.1, pipeline_parallel/schedules.py, `get_pp_rank_microbatches`)."""
    behind = stages - stage - 1
    ahead = behind if pieces == 1 else 2 * behind + (pieces - 1) * stages
    return min(ahead, pieces * batches)


def in_flight(stages: int, pieces: int, batches: int, stage: int) -> int:
    """Pieces under way at once, each for one micro-batch."""
    return min(warm_up(stages, pieces, batches, stage) + 1, pieces * batches)


def piece_of(turn: int, stages: int, pieces: int) -> int:
    """The piece of a turn forward: as many micro-batches as there are stages, then the next piece; backward it is as
    far from the last."""
    return turn // stages % pieces


def turns(stages: int, kinds: tuple[int, ...], batches: int, stage: int) -> Iterator[AtWork]:
    """A stage at work, turn by turn. `kinds` says of each piece which one it is like."""
    pieces = len(kinds)
    ahead, total = warm_up(stages, pieces, batches, stage), pieces * batches
    waiting = [0] * pieces
    for turn in range(total + ahead):
        if turn < total:
            kind = kinds[piece_of(turn, stages, pieces)]
            yield AtWork(kind, False, tuple(waiting))
            waiting[kind] += 1
        if turn >= ahead:
            kind = kinds[pieces - 1 - piece_of(turn - ahead, stages, pieces)]
            waiting[kind] -= 1
            yield AtWork(kind, True, tuple(waiting))


@lru_cache(4096)
def peak_turns(stages: int, kinds: tuple[int, ...], batches: int, stage: int) -> tuple[AtWork, ...]:
    """The turns at which most waits, of each kind of piece forward and backward."""
    found = dict.fromkeys(turns(stages, kinds, min(batches, ROUNDS * stages), stage))
    return tuple(one for one in found if not any(holds_more(other, one) for other in found))


def holds_more(other: AtWork, one: AtWork) -> bool:
    """Whether as much waits at another turn of the same piece, and more."""
    alike = other[:2] == one[:2] and other.waiting != one.waiting
    return alike and all(map(ge, other.waiting, one.waiting))


def interleaves(recipe: Recipe) -> bool:
    """Whether the framework of a recipe has an interleaved schedule: DeepSpeed has none (its issue 4035)."""
    return recipe != RECIPES["deepspeed"]


def check_schedule(work: TrainingWorkload, recipe: Recipe, layout: TrainingLayout) -> None:
    """Raise ConfigError where pieces can't be interleaved so."""
    if layout.vp == 1:
        return
    if not interleaves(recipe):
        raise ConfigError(
            Message("DeepSpeed has no interleaved pipeline schedule; Megatron-LM and torchtitan have."), "vp", [1]
        )
    over = work.accumulation % layout.pp
    if over:
        sentence = "accumulation is {n:,}: an interleaved schedule needs a multiple of the {pp:,} pipeline stages."
        message = Message(sentence, n=work.accumulation, pp=layout.pp)
        if work.optimizer_in_backward:  # which leaves none to accumulate
            raise ConfigError(message, "vp", [1])
        nearest = work.accumulation - over
        raise ConfigError(message, "accumulation", [n for n in (nearest, nearest + layout.pp) if n])
