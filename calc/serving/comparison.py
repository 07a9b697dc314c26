"""The effect of a change of a model on its parameters and its KV cache: one change alone, another kind of attention in
every layer, several configurations side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calc.errors import Frozen, Message
from calc.formats import CacheFormat
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.conventions import Kernels
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.serving.engines.engine import Engine
from calc.serving.kv_cache import bytes_per_token, growth
from calc.serving.workload import Workload

WIDTH = 2  # bytes of an element in 16 bits


class Scores(Frozen):
    """Bytes of one layer, which the next one uses again."""

    matrix: int  # [batch, heads, length, length], once, in 16 bits
    eager: int  # at the softmax of transformers' eager attention, with its copies in fp32
    flash: int  # of FlashAttention, which keeps one fp32 number for each row: arXiv:2307.08691 section 3.1


def scores(mixer: Mixer, kernels: Kernels, batch: int, length: int) -> Scores | None:
    """Scores of a prefill of `batch` sequences of `length` tokens; None where there are none."""
    if not mixer.score_heads:
        return None
    rows = batch * mixer.score_heads * length
    each = mixer.softmax_bytes(WIDTH, kernels)
    return Scores(matrix=rows * length * WIDTH, eager=rows * length * each, flash=rows * 4)


class Effect(Frozen):
    """The effect of one change alone."""

    parameters: int
    """Parameters more, or below zero fewer."""
    cache: float | None
    """Bytes of the cache of one sequence over those before; None where one of the two keeps none."""


def effect(before: Architecture, after: Architecture, engine: Engine, kv: CacheFormat, context: int) -> Effect:
    """Change from `before` to `after`: parameters, and the cache of one sequence of `context` tokens."""
    old, new = (engine.sequences_bytes(model, kv, 1, context) for model in (before, after))
    return Effect(
        parameters=after.parameters().total - before.parameters().total, cache=new / old if old and new else None
    )


Swap = Callable[[Mixer, GQA], Mixer]


class Variant(Frozen):
    """A model with one kind of attention in every layer that has attention."""

    name: Message
    architecture: Architecture
    own: bool  # as the model is
    parameters: int
    bytes_per_token: int  # of the layers that keep the whole context
    cache: int  # of all sequences
    saved: float  # share of the first variant's cache, multi-head attention's


def variants(architecture: Architecture, engine: Engine, kv: CacheFormat, workload: Workload) -> tuple[Variant, ...]:
    """Variants, keys and values for every query head first; none for a model without heads of keys and values, or that
    keeps none."""
    if architecture.encodes:
        return ()
    models = dict(_models(architecture))
    caches = [engine.sequences_bytes(model, kv, workload.batch, workload.context) for model in models.values()]
    return tuple(
        Variant(
            name=name,
            architecture=model,
            own=model == architecture,
            parameters=model.parameters().total,
            bytes_per_token=bytes_per_token(growth(model.all_blocks, kv)),
            cache=cache,
            saved=1 - cache / caches[0],
        )
        for (name, model), cache in zip(models.items(), caches, strict=True)
    )


def _models(architecture: Architecture) -> Iterator[tuple[Message, Architecture]]:
    mixers = [mixer for block in architecture.all_blocks for mixer in block.mixers]
    heads = [grouped for mixer in mixers if (grouped := mixer.as_grouped()) is not None]
    if not heads:
        return
    fewest, own_counts = min(mixer.n_q for mixer in heads), {mixer.n_kv for mixer in heads}
    usual = {8, 4, 1} | (own_counts if len(own_counts) == 1 else set())
    counts = [n for n in sorted(usual, reverse=True) if n < fewest and all(mixer.n_q % n == 0 for mixer in heads)]

    def with_kv_heads(number: int | None) -> Swap:
        return lambda _, heads: heads.model_copy(update={"n_kv": number or heads.n_q})

    swaps = {Message("MHA"): with_kv_heads(None)}
    swaps |= {Message("GQA-{n}", n=n) if n > 1 else Message("MQA"): with_kv_heads(n) for n in counts}
    made = {name: swapped(architecture, swap) for name, swap in (swaps | {Message("MLA"): latent}).items()}
    own = [name for name, model in made.items() if model == architecture]
    for name, model in made.items():
        yield name, model
        if name == Message("MHA") and not own:
            yield Message("As it is"), architecture


def swapped(architecture: Architecture, swap: Swap) -> Architecture:
    """The model with each mixer of attention replaced; recurrent ones stay."""

    def replaced(block: Block) -> Block:
        pairs = [(mixer, mixer.as_grouped()) for mixer in block.mixers]
        mixers = tuple(mixer if heads is None else swap(mixer, heads) for mixer, heads in pairs)
        return block.model_copy(update={"mixers": mixers})

    parts = {"blocks": architecture.blocks, "shared": architecture.shared}
    return architecture.model_copy(update={name: tuple(map(replaced, blocks)) for name, blocks in parts.items()})


def latent(mixer: Mixer, heads: GQA) -> Mixer:
    """Latent attention in DeepSeek-V2's proportions (arXiv:2405.04434 section 2.1.3): a latent of 4 head widths and a
    rotary key of half a head, which is as much cache as 2.25 KV heads; queries are not compressed."""
    if mixer.absorbs:
        return mixer
    d = heads.d_head
    return LatentAttention(
        n_q=heads.n_q, q_rank=None, kv_rank=4 * d, d_nope=d, d_rope=d // 2, d_v=heads.value_width, window=heads.window
    )


CONTEXTS = tuple(2**power for power in range(10, 18))  # 1k to 128k tokens


class ComparedField(Frozen):
    """A config field of every configuration; None where one has no such field."""

    name: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        return any(value != self.values[0] for value in self.values)

    @property
    def shared(self) -> bool:
        """Whether every configuration has it."""
        return None not in self.values


def settings(configurations: Sequence[Mapping[str, Any]]) -> tuple[ComparedField, ...]:
    """Fields that differ first, of these the ones that all have; otherwise in the order of the configs."""
    names = dict.fromkeys(name for fields in configurations for name in fields)
    rows = (ComparedField(name=name, values=tuple(fields.get(name) for fields in configurations)) for name in names)
    return tuple(sorted(rows, key=lambda row: (not row.differs, not row.shared)))


def ratio(value: int, first: int) -> float | None:
    """Multiple of the first; None where there is nothing to compare with."""
    return value / first if first else None


def cache_growth(architecture: Architecture, engine: Engine, kv: CacheFormat, batch: int) -> dict[int, int]:
    """Bytes of KV cache and states of `batch` sequences at each context that the model can read, on all GPUs, each
    counted once."""
    most = architecture.learned_positions or CONTEXTS[-1]
    contexts = [context for context in CONTEXTS if context <= most] or [most]
    return {context: engine.sequences_bytes(architecture, kv, batch, context) for context in contexts}
