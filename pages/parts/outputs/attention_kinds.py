"""Kinds of attention in a few words, each with its paper."""

from collections.abc import Iterator

from calc.errors import Message
from calc.model.attention import GQA
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention

RECURRENT: dict[str, Message] = {
    "mamba": Message(
        "**Mamba** reads the sequence with a selective state space: what it remembers is a state of fixed size "
        "([arXiv:2312.00752](https://arxiv.org/abs/2312.00752))."
    ),
    "mamba2": Message(
        "**Mamba-2** keeps a matrix as the state of each head, updated token by token; it can also be computed like "
        "attention without a softmax ([arXiv:2405.21060](https://arxiv.org/abs/2405.21060))."
    ),
    "gated_delta": Message(
        "**Gated DeltaNet** keeps a matrix for each head. Each token fades it by a gate and corrects what it says of "
        "the token's key ([arXiv:2412.06464](https://arxiv.org/abs/2412.06464))."
    ),
    "kimi_delta": Message(
        "**Kimi Delta Attention** is a gated delta rule with a gate of its own for each channel "
        "([arXiv:2510.26692](https://arxiv.org/abs/2510.26692))."
    ),
    "lightning": Message(
        "**Lightning attention** is linear attention with decay, computed in blocks "
        "([arXiv:2401.04658](https://arxiv.org/abs/2401.04658))."
    ),
    "short_conv": Message(
        "**A gated short convolution** remembers the last few tokens only "
        "([arXiv:2511.23404](https://arxiv.org/abs/2511.23404))."
    ),
    "qk_convs": Message(
        "**Compressed convolutional attention** passes queries and keys through short convolutions "
        "([arXiv:2510.04476](https://arxiv.org/abs/2510.04476))."
    ),
    "rwkv": Message(
        "**RWKV** mixes tokens over time with a state of one vector for each channel "
        "([arXiv:2305.13048](https://arxiv.org/abs/2305.13048))."
    ),
    "mlstm": Message(
        "**mLSTM**, the matrix memory of xLSTM, keeps a matrix for each head "
        "([arXiv:2503.13427](https://arxiv.org/abs/2503.13427))."
    ),
    "rg_lru": Message(
        "**RG-LRU**, the gated linear recurrence of Griffin, keeps one vector "
        "([arXiv:2402.19427](https://arxiv.org/abs/2402.19427))."
    ),
}
OTHER = Message("**A recurrent layer** keeps a state of fixed size.")
NO_GROWTH = Message("Nothing of it grows with the context, and there are no scores.")
MHA = Message(
    "**Multi-head attention (MHA)** gives every query head keys and values of its own "
    "([arXiv:1706.03762](https://arxiv.org/abs/1706.03762)). It caches the most."
)
MQA = Message(
    "**Multi-query attention (MQA)** has one KV head, which all query heads read "
    "([arXiv:1911.02150](https://arxiv.org/abs/1911.02150)). It caches the least of the kinds with plain keys and "
    "values, at some cost in quality."
)
GROUPED = Message(
    "**Grouped-query attention (GQA)** lies between the two: each KV head serves a group of query heads "
    "([arXiv:2305.13245](https://arxiv.org/abs/2305.13245)). Here {n} query heads share one, so that the cache is "
    "1/{n} of multi-head attention's: {saved:.4g}% less."
)
LATENT = Message(
    "**Multi-head latent attention (MLA)** caches one compressed vector for all heads, from which each head makes its "
    "keys and values, and one rotary key beside it ([arXiv:2405.04434](https://arxiv.org/abs/2405.04434)). The cache "
    "does not depend on the number of heads."
)
COMPRESSED = Message(
    "**Compressed attention** has one key that is also the value. It looks at a window of recent tokens, and beyond it "
    "at compressed entries, each of which stands for several tokens (DeepSeek-V4)."
)
WINDOW = Message(
    "**Sliding window**: each token sees itself and the {n:,} before it at most; the cache of the layer stops growing "
    "there. Layers above still reach further, by a window a layer "
    "([arXiv:2310.06825](https://arxiv.org/abs/2310.06825))."
)
SINKS = Message(
    "**Attention sinks**: a learned number for each query head joins the softmax, so that a head may look at nothing "
    "(as in [arXiv:2309.17453](https://arxiv.org/abs/2309.17453))."
)
SPARSE = Message(
    "**Sparse attention**: an indexer picks {n:,} tokens that each query looks at; the cache still holds all of them "
    "([arXiv:2512.02556](https://arxiv.org/abs/2512.02556))."
)
CROSS = Message("**Cross attention**: keys and values are those of the image, computed once and not of the text.")
SHARED = Message(
    "**Shared cache**: this layer has no keys and values of its own and reads those of an earlier layer "
    "([arXiv:2405.12981](https://arxiv.org/abs/2405.12981))."
)


def about(mixer: Mixer) -> Iterator[Message]:
    """What kind it is, and what is special about it."""
    if isinstance(mixer, Recurrent):
        yield RECURRENT.get(getattr(mixer, "kind", ""), OTHER)
        yield NO_GROWTH
        return
    if isinstance(mixer, GQA):
        yield of_heads(mixer)
        if mixer.cross:
            yield CROSS
        if not mixer.own_keys:
            yield SHARED
        if mixer.sinks:
            yield SINKS
    else:
        yield LATENT if isinstance(mixer, LatentAttention) else COMPRESSED
    if mixer.window is not None:
        yield Message(WINDOW.template, n=mixer.window - 1)
    if isinstance(mixer, GQA | LatentAttention) and mixer.indexer is not None:
        yield Message(SPARSE.template, n=mixer.indexer.top_tokens)


def of_heads(mixer: GQA) -> Message:
    """By how many query heads share a KV head."""
    shared = mixer.n_q // mixer.n_kv
    if shared == 1:
        return MHA
    return MQA if mixer.n_kv == 1 else Message(GROUPED.template, n=shared, saved=100 - 100 / shared)


NAMES: dict[str, Message] = {
    "mamba": Message("Mamba"),
    "mamba2": Message("Mamba-2"),
    "gated_delta": Message("Gated DeltaNet"),
    "kimi_delta": Message("Kimi Delta Attention"),
    "lightning": Message("Lightning attention"),
    "qk_convs": Message("Compressed convolutional attention"),
    "rwkv": Message("RWKV"),
    "mlstm": Message("mLSTM"),
    "rg_lru": Message("RG-LRU"),
}


def name(mixer: Mixer) -> Message:
    """A kind in a word or two."""
    if isinstance(mixer, Recurrent):
        return NAMES.get(getattr(mixer, "kind", ""), Message("Short convolution"))
    if isinstance(mixer, CompressedAttention):
        if mixer.rate is None:
            return Message("Window of {n:,}", n=mixer.window)
        return Message("Window of {n:,}, compressed by {rate:,}", n=mixer.window, rate=mixer.rate)
    kind = Message("MLA") if isinstance(mixer, LatentAttention) else heads(mixer.n_q, mixer.n_kv)
    if isinstance(mixer, GQA) and mixer.cross:
        return Message("{kind}, cross attention", kind=kind)
    if isinstance(mixer, GQA) and not mixer.own_keys:
        return Message("{kind}, shared cache", kind=kind)
    return kind if mixer.window is None else Message("{kind}, window of {n:,}", kind=kind, n=mixer.window)


def heads(n_q: int, n_kv: int) -> Message:
    """As papers call so many query and KV heads."""
    if n_kv == n_q:
        return Message("MHA")
    return Message("MQA") if n_kv == 1 else Message("GQA-{n}", n=n_kv)
