"""Operations of one rank of a pipeline stage in a forward pass, with their FLOPs, 2 for each multiply-add, and the
bytes that they read and write: weights, cache, and what goes in and out of matrix products. The operations of norms,
rotary embedding, activation functions, softmax and sampling are left out: together less than 1 % of a forward pass, and
bound by memory.

Figures may be numbers or arrays of them; `calc.time.paper` puts symbols in their place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from calc.formats import Precision
from calc.formats.stored import Piece, StoredAs, stored
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within, copies_within
from calc.model.architecture import Architecture
from calc.model.feedforward import RankGroups
from calc.model.mixers import AttentionMixer
from calc.model.tensor import Component, Tensor, WindowTokens
from calc.serving.kv_cache import StateBytes, cached_bits, state_bytes
from calc.time.arrays import any_nonzero, minimum
from calc.time.figures import Symbol

TILE = 128
"""Rows and columns of a product that a thread block computes at a time (CUTLASS)."""
Product = Literal[Component, "latents", "image"]
"""Matrix products by what their weights belong to. Latents: MLA's second projection of keys and values, which prefill
computes anew for cached tokens; image: projections of an image's tokens, none of which are in a text."""
NOT_MULTIPLIED = frozenset({"A_log", "D", "ape", "tid2eid"})
"""Parameters with two sides that are no matrix: decays, skips, positions, a table of experts."""
GROUPED: dict[Product, str] = {"mlp": "dense", "experts_shared": "shared", "router": "shared", "lm_head": "head"}
"""Products that take the tokens of a group of ranks (`RankGroups`; SGLang `layers/layer_boundary`)."""
What = Product | Literal["scores", "scan"]
"""Scores: attention over the cache; scan: a recurrence."""


# A forward pass: how many tokens go through the layers, and what each of them looks back on


def causal_pairs(tokens: Any, window: int | None) -> Any:
    """Query-key pairs of a sequence from its beginning: token i sees itself and those before, at most `window`."""
    if window is None:
        return tokens * (tokens + 1) // 2
    inside = minimum(tokens, window)
    return inside * (inside + 1) // 2 + (tokens - inside) * window


@dataclass(frozen=True, slots=True)
class PassPart:
    """Equal sequences of a pass: each brings `new` tokens behind `past` ones that are cached."""

    sequences: Any
    new: Any
    past: Any = 0
    decodes: bool = False  # latent attention then works on the latents themselves, DeepSeek-V2 section 2.1.2
    causal: bool = True  # else every token sees every other: how PyTorch's FlopCounterMode counts attention

    @property
    def tokens(self) -> Any:
        return self.sequences * self.new

    def pairs(self, window: int | None = None) -> Any:
        """Query-key pairs that attention computes."""
        if not self.causal:
            return self.sequences * self.new * (self.past + self.new)
        return self.sequences * (causal_pairs(self.past + self.new, window) - causal_pairs(self.past, window))

    def context(self, window: int | None = None) -> Any:
        """Tokens whose keys and values are read, of all sequences."""
        length = self.past + self.new
        return self.sequences * (length if window is None else minimum(length, window))


@dataclass(frozen=True)
class Forward:
    """Sequences of one pass: those that decode, those that are prefilled, or both."""

    parts: tuple[PassPart, ...]
    logits: Any  # rows that the head computes

    @cached_property
    def tokens(self) -> Any:
        return self.sum(lambda part: part.tokens)

    @property
    def sequences(self) -> Any:
        return self.sum(lambda part: part.sequences)

    def sum(self, of: Callable[[PassPart], Any]) -> Any:
        return sum(of(part) for part in self.parts)


def decode(batch: Any, context: Any, new: Any = 1) -> Forward:
    """One step of `batch` sequences that are `context` tokens long, the new ones included."""
    return Forward((PassPart(batch, new, context - new, decodes=True),), logits=batch * new)


def prefill(batch: Any, prompt: Any, past: Any = 0) -> Forward:
    """A prompt, or a chunk of it behind `past` tokens; the head computes the last row of each."""
    return Forward((PassPart(batch, prompt, past),), logits=batch)


