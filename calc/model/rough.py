"""Rules of thumb that articles use against the exact figure, the difference explained term by term."""

from collections.abc import Iterator
from fractions import Fraction

from calc.errors import Frozen, Message
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.formula import Formula, Operand, power, product, quotient, total
from calc.model.tensor import Component

MIXERS: tuple[Component, ...] = ("attention", "ssm_linear")
FEED_FORWARD: tuple[Component, ...] = ("mlp", "experts_routed", "experts_shared", "router")
LEFT_OUT = Message("The rule leaves it out.")


class RuleTerm(Frozen):
    """One part of what a rule counts."""

    what: str | Message
    rough: int
    exact: int
    why: Message | None = None
    """Why the two differ."""


def term(what: str | Message, rough: int, exact: int, why: Message) -> RuleTerm:
    """A part, and why the figures differ where they do."""
    return RuleTerm(what=what, rough=rough, exact=exact, why=None if exact == rough else why)


class RuleOfThumb(Frozen):
    """A rule of thumb for one model."""

    what: Message
    formula: Formula
    values: Formula
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
    blocks = architecture.blocks
    grouped = all(len(block.mixers) == 1 and block.mixers[0].head_width is not None for block in blocks)
    feeds = [block.dense for block in blocks if block.dense is not None]
    return grouped and len(feeds) == len(blocks) and len({mlp.intermediate for mlp in feeds if mlp.gated}) == 1


def gated_rule(architecture: Architecture) -> RuleOfThumb | None:
    """V·h·2 + L·(4 + 3·M)·h² with a feed-forward of width M·h: square attention, an untied head, no norms or biases."""
    if not describes(architecture):
        return None
    vocab, hidden, layers = architecture.vocab, architecture.hidden, architecture.num_layers
    width = next(block.dense.intermediate for block in architecture.blocks if block.dense is not None)
    return RuleOfThumb(
        what=Message("Gated decoder: embedding and head, square attention, feed-forward of width M·h"),
        formula=gated_formula("V", "h", "L", "M"),
        values=gated_formula(vocab, hidden, layers, quotient(width, hidden)),
        terms=tuple(gated_terms(architecture, width)),
    )


def gated_formula(vocab: Operand, hidden: Operand, layers: Operand, multiplier: Operand) -> Formula:
    each = product(layers, total(4, product(3, multiplier)), power(hidden, 2))
    return total(product(vocab, hidden, 2), each)


def square_rule(architecture: Architecture) -> RuleOfThumb:
    """12·L·h²: the layers of GPT-2, nothing else."""
    return RuleOfThumb(
        what=Message("Layers alone: square attention, and a feed-forward of two matrices of width 4·h"),
        formula=product(12, "L", power("h", 2)),
        values=product(12, architecture.num_layers, power(architecture.hidden, 2)),
        terms=tuple(square_terms(architecture)),
    )


def gated_terms(architecture: Architecture, width: int) -> Iterator[RuleTerm]:
    """Terms of the rule, its attention one matrix at a time."""
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
    first = next(mixer for block in architecture.blocks for mixer in block.attentions)
    d_head, _ = first.attended_widths
    n_q, n_kv = first.n_q, first.cached_heads
    sentence = "{n} heads of {width} are {wide:,} wide, not {hidden:,}."
    heads = Message(sentence, n=n_q, width=d_head, wide=n_q * d_head, hidden=hidden)
    sentence = "{n_kv} KV heads of {width} serve {n_q} query heads: {wide:,} columns, not {hidden:,}."
    shared = Message(sentence, n_kv=n_kv, n_q=n_q, width=d_head, wide=n_kv * d_head, hidden=hidden)
    names = {
        "q_proj.weight": (Message("Queries"), heads),
        "k_proj.weight": (Message("Keys"), shared),
        "v_proj.weight": (Message("Values"), shared),
        "o_proj.weight": (Message("Attention output"), heads),
    }
    for name, (what, why) in names.items():
        yield term(what, square, projections[name], why)
    rest = exact["attention"] - sum(projections.values())
    if rest:
        left_out = Message("Biases, norms of heads and the like are left out.")
        yield term(Message("Rest of attention"), 0, rest, left_out)
    feed = sum(exact.get(name, 0) for name in FEED_FORWARD)
    yield term("mlp", 3 * layers * width * hidden, feed, Message("Biases are left out."))
    yield from left_over(architecture)


