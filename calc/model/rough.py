"""Rules of thumb that articles use, beside the exact figure, the difference explained term by term."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from calc.errors import Frozen, Message
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.feedforward import MLP
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.model.tensor import Component

MIXERS: tuple[Component, ...] = ("attention", "ssm_linear")
FEED_FORWARD: tuple[Component, ...] = ("mlp", "experts_routed", "experts_shared", "router")


class RuleTerm(Frozen):
    """One part of what a rule counts."""

    what: str | Message
    rough: int
    exact: int
    why: Message | None = None
    """Why the two differ."""


class RuleOfThumb(Frozen):
    """A rule of thumb for one model."""

    what: Message
    formula: str
    values: str
    terms: tuple[RuleTerm, ...]
    unit: str = "parameters"

    @property
    def rough(self) -> int:
        return sum(term.rough for term in self.terms)

    @property
    def exact(self) -> int:
        return sum(term.exact for term in self.terms)

    @property
    def error(self) -> float:
        """Share of the exact figure by which the rough one is more."""
        return self.rough / self.exact - 1


def describes(architecture: Architecture) -> bool:
    """Whether the rule for gated models has a meaning: grouped attention and one width of the feed-forward."""
    mixers = {type(mixer) for block in architecture.blocks for mixer in block.mixers}
    widths = {block.ffn.intermediate for block in architecture.blocks if isinstance(block.ffn, MLP) and block.ffn.gated}
    plain = all(isinstance(block.ffn, MLP) and len(block.mixers) == 1 for block in architecture.blocks)
    return plain and mixers == {GQA} and len(widths) == 1


def gated_rule(architecture: Architecture) -> RuleOfThumb | None:
    """V·h·2 + L·(4 + 3·M)·h² with a feed-forward of width M·h: square attention, an untied head, no norms or biases."""
    if not describes(architecture):
        return None
    vocab, hidden, layers = architecture.vocab, architecture.hidden, architecture.num_layers
    width = next(block.ffn.intermediate for block in architecture.blocks if isinstance(block.ffn, MLP))
    return RuleOfThumb(
        what=Message("Gated decoder: embedding and head, square attention, feed-forward of width M·h"),
        formula="V·h·2 + L·(4 + 3·M)·h²",
        values=f"{vocab}·{hidden}·2 + {layers}·(4 + 3·{width} / {hidden})·{hidden}²",
        terms=tuple(gated_terms(architecture, width)),
    )


def square_rule(architecture: Architecture) -> RuleOfThumb:
    """12·L·h²: the layers of GPT-2, nothing else."""
    return RuleOfThumb(
        what=Message("Layers alone: square attention, and a feed-forward of two matrices of width 4·h"),
        formula="12·L·h²",
        values=f"12·{architecture.num_layers}·{architecture.hidden}²",
        terms=tuple(square_terms(architecture)),
    )


def gated_terms(architecture: Architecture, width: int) -> Iterator[RuleTerm]:
    """What the rule counts, its attention one matrix at a time."""
    hidden, layers = architecture.hidden, architecture.num_layers
    exact = architecture.parameters().components
    square = layers * hidden * hidden
    yield from ends(architecture, architecture.vocab * hidden, architecture.vocab * hidden)
    projections = {"q_proj.weight": 0, "k_proj.weight": 0, "v_proj.weight": 0, "o_proj.weight": 0}
    for block in architecture.blocks:
        for mixer in block.mixers:
            for name, shape in mixer.shapes(hidden).items():
                if name in projections:
                    projections[name] += len(block.layers) * shape[0] * shape[1]
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers if isinstance(mixer, GQA)]
    first = mixers[0]
    heads = Message(
        "{n} heads of {width} are {wide:,} wide, not {hidden:,}.",
        n=first.n_q,
        width=first.d_head,
        wide=first.n_q * first.d_head,
        hidden=hidden,
    )
    shared = Message(
        "{n_kv} KV heads of {width} serve {n_q} query heads: {wide:,} columns, not {hidden:,}.",
        n_kv=first.n_kv,
        n_q=first.n_q,
        width=first.d_head,
        wide=first.n_kv * first.d_head,
        hidden=hidden,
    )
    names = {
        "q_proj.weight": (Message("Queries"), heads),
        "k_proj.weight": (Message("Keys"), shared),
        "v_proj.weight": (Message("Values"), shared),
        "o_proj.weight": (Message("Attention output"), heads),
    }
    for name, (what, why) in names.items():
        yield RuleTerm(
            what=what, rough=square, exact=projections[name], why=why if projections[name] != square else None
        )
    rest = exact["attention"] - sum(projections.values())
    if rest:
        left_out = Message("Biases, norms of heads and the like are left out.")
        yield RuleTerm(what=Message("Rest of attention"), rough=0, exact=rest, why=left_out)
    feed = sum(exact.get(name, 0) for name in FEED_FORWARD)
    biases = Message("Biases are left out.")
    rough = 3 * layers * width * hidden
    yield RuleTerm(what="mlp", rough=rough, exact=feed, why=biases if feed != rough else None)
    yield from left_over(architecture)


def square_terms(architecture: Architecture) -> Iterator[RuleTerm]:
    """12·L·h²."""
    hidden, layers = architecture.hidden, architecture.num_layers
    exact = architecture.parameters().components
    square = layers * hidden * hidden
    yield from ends(architecture, 0, 0)
    mixing = sum(exact.get(name, 0) for name in MIXERS)
    yield RuleTerm(
        what="attention",
        rough=4 * square,
        exact=mixing,
        why=mixer_reason(architecture) if mixing != 4 * square else None,
    )
    feed = sum(exact.get(name, 0) for name in FEED_FORWARD)
    yield RuleTerm(
        what="mlp", rough=8 * square, exact=feed, why=feed_forward_reason(architecture) if feed != 8 * square else None
    )
    yield from left_over(architecture)


def ends(architecture: Architecture, embedding: int, head: int) -> Iterator[RuleTerm]:
    """Embedding and output head."""
    exact = architecture.parameters().components
    both = {"embedding": embedding, "lm_head": head}
    for name, rough in both.items():
        stored = exact.get("embedding", 0) if name == "embedding" else exact.get("lm_head", 0)
        why = None
        if stored != rough:
            why = Message("The rule leaves it out.")
            if name == "lm_head" and rough:
                why = Message("The head is the embedding again (tied): nothing more is stored.")
            elif rough:
                why = Message("The table has other rows or another width than the vocabulary and the hidden state.")
        if stored or rough:
            yield RuleTerm(what=name, rough=rough, exact=stored, why=why)


def left_over(architecture: Architecture) -> Iterator[RuleTerm]:
    """Parts that no rule has a term for."""
    exact = architecture.parameters().components
    for name in ("norms", "other"):
        if exact.get(name, 0):
            yield RuleTerm(what=name, rough=0, exact=exact.get(name, 0), why=Message("The rule leaves it out."))


def mixer_reason(architecture: Architecture) -> Message:
    """Why attention is not four square matrices."""
    kinds = [mixer for block in architecture.blocks for mixer in block.mixers]
    first = kinds[0] if kinds else None
    if isinstance(first, LatentAttention):
        return Message("Queries, keys and values pass through low ranks, as five matrices, not four square ones.")
    if any(isinstance(mixer, Recurrent) for mixer in kinds):
        return Message("Some layers have a recurrent mixer with matrices of its own.")
    if isinstance(first, GQA):
        return Message(
            "{n_q} query heads and {n_kv} KV heads of {width} beside a hidden width of {hidden:,}; biases and norms.",
            n_q=first.n_q,
            n_kv=first.n_kv,
            width=first.d_head,
            hidden=architecture.hidden,
        )
    return Message("Its projections are not square.")


def feed_forward_reason(architecture: Architecture) -> Message:
    """Why the feed-forward is not two matrices of four times the hidden width."""
    feeds = [block.ffn for block in architecture.blocks if block.ffn is not None]
    experts = [feed for feed in feeds if not isinstance(feed, MLP)]
    if experts:
        return Message(
            "{n:,} routed experts a layer, of which a token uses {k}.", n=experts[0].n_experts, k=experts[0].top_k
        )
    if not feeds:
        return Message("There is none.")
    widths = [feed.intermediate for feed in feeds if isinstance(feed, MLP)]
    gated = any(feed.gated for feed in feeds if isinstance(feed, MLP))
    if gated:
        return Message(
            "Three matrices of width {width:,} (gated), not two of {four:,}.",
            width=max(widths),
            four=4 * architecture.hidden,
        )
    return Message(
        "Two matrices of width {width:,}; the rule takes {four:,} and no biases.",
        width=max(widths),
        four=4 * architecture.hidden,
    )


def cache_rule(architecture: Architecture, bits: int | Fraction) -> RuleOfThumb | None:
    """2·L·n_kv·d_head·bytes: what every token adds, beside what it does. None for models without attention."""
    attention = [m for block in architecture.all_blocks for m in block.mixers if not isinstance(m, Recurrent)]
    if not attention:
        return None
    heads, width = cached_heads(attention)
    layers = architecture.num_layers
    groups: dict[tuple[str, Message | None], list[int]] = {}
    for block in architecture.all_blocks:
        n = len(block.runs_in)
        exact = sum(m.cached_elements() for m in block.mixers if m.window is None)
        exact += sum(m.compressed_elements() for m in block.mixers if isinstance(m, CompressedAttention))
        if block not in architecture.blocks:
            why: Message | None = Message("These layers run a block that several share; the rule does not count it.")
        else:
            why = cache_reason(block.mixers) if exact != 2 * heads * width else None
        group = groups.setdefault((str(why), why), [0, 0])
        group[0] += n if block in architecture.blocks else 0
        group[1] += n * exact
    terms = tuple(
        RuleTerm(
            what=Message("One layer", plural="{n:,} layers", n=n),
            rough=int(Fraction(bits) * n * 2 * heads * width / 8),
            exact=int(Fraction(bits) * exact / 8),
            why=why,
        )
        for (_, why), (n, exact) in groups.items()
    )
    return RuleOfThumb(
        what=Message("KV cache per token: a key and a value for every KV head in every layer"),
        formula="2·L·n_kv·d_head·bits / 8",
        values=f"2·{layers}·{heads}·{width}·{bits} / 8",
        terms=terms,
        unit="bytes",
    )


def cached_heads(attention: Iterable[Mixer]) -> tuple[int, int]:
    """KV heads and their width as the rule takes them: with latent attention those of every query head."""
    first = next(iter(attention))
    if isinstance(first, GQA):
        return first.n_kv, first.d_head
    if isinstance(first, LatentAttention):
        return first.n_q, first.d_v
    return 1, first.cached_elements() // 2


def cache_reason(mixers: Iterable[Mixer]) -> Message:
    """Why a layer caches something else for every token."""
    mixers = tuple(mixers)
    for mixer in mixers:
        if isinstance(mixer, LatentAttention):
            return Message(
                "One latent of {rank} and one rotary key of {rope} are cached, however many heads there are.",
                rank=mixer.kv_rank,
                rope=mixer.d_rope,
            )
        if mixer.window is not None:
            return Message("These look back {window:,} tokens and then stop growing.", window=mixer.window)
    if all(isinstance(mixer, Recurrent) for mixer in mixers):
        return Message("These keep a state that does not grow.")
    return Message("These cache keys and values of another width, or those of another layer.")