# Work


class Operation(NamedTuple):
    """One kind of work over all layers of a stage that do it; numbers, arrays, or formulas."""

    what: What
    flops: Any
    weights: Any = 0  # bytes
    cache: Any = 0  # bytes, read and written
    activations: Any = 0  # bytes, in and out
    quantized: Any = False  # its weights are stored in fewer than 16 bits

    @property
    def bytes(self) -> Any:
        return self.weights + self.cache + self.activations


@dataclass(frozen=True, slots=True)
class Routing:
    """Spread of tokens over routed experts, even and independent."""

    experts: int  # of the whole model
    top_k: int
    share: Any  # of a token's rows, those that one rank computes
    copies: Any  # data-parallel copies whose tokens the experts of a rank see
    uneven: bool = False  # a side of an expert is no multiple of 128, the tile of its products

    def rows(self, tokens: Any) -> Any:
        """Pairs of a token and one of its experts on a rank."""
        return tokens * self.top_k * self.share

    def touched(self, tokens: Any) -> Any:
        """The share of the experts that are read."""
        return touched(self.experts, self.top_k, tokens * self.copies)


Key = TypeVar("Key")
ByProduct = dict[Product, Any]
"""Figures by product."""
ByWindow = dict[WindowTokens, Any]
"""Figures by how many tokens back: None, all."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Work of one rank of a stage, as far as it does not depend on the pass."""

    flops: Annotated[ByProduct, Symbol("φ", "FLOPs of a row")]
    weights: Annotated[ByProduct, Symbol("W", "bytes of weights")] = field(default_factory=dict)  # all experts included
    elements: Annotated[ByProduct, Symbol("e", "elements in and out of a row")]
    pair_flops: Annotated[ByWindow, Symbol("φ_qk", "FLOPs of a query-key pair, all layers")]
    absorbed_pair_flops: Annotated[ByWindow, Symbol("φ_qkd", "FLOPs of a query-key pair in decode, all layers")]
    read_bits: Annotated[ByWindow, Symbol("β", "bits of cache of a token that attention reads")] = field(
        default_factory=dict
    )
    written_bits: Annotated[Any, Symbol("β_w", "bits of cache that a token adds")] = 0
    head_outputs: Annotated[Any, Symbol("q", "elements of the outputs of all heads")]
    exchanged_elements: Annotated[Any, Symbol("q_x", "elements of all heads' queries and outputs in decode")]
    """Sent between ranks that share cached tokens."""
    attention_layers: Annotated[int, Symbol("L_a", "layers with attention")]
    query_heads: Annotated[Any, Symbol("n_a", "query heads of all layers")]
    dcp: Annotated[Any, Symbol("dcp", "ranks that share cached tokens")]
    scan_flops: Annotated[Any, Symbol("φ_scan", "FLOPs of a token in recurrences")]
    state_bytes: Annotated[Any, Symbol("σ", "bytes of recurrent state, read and written")]
    layers: Annotated[int, Symbol("L", "layers of the stage")]
    moe_layers: Annotated[int, Symbol("L_e", "layers of the stage with routed experts")]
    mla_layers: Annotated[int, Symbol("L_l", "layers of the stage with latent attention")]
    recurrent_layers: Annotated[int, Symbol("L_r", "layers of the stage with a recurrence")]
    indexer_layers: Annotated[int, Symbol("L_i", "layers of the stage with an indexer")]
    dp_mlp_layers: Annotated[int, Symbol("L_j", "layers of the stage whose dense feed-forward all copies share")] = 0
    whole_mlp_layers: Annotated[
        int, Symbol("L_o", "layers of the stage whose dense feed-forward is whole on each rank")
    ] = 0
    split_moe_layers: Annotated[
        int, Symbol("L_s", "layers of the stage whose experts take a part of a copy's tokens")
    ] = 0
    hidden: int
    table_row: Annotated[Any, Symbol("e_row", "bytes of a row of the embedding")] = 0
    tied_head: Annotated[Any, Symbol("W_tied", "bytes of a head tied to the embedding")] = 0
    width: Annotated[int, Symbol("w", "bytes of an activation")] = 2
    routing: Routing | None
    quantized: ByProduct = field(default_factory=dict)
    """Whether most of a product's weights are stored in fewer than 16 bits."""
    longest_stage: Any  # layers of the longest stage that it stands for
    stages: Any = 1  # pipeline stages that it stands for, each of which passes rows on

    def operations(self, forward: Forward) -> tuple[Operation, ...]:
        return (*self.products(forward), *self.attention(forward))

    def passed(self, product: Product, forward: Forward) -> tuple[Any, Any]:
        """Rows that go through a product, and bytes of weights that it reads: of the embedding rows, of routed experts
        those that some token chooses."""
        weights, tokens = self.weights.get(product, 0), forward.tokens
        match product:
            case "embedding":
                return tokens, tokens * self.table_row
            case "lm_head":
                return forward.logits, weights + self.tied_head
            case "experts_routed" if self.routing is not None:
                return self.routing.rows(tokens), weights * self.routing.touched(tokens)
            case "latents":
                return forward.sum(lambda part: part.tokens if part.decodes else part.context()), weights
            case "image":
                return 0, 0
        return tokens, weights

    def products(self, forward: Forward) -> Iterator[Operation]:
        for product in {**self.flops, **self.weights}:
            rows, weights = self.passed(product, forward)
            yield Operation(
                what=product,
                flops=rows * self.flops.get(product, 0),
                weights=weights,
                activations=rows * self.elements.get(product, 0) * self.width,
                quantized=self.quantized.get(product, False),
            )

    def attention(self, forward: Forward) -> Iterator[Operation]:
        """Attention over the cache, and recurrences, of all layers together."""
        if self.pair_flops:
            flops = forward.sum(
                lambda part: sum(
                    each * part.pairs(back)
                    for back, each in (self.absorbed_pair_flops if part.decodes else self.pair_flops).items()
                )
            )
            bits = forward.sum(self.bits_read)
            cache = (bits + forward.tokens * self.written_bits) / 8
            taken = 2 * forward.tokens * self.head_outputs * self.width
            yield Operation("scores", flops, cache=cache, activations=taken)
        if any_nonzero(self.state_bytes):
            yield Operation("scan", forward.tokens * self.scan_flops, cache=forward.sequences * self.state_bytes)

    def bits_read(self, part: PassPart) -> Any:
        """Bits of cache that a part reads: in decode a rank's share of the tokens; a prompt's is read by each."""
        bits = sum(each * part.context(back) for back, each in self.read_bits.items())
        return bits / self.dcp if part.decodes and any_nonzero(self.dcp > 1) else bits


