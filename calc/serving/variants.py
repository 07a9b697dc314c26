"""The same model with another kind of attention: what more or fewer KV heads would cost and save."""

from collections.abc import Callable, Iterator

from calc.errors import Frozen, Message
from calc.formats import CacheFormat
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.serving.engines.engine import Engine
from calc.serving.kv_cache import bytes_per_token, growth
from calc.serving.workload import Workload

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
    """With keys and values for every query head first; none for a model without heads of keys and values."""
    models = dict(_models(architecture))
    if not models:
        return ()
    weighed = []
    for name, model in models.items():
        bits = growth(model.all_blocks, kv)
        cache = engine.sequences_bytes(model, kv, workload.batch, workload.context)
        weighed.append((name, model, model == architecture, model.parameters().total, bytes_per_token(bits), cache))
    most = weighed[0][-1]
    return tuple(
        Variant(
            name=name,
            architecture=model,
            own=own,
            parameters=n,
            bytes_per_token=token,
            cache=cache,
            saved=1 - cache / most,
        )
        for name, model, own, n, token, cache in weighed
    )


def _models(architecture: Architecture) -> Iterator[tuple[Message, Architecture]]:
    mixers = [mixer for block in architecture.all_blocks for mixer in block.mixers]
    heads = [grouped for mixer in mixers if (grouped := mixer.as_grouped()) is not None]
    if not heads:
        return
    fewest, of_its_own = min(mixer.n_q for mixer in heads), {mixer.n_kv for mixer in heads}
    usual = {8, 4, 1} | (of_its_own if len(of_its_own) == 1 else set())
    counts = [n for n in sorted(usual, reverse=True) if n < fewest and all(mixer.n_q % n == 0 for mixer in heads)]
    swaps: dict[Message, Swap] = {Message("MHA"): lambda _, heads: with_kv_heads(heads, heads.n_q)}
    for n in counts:
        name = Message("GQA-{n}", n=n) if n > 1 else Message("MQA")
        swaps[name] = lambda _, heads, n=n: with_kv_heads(heads, n)  # type: ignore[misc]
    swaps[Message("MLA")] = latent
    made = {name: swapped(architecture, swap) for name, swap in swaps.items()}
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

    return architecture.model_copy(
        update={
            "blocks": tuple(map(replaced, architecture.blocks)),
            "shared": tuple(map(replaced, architecture.shared)),
        }
    )


def with_kv_heads(heads: GQA, n_kv: int) -> GQA:
    """Grouped-query attention with as many KV heads."""
    return heads.model_copy(update={"n_kv": n_kv})


def latent(mixer: Mixer, heads: GQA) -> Mixer:
    """Latent attention in DeepSeek-V2's proportions (arXiv:2405.04434 section 2.1.3): a latent of 4 head widths and a
    rotary key of half a head, which is as much cache as 2.25 KV heads; queries are not compressed."""
    if mixer.absorbs:
        return mixer
    d = heads.d_head
    return LatentAttention(
        n_q=heads.n_q, q_rank=None, kv_rank=4 * d, d_nope=d, d_rope=d // 2, d_v=heads.value_width, window=heads.window
    )
