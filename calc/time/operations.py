"""What one rank of a pipeline stage does in a forward pass: operations with their FLOPs and bytes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from calc.formats import CacheFormat, Precision
from calc.formats.stored import Piece, stored
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.feedforward import MoE
from calc.model.mixers import Mixer, Recurrent
from calc.time.bytes import cache_read, cache_written, row_elements, state_traffic, touched, weight_bytes
from calc.time.flops import Product, attention_flops, is_multiplied, product_flops, product_of, scan_flops, unrolled
from calc.time.forward import Forward

What = Product | Literal["scores", "scan"]
"""Scores: attention over the cache; scan: a recurrence."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of work over all layers of a stage that do it; numbers, arrays, or formulas."""

    what: What
    flops: Any
    weights: Any = 0  # bytes
    cache: Any = 0  # bytes, read and written
    activations: Any = 0  # bytes, in and out
    quantised: bool = False  # its weights are stored in fewer than 16 bits

    @property
    def bytes(self) -> Any:
        return self.weights + self.cache + self.activations


@dataclass(frozen=True, slots=True)
class Routing:
    """How tokens spread over routed experts, evenly and independently."""

    experts: int  # of the whole model
    top_k: int
    share: float  # of a token's rows, those that one rank computes
    copies: int  # data-parallel copies whose tokens the experts of a rank see

    def rows(self, tokens: Any) -> Any:
        """Pairs of a token and one of its experts on a rank."""
        return tokens * self.top_k * self.share

    def touched(self, tokens: Any) -> Any:
        """The share of the experts that are read."""
        return touched(self.experts, self.top_k, tokens * self.copies)


@dataclass(frozen=True)
class Demand:
    """What does not hang on the pass: FLOPs a row, bytes of weights, elements a row of each product, and the mixers.

    Built of a rank's architecture; built of symbols for its sizes it yields formulas."""

    flops: dict[Product, Any]
    weights: dict[Product, int]
    elements: dict[Product, Any]
    quantised: frozenset[Product]
    mixers: tuple[tuple[Mixer, int], ...]  # with the layers that have them
    recurrent: tuple[Block, ...]
    routing: Routing | None
    layers: int
    hidden: int
    table_row: float  # bytes of one row of the embedding
    tied_head: int  # bytes of a tied head
    kv: CacheFormat
    width: int  # bytes of an activation

    def operations(self, forward: Forward) -> tuple[Operation, ...]:
        """All operations of a pass."""
        return (*self.products(forward), *self.scores(forward), *self.scans(forward))

    def rows(self, product: Product, forward: Forward) -> Any:
        match product:
            case "lm_head":
                return forward.logits
            case "experts_routed" if self.routing is not None:
                return self.routing.rows(forward.tokens)
            case "latents":
                return forward.sum(lambda part: part.tokens if part.decodes else part.context())
            case "image":
                return 0
        return forward.tokens

    def products(self, forward: Forward) -> list[Operation]:
        found = []
        for product in {**self.flops, **self.weights}:
            rows, weights = self.rows(product, forward), self.weights.get(product, 0)
            if product == "embedding":
                weights = forward.tokens * self.table_row
            elif product == "experts_routed" and self.routing is not None:
                weights = weights * self.routing.touched(forward.tokens)
            elif product == "lm_head":
                weights = weights + self.tied_head
            elif product == "image":
                weights = 0
            found.append(
                Operation(
                    what=product,
                    flops=rows * self.flops.get(product, 0),
                    weights=weights,
                    activations=rows * self.elements.get(product, 0) * self.width,
                    quantised=product in self.quantised,
                )
            )
        return found

    def scores(self, forward: Forward) -> list[Operation]:
        """Attention over the cache, of all layers together."""
        attending = [(mixer, layers) for mixer, layers in self.mixers if not isinstance(mixer, Recurrent)]
        if not attending:
            return []

        def all_layers(of: Callable[..., Any], *more: Any) -> Any:
            return forward.sum(lambda part: sum(layers * of(mixer, part, *more) for mixer, layers in attending))

        queries = sum(layers * mixer.n_q * value_width(mixer) for mixer, layers in attending)
        return [
            Operation(
                what="scores",
                flops=all_layers(attention_flops),
                cache=all_layers(cache_read, self.kv) + all_layers(cache_written, self.kv),
                activations=2 * forward.tokens * queries * self.width,
            )
        ]

    def scans(self, forward: Forward) -> list[Operation]:
        if not self.recurrent:
            return []
        flops = sum(layers * scan_flops(mixer) for mixer, layers in self.mixers)
        state = forward.sum(lambda part: sum(state_traffic(block, part) for block in self.recurrent))
        return [Operation(what="scan", flops=forward.tokens * flops, cache=state)]


def value_width(mixer: Any) -> Any:
    """Elements of one head's output."""
    return getattr(mixer, "d_v", None) or mixer.d_head


def demand(
    whole: Architecture,
    rank: Architecture,
    precision: Precision,
    layout: Layout,
    stage: range,
    apart: frozenset[str] = frozenset(),
) -> Demand:
    """What one rank of a stage does; `apart` are the tensors listed apart that run too (a draft layer's)."""
    whole, rank = unrolled(whole), unrolled(rank)
    pieces = stored(whole, precision, rank)
    weights = weight_bytes(rank, pieces, stage, apart)
    blocks = blocks_within(rank, stage)
    mixers: dict[Mixer, int] = {}
    for block in blocks:
        for mixer in block.mixers:
            mixers[mixer] = mixers.get(mixer, 0) + len(block.runs_in)
    table = next(piece for piece in pieces if piece.tensor.component == "embedding")
    return Demand(
        flops=product_flops(rank, stage, apart),
        weights=weights,
        elements=row_elements(rank, stage, apart),
        quantised=quantised(rank, pieces),
        mixers=tuple(mixers.items()),
        recurrent=tuple(block for block in blocks if any(isinstance(mixer, Recurrent) for mixer in block.mixers)),
        routing=routing(whole, layout),
        layers=len(stage),
        hidden=rank.hidden,
        table_row=table.nbytes / table.tensor.shape[0],
        tied_head=table.nbytes if whole.tied and stage.stop == whole.num_layers else 0,
        kv=precision.kv,
        width=precision.activation_bytes,
    )


def quantised(rank: Architecture, pieces: Iterable[Piece]) -> frozenset[Product]:
    """The products most of whose weights are stored in fewer than 16 bits."""
    narrow: dict[Product, int] = {}
    for piece in pieces:
        if is_multiplied(piece.tensor):
            product = product_of(rank, piece.tensor)
            sign = 1 if piece.form.bits < 16 else -1
            narrow[product] = narrow.get(product, 0) + sign * piece.tensor.parameters
    return frozenset(product for product, balance in narrow.items() if balance > 0)


def routing(whole: Architecture, layout: Layout) -> Routing | None:
    """Of the first layer with routed experts; all have as many."""
    sparse = [block.ffn for block in whole.all_blocks if isinstance(block.ffn, MoE)]
    if not sparse:
        return None
    slices = layout.tp * layout.dp // layout.ep
    return Routing(sparse[0].n_experts, sparse[0].top_k, slices / layout.tp, layout.dp)
