"""Sizes that tensor parallelism can divide: heads, KV heads and columns of feed-forwards, each rule with its
sentence."""

from collections.abc import Callable, Iterator

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.feedforward import RankGroups

MOST_RANKS = 64
"""Most ranks for which the next allowed degree is sought."""


def undivided(architecture: Architecture, tp: int, slices: int) -> Message | None:
    """Why tp ranks can't share every layer evenly, each routed expert cut into so many slices; None where they can. One
    rank shares nothing."""
    if tp == slices == 1:
        return None
    return heads(architecture, tp) or kv_heads(architecture, tp) or columns(architecture, tp, slices)


def heads(architecture: Architecture, tp: int) -> Message | None:
    """Query heads are divided, and those of recurrences."""
    for block in architecture.all_blocks:
        for mixer in block.mixers:
            count = getattr(mixer, "n_q", None)
            if count is not None and count % tp:
                return Message("tp is {tp:,}, which does not divide the {n:,} attention heads.", tp=tp, n=count)
            groups = getattr(mixer, "o_groups", 0)  # whose outputs are projected together: none is cut
            if groups % tp:
                sentence = "tp is {tp:,}, which does not divide the {n:,} groups of attention heads."
                return Message(sentence, tp=tp, n=groups)
            if count is None and not mixer.divides(tp):
                return Message("tp is {tp:,}, which does not divide the heads of the recurrent layers.", tp=tp)
    return None


def kv_heads(architecture: Architecture, tp: int) -> Message | None:
    """KV heads are divided, or each is held by several ranks (vLLM `linear.py`, QKVParallelLinear); a latent counts as
    one."""
    for block in architecture.all_blocks:
        for mixer in block.attentions:
            if mixer.cached_heads % tp and tp % mixer.cached_heads:
                return Message(
                    "tp is {tp:,}, which neither divides the {n:,} KV heads nor is a multiple of them.",
                    tp=tp,
                    n=mixer.cached_heads,
                )
    return None


def columns(architecture: Architecture, tp: int, slices: int) -> Message | None:
    """Columns of each feed-forward are divided."""
    for wide, ranks in widths(architecture, RankGroups.of(tp), slices):
        if wide % ranks:
            return Message(
                "tp is {tp:,}, which does not divide the {n:,} columns of the feed-forward into {ranks:,} equal parts.",
                tp=tp,
                n=wide,
                ranks=ranks,
            )
    return None


def widths(architecture: Architecture, groups: RankGroups, slices: int) -> Iterator[tuple[int, int]]:
    """Columns of each feed-forward, and over how many ranks they are cut."""
    for block in architecture.all_blocks:
        if block.ffn is not None:
            yield from block.ffn.divided_columns(groups, slices)


def nearest(tp: int, allowed: Callable[[int], bool]) -> tuple[int, ...]:
    """The degrees around the one asked for that are allowed."""
    degrees = [other for other in range(1, MOST_RANKS + 1) if other != tp and allowed(other)]
    return (*[other for other in degrees if other < tp][-1:], *[other for other in degrees if other > tp][:1])


def divides(architecture: Architecture, tp: int) -> bool:
    """Whether tp ranks can share every layer evenly, each routed expert too."""
    return undivided(architecture, tp, tp) is None
