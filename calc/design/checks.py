"""Checks of a design's sizes against hardware, formats and engines, each with its reason and its source."""

from collections.abc import Iterator, Sequence

from calc.design.standing import Proportions, of_this_size, percentile, quartiles
from calc.errors import Frozen, Message
from calc.hardware.division import undivided
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.tensor import Tensor
from calc.time.operations import is_multiplied

LINE = 64
"""Elements of 16 bits in the 128 bytes that an A100's or H100's tensor cores like to be fed."""
LEAST = 8
"""Elements of 16 bits in the 16 bytes below which V100's tensor cores are not used."""
GROUP = 128
"""Side of a block of fp8, and inputs of a group of AWQ and GPTQ."""
SUPER_BLOCK = 256
"""Inputs of a super-block of llama.cpp's K-quants."""
DEGREES = (2, 4, 8)
VOCAB = 64
HEAD_WIDTHS = (64, 128, 256)
FEW = 4
"""Names in a sentence."""
NVIDIA = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html"


class Check(Frozen):
    """One thing that a design does well, or that costs it something."""

    good: bool
    what: Message
    why: Message
    source: str
    """An address."""


def checks(
    architecture: Architecture, layout: Layout, published: Sequence[Proportions], own: Proportions
) -> list[Check]:
    """All that apply, those that cost something first."""
    rows = [
        tensor_cores(architecture, layout.tp),
        blocks(architecture, layout.tp),
        super_blocks(architecture),
        ranks(architecture),
        *copied_heads(architecture, layout.tp),
        vocabulary(architecture),
        *head_width(architecture),
        *experts(architecture),
        *feed_forward(own, published),
        depth(own, published),
    ]
    return sorted(rows, key=lambda check: check.good)


def matrices(architecture: Architecture, tp: int) -> list[tuple[str, tuple[int, int]]]:
    """Name and sides of each matrix within the layers that tokens are multiplied by, on one of tp ranks where these
    can share it. Routers are small, and left out."""
    ranked = architecture.rank(tp) if tp > 1 and undivided(architecture, tp, tp) is None else architecture
    return [
        (leaf(tensor), sides(tensor))
        for tensor in ranked.tensors()
        if tensor.layers and tensor.excluded_as is None and tensor.component not in ("router", "other")
        if is_multiplied(tensor) and len(tensor.shape) - (tensor.stacked != 1) == 2 and min(sides(tensor)) >= LINE
    ]


def sides(tensor: Tensor) -> tuple[int, int]:
    return tensor.shape[-2], tensor.shape[-1]


def leaf(tensor: Tensor) -> str:
    return tensor.name.removesuffix(".weight").rpartition(".")[2]


def named(shapes_by_name: Sequence[tuple[str, tuple[int, int]]]) -> str:
    """A few of them, with their sides."""
    texts = list(dict.fromkeys(f"{name} {rows:,} × {columns:,}" for name, (rows, columns) in shapes_by_name))
    return ", ".join(f"`{text}`" for text in texts[:FEW]) + (" …" if len(texts) > FEW else "")


def tensor_cores(architecture: Architecture, tp: int) -> Check:
    """Sides of matrices as the tensor cores read them."""
    why = Message(
        "Tensor cores read lines of 128 bytes, 64 elements of 16 bits: a side between two multiples is computed as the "
        "next. Below 16 bytes, 8 elements, older GPUs do not use them."
    )
    every = matrices(architecture, tp)
    for n in (LEAST, LINE):
        if odd := [row for row in every if any(side % n for side in row[1])]:
            what = Message("Sides that are not a multiple of {n}: {names}.", n=n, names=named(odd))
            return Check(good=False, what=what, why=why, source=NVIDIA)
    what = Message("Every side of every matrix is a multiple of {n}.", n=LINE)
    return Check(good=True, what=what, why=why, source=NVIDIA)


def blocks(architecture: Architecture, tp: int) -> Check:
    """Sides as blocks of fp8 and groups of 4 bits cut them."""
    what = Message("Blocks and groups of {n} end with every matrix.", n=GROUP)
    if odd := [row for row in matrices(architecture, tp) if any(side % GROUP for side in row[1])]:
        what = Message("Blocks of {n} do not end with: {names}.", n=GROUP, names=named(odd))
    why = Message(
        "FP8 has blocks of 128 × 128 (DeepSeek-V3 section 3.3), AWQ and GPTQ have groups of 128 inputs. Engines "
        "refuse a tensor-parallel shard that cuts through one."
    )
    return Check(good=not odd, what=what, why=why, source="https://arxiv.org/abs/2412.19437")


def super_blocks(architecture: Architecture) -> Check:
    """Inputs as llama.cpp's K-quants cut them."""
    what = Message("K-quants divide the inputs of every matrix.")
    if odd := [row for row in matrices(architecture, 1) if row[1][1] % SUPER_BLOCK]:
        what = Message("K-quants do not divide the inputs of: {names}.", names=named(odd))
    why = Message(
        "A super-block of llama.cpp's K-quants has 256 inputs. Where they do not divide a matrix it is stored in a "
        "type with blocks of 32, which is larger or less exact."
    )
    return Check(good=not odd, what=what, why=why, source="https://github.com/ggml-org/llama.cpp/pull/1684")