def demand(
    whole: Architecture,
    rank: Architecture,
    precision: Precision,
    layout: Layout,
    *stage: range,
    file: StoredAs = stored,
    states: StateBytes = state_bytes,
    sibling: Demand | None = None,
) -> Demand:
    """Work of one rank of a stage, in one piece or several, its weights stored as in an engine's files; `states` gives
    bytes of recurrent state; `sibling` is a demand of this rank in other formats."""
    whole, rank = unrolled(whole), unrolled(rank)
    done = sibling or computed(whole, rank, layout, *stage, states=states)
    pieces = file(whole, precision, rank)
    weights, quantized = stored_products(rank, pieces, *stage)
    attending = attending_mixers(rank, *stage)
    table = next(piece for piece in pieces if piece.tensor.component == "embedding")
    return replace(
        done,
        weights=weights,
        quantized=quantized,
        read_bits=summed_over_layers(attending, lambda mixer: cached_bits(mixer, precision.kv, mixer.read_elements())),
        written_bits=sum(
            layers * sum(cached_bits(mixer, precision.kv, {None: mixer.written_elements()}).values())
            for mixer, layers in attending
        ),
        table_row=table.nbytes / table.tensor.shape[0] if stage[0].start == 0 else 0,
        tied_head=table.nbytes if whole.tied and stage[-1].stop == whole.num_layers else 0,
        width=precision.activation_bytes,
    )