def square_terms(architecture: Architecture) -> Iterator[RuleTerm]:
    hidden, layers = architecture.hidden, architecture.num_layers
    exact = architecture.parameters().components
    square = layers * hidden * hidden
    yield from ends(architecture, 0, 0)
    mixing = sum(exact.get(name, 0) for name in MIXERS)
    yield term("attention", 4 * square, mixing, mixer_reason(architecture))
    feed = sum(exact.get(name, 0) for name in FEED_FORWARD)
    yield term("mlp", 8 * square, feed, feed_forward_reason(architecture))
    yield from left_over(architecture)


def ends(architecture: Architecture, embedding: int, head: int) -> Iterator[RuleTerm]:
    exact = architecture.parameters().components
    tied = Message("The head is the embedding again (tied): nothing more is stored.")
    other = Message("The table has other rows or another width than the vocabulary and the hidden state.")
    for name, rough, stored, why in (
        ("embedding", embedding, exact.get("embedding", 0), other),
        ("lm_head", head, exact.get("lm_head", 0), tied),
    ):
        if stored or rough:
            yield term(name, rough, stored, why if rough else LEFT_OUT)


def left_over(architecture: Architecture) -> Iterator[RuleTerm]:
    """Parts that no rule has a term for."""
    exact = architecture.parameters().components
    for name in ("norms", "other"):
        if exact.get(name):
            yield term(name, 0, exact[name], LEFT_OUT)


def mixer_reason(architecture: Architecture) -> Message:
    """Why attention is not four square matrices."""
    recurrences = [mixer for block in architecture.blocks for mixer in block.recurrences]
    attentions = [mixer for block in architecture.blocks for mixer in block.attentions]
    for mixer in (*recurrences, *attentions):
        return mixer.why_not_square(architecture.hidden)
    return Message("Its projections are not square.")


def feed_forward_reason(architecture: Architecture) -> Message:
    """Why the feed-forward is not two matrices of four times the hidden width."""
    dense = [block.dense for block in architecture.blocks if block.dense is not None]
    widest = max(dense, key=lambda mlp: (mlp.gated, mlp.intermediate), default=None)
    deciding = next(iter(architecture.experts), widest)
    return Message("There is none.") if deciding is None else deciding.why_not_square(architecture.hidden)


def cache_rule(architecture: Architecture, bits: int | Fraction) -> RuleOfThumb | None:
    """2·L·n_kv·d_head·bytes: a rule of thumb next to what every token adds. None for models without attention."""
    first = next((mixer for block in architecture.all_blocks for mixer in block.attentions), None)
    if first is None:
        return None
    heads, width = first.rule_heads()
    layers = architecture.num_layers
    groups: dict[tuple[str, Message | None], list[int]] = {}
    for block in architecture.all_blocks:
        n = len(block.cached_in)
        exact = sum(m.cached_elements() for m in block.mixers if m.window is None)
        exact += sum(m.compressed_elements() for m in block.mixers)
        if block not in architecture.blocks:
            why: Message | None = Message("These layers run a block that several share; the rule does not count it.")
        else:
            why = cache_reason(block) if exact != 2 * heads * width else None
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
        formula=quotient(product(2, "L", "n_kv", "d_head", "bits"), 8),
        values=quotient(product(2, layers, heads, width, bits), 8),
        terms=terms,
        unit="bytes",
    )


def cache_reason(block: Block) -> Message:
    """Why a layer caches something else for every token."""
    for mixer in block.attentions:
        if (why := mixer.why_not_cached()) is not None:
            return why
        if mixer.window is not None:
            return Message("These look back {window:,} tokens and then stop growing.", window=mixer.window)
    if not block.attentions:
        return Message("These keep a state that does not grow.")
    return Message("These cache keys and values of another width, or those of another layer.")