def ranks(architecture: Architecture) -> Check:
    """The usual degrees of tensor parallelism."""
    refusals = (undivided(architecture, tp, tp) for tp in DEGREES)
    refused = next((refusal for refusal in refusals if refusal is not None), None)
    what = Message("TP 2, 4 and 8 divide heads and columns evenly.") if refused is None else refused
    why = Message("Every rank takes whole heads and equal columns of the feed-forward (Megatron-LM section 3).")
    return Check(good=refused is None, what=what, why=why, source="https://arxiv.org/abs/1909.08053")


def copied_heads(architecture: Architecture, tp: int) -> Iterator[Check]:
    """KV heads that several ranks hold."""
    counts = {
        mixer.cached_heads
        for block in architecture.all_blocks
        for mixer in block.attentions
        if len(mixer.cached_vectors()) > 1
    }
    if counts and tp > min(counts):
        yield Check(
            good=False,
            what=Message(
                "TP {tp} over {n} KV heads: {copies} ranks hold a copy of each; the cache per GPU shrinks no further.",
                tp=tp,
                n=min(counts),
                copies=tp // min(counts),
            ),
            why=Message("A rank holds whole KV heads. With more ranks than heads some hold the same."),
            source="https://arxiv.org/abs/2305.13245",
        )


def vocabulary(architecture: Architecture) -> Check:
    """Rows of the embedding and the output head."""
    padded = -(-architecture.vocab // VOCAB) * VOCAB
    more = (padded - architecture.vocab) * (1 if architecture.tied else 2)
    what = Message("The vocabulary of {n:,} is a multiple of {of}.", n=padded, of=VOCAB)
    if more:
        what = Message(
            "The vocabulary of {n:,} is no multiple of {of}: padded to {padded:,} it has {more:,} parameters more.",
            n=architecture.vocab,
            of=VOCAB,
            padded=padded,
            more=more * (architecture.d_embedding or architecture.hidden),
        )
    why = Message(
        "The output head is the widest matrix of a pass. Engines pad it to a multiple of 64 for their ranks, trainers "
        "such as Megatron-LM to 128."
    )
    source = "https://docs.nvidia.com/deeplearning/performance/dl-performance-fully-connected/index.html"
    return Check(good=not more, what=what, why=why, source=source)


def head_width(architecture: Architecture) -> Iterator[Check]:
    """Widths of heads that kernels are made for."""
    heads = {mixer.head_width for block in architecture.all_blocks for mixer in block.attentions}
    why = Message(
        "Attention kernels are made for a few widths of a head, and others take the next larger one's time. "
        "FlashAttention ends at 256."
    )
    for width in sorted(width for width in heads if width is not None):
        good = width in HEAD_WIDTHS
        what = Message("Heads are {n} wide, as kernels like them.", n=width)
        if not good:
            what = Message("Heads are {n} wide; kernels are made for 64, 128 and 256.", n=width)
        yield Check(good=good, what=what, why=why, source="https://arxiv.org/abs/2307.08691")


def experts(architecture: Architecture) -> Iterator[Check]:
    """Routed experts over the GPUs of a node."""
    why = Message("Expert parallelism gives every GPU as many experts; with a rest some GPUs hold and do more.")
    for n in sorted({moe.n_experts for moe in architecture.experts}):
        template = "{n:,} experts divide over 8 GPUs." if n % 8 == 0 else "{n:,} experts do not divide over 8 GPUs."
        what = Message(template, n=n)
        yield Check(good=n % 8 == 0, what=what, why=why, source="https://arxiv.org/abs/2006.16668")


def feed_forward(own: Proportions, published: Sequence[Proportions]) -> Iterator[Check]:
    """The feed-forward's width for a token, against that of published models of its kind."""
    others = [other.ffn for other in published if other.ffn is not None and other.gated == own.gated]
    if own.ffn is None or not others:
        return
    low, high = quartiles(others)
    good = low <= own.ffn <= high
    template = (
        "The feed-forward is {own:.2f} times the hidden size, outside of the {low:.2f} to {high:.2f} of half of "
        "published models."
    )
    if good:
        template = (
            "The feed-forward is {own:.2f} times the hidden size; half of published models lie in {low:.2f} to "
            "{high:.2f}."
        )
    why, source = Message("Without a gate, 4 times the hidden size is the Transformer's own."), "1706.03762"
    if own.gated:
        why = Message("A gate makes a third matrix: 8/3 of the hidden size has as many parameters as 4 without one.")
        source = "2002.05202"
    what = Message(template, own=own.ffn, low=low, high=high)
    yield Check(good=good, what=what, why=why, source=f"https://arxiv.org/abs/{source}")


def depth(own: Proportions, published: Sequence[Proportions]) -> Check:
    """Width over depth, against published models of its size."""
    peers = of_this_size(own, published)
    share = percentile(own.aspect, (other.aspect for other in peers))
    template = "Hidden size over layers is {own:.0f}: wider than {share:.0%} of {n} published models of this size."
    return Check(
        good=not peers or 0.1 <= share <= 0.9,
        what=Message(template, own=own.aspect, share=share, n=len(peers)),
        why=Message(
            "At the same size the loss changes little over a wide range of shapes (section 3.1); deep and narrow "
            "models are slower, for layers follow one another."
        ),
        source="https://arxiv.org/abs/2001.08361",
    )