def computed(
    whole: Architecture,
    rank: Architecture,
    layout: Layout,
    *stage: range,
    states: StateBytes = state_bytes,
) -> Demand:
    """A rank's demand without what depends on formats: bytes of weights and cache, and the width of activations."""
    matrices = matrices_within(rank, *stage)
    blocks = blocks_within(rank, *stage)
    attending = attending_mixers(rank, *stage)
    recurrent = [(mixer, len(block.layers)) for block in blocks for mixer in block.recurrences]
    groups = rank.groups or RankGroups.of(layout.tp)
    dense = sum(len(block.layers) for block in blocks if block.dense)
    return Demand(
        flops=per_copy(rank, layout.tp, product_flops(rank, matrices, *stage)),
        elements=per_copy(
            rank, layout.tp, summed((product, sum(tensor.shape[-2:]) * copies) for product, tensor, copies in matrices)
        ),
        pair_flops=summed_over_layers(attending, lambda mixer: mixer.pair_flops()),
        absorbed_pair_flops=summed_over_layers(attending, lambda mixer: mixer.pair_flops(absorbed=True)),
        head_outputs=sum(layers * mixer.n_q * mixer.value_width for mixer, layers in attending),
        exchanged_elements=sum(layers * mixer.n_q * mixer.exchanged_width for mixer, layers in attending),
        attention_layers=sum(layers for _, layers in attending),
        query_heads=sum(layers * mixer.n_q for mixer, layers in attending),
        dcp=layout.dcp,
        scan_flops=sum(layers * mixer.scan_flops() for mixer, layers in recurrent),
        state_bytes=2 * states(blocks),  # read and written
        routing=routing(whole, layout),
        layers=sum(map(len, stage)),
        moe_layers=sum(len(block.layers) for block in blocks if block.moe),
        mla_layers=sum(layers for mixer, layers in attending if mixer.absorbs),
        recurrent_layers=sum(layers for _, layers in recurrent),
        indexer_layers=sum(layers for mixer, layers in attending if mixer.picks_tokens),
        dp_mlp_layers=dense if groups.dense > layout.tp else 0,
        whole_mlp_layers=dense if groups.dense < layout.tp else 0,
        split_moe_layers=sum(len(block.layers) for block in blocks if block.moe) if groups.shared < layout.tp else 0,
        hidden=rank.hidden,
        longest_stage=sum(map(len, stage)),
    )


def per_copy(rank: Architecture, tp: int, figures: ByProduct) -> ByProduct:
    """Figures of a row of a copy, from those of a row: what a group of ranks shares takes the rows of all of them, and
    each of a copy's tp ranks has its rows. A tied head is divided as the embedding is."""
    groups = rank.groups
    if groups is None:
        return figures
    rows = {product: Fraction(getattr(groups, part), tp) for product, part in GROUPED.items()}
    if rank.tied:
        del rows["lm_head"]
    taken = {product: each * rows[product] for product, each in figures.items() if product in rows}
    return figures | {key: simplest(each) if isinstance(each, Fraction) else each for key, each in taken.items()}


def simplest(fraction: Fraction) -> float:
    """The number as an int where it is whole."""
    return fraction.numerator if fraction.denominator == 1 else float(fraction)


def attending_mixers(rank: Architecture, *stage: range) -> list[tuple[AttentionMixer, int]]:
    """The mixers of a stage that attend over a cache, each with the number of its layers."""
    return [(mixer, len(block.layers)) for block in blocks_within(rank, *stage) for mixer in block.attentions]


def summed(figures: Iterable[tuple[Key, Any]]) -> dict[Key, Any]:
    """Sums by key."""
    total: dict[Key, Any] = {}
    for key, each in figures:
        total[key] = total.get(key, 0) + each
    return total


def summed_over_layers(mixers: Iterable[tuple[Any, int]], of: Callable[[Any], Mapping[WindowTokens, Any]]) -> ByWindow:
    """Sums over all layers, by the window of attention, of what `of` gives for a mixer."""
    return summed((back, layers * each) for mixer, layers in mixers for back, each in of(mixer).items())


def routing(whole: Architecture, layout: Layout) -> Routing | None:
    """Routing of the first layer with experts; all have as many."""
    if not whole.experts:
        return None
    slices, moe = layout.tp * layout.dp // layout.ep, whole.experts[0]
    sides = moe.latent or whole.hidden, moe.expert.intermediate
    uneven = any(side % TILE for side in sides)
    return Routing(moe.n_experts, moe.top_k, slices / layout.tp, layout.dp, uneven)


def unrolled(architecture: Architecture) -> Architecture:
    """The model with a shared block standing in every layer that runs it."""
    shared = tuple(
        block.model_copy(update={"layers": block.runs_in, "places": ()}) if block.places else block
        for block in architecture.shared
    )
    return architecture.model_copy(update={"shared": shared}) if shared else architecture


def is_multiplied(tensor: Tensor) -> bool:
    """Whether tokens are multiplied by it: no vector, table, norm, or parameter of a recurrence."""
    if tensor.component in ("embedding", "norms"):
        return False
    sides = len(tensor.shape) - (tensor.stacked != 1)
    if sides < 2:
        return False
    module, _, leaf = tensor.name.rpartition(".")
    return leaf not in NOT_MULTIPLIED and not leaf.endswith("bias") and "norm" not in module.rpartition(".")[2]


def product_of(architecture: Architecture, tensor: Tensor) -> Product:
    if tensor.component == "attention":
        if tensor.name.endswith("kv_b_proj.weight"):
            return "latents"
        if tensor.name.endswith(("k_proj.weight", "v_proj.weight")) and f".{architecture.names.cross}." in tensor.name:
            return "image"
    return tensor.component


def matrices_within(architecture: Architecture, *stage: range) -> list[tuple[Product, Tensor, int]]:
    """Every matrix of a stage, in one piece or several, with its product and the number of layers that hold it."""
    return [
        (product_of(architecture, tensor), tensor, copies_within(architecture, tensor, *stage))
        for tensor in architecture.tensors()
        if is_multiplied(tensor) and tensor.excluded_as is None
    ]


def product_flops(
    architecture: Architecture, matrices: Iterable[tuple[Product, Tensor, int]], *stage: range
) -> dict[Product, Any]:
    """FLOPs of one row through the matrices of a stage: 2 for each weight. A row of routed experts goes through one of
    them."""

    def of_row(product: Product, tensor: Tensor) -> Any:
        each = tensor.active // max(1, len(tensor.layers))
        return each // tensor.top_k if product == "experts_routed" and tensor.top_k else each  # 0: those of images

    flops = summed((product, 2 * copies * of_row(product, tensor)) for product, tensor, copies in matrices)
    if architecture.tied and stage[-1].stop == architecture.num_layers:
        flops["lm_head"] = 2 * architecture.vocab * (architecture.d_embedding or architecture.hidden)
    return flops


def touched(experts: Any, top_k: Any, tokens: Any) -> Any:
    """The share of equal experts that some token chooses, where each takes top_k of them at random: an expert is left
    out by one token with a chance of 1 - top_k / experts."""
    return 1 - (1 - top_k / experts) ** tokens


def stored_products(
    architecture: Architecture, pieces: Iterable[Piece], *stage: range
) -> tuple[dict[Product, int], dict[Product, bool]]:
    """Bytes of the weights of a stage by the product that reads them, the rest by component, all experts included; and
    whether most of a product's weights, in the whole model, are stored in fewer than 16 bits."""
    sizes: dict[Product, int] = {}
    narrow: dict[Product, int] = {}
    for tensor, form, a_layer, nbytes, _ in pieces:
        product = product_of(architecture, tensor)
        if tensor.excluded_as is None:
            copies = a_layer * copies_within(architecture, tensor, *stage)
            sizes[product] = sizes.get(product, 0) + copies * nbytes
        if is_multiplied(tensor):
            sign = 1 if form.bits < 16 else -1
            narrow[product] = narrow.get(product, 0) + sign * tensor.parameters
    return sizes, {product: balance > 0 for product, balance in narrow.items()}
