"""How each time comes about: the FLOPs and bytes of every operation as formulas, by the same functions on symbols, and
the roofline that makes seconds of them."""

from typing import Any

from calc.errors import Frozen
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.model.derivation import Step, Symbols
from calc.model.mixers import Recurrent
from calc.time.flops import Product, pair_flops, product_flops, unrolled
from calc.time.forward import Forward
from calc.time.operations import Demand, Operation, of_all_layers
from calc.time.roofline import Machine, timed

ROWS: dict[Product, str] = {"lm_head": "logits", "experts_routed": "rows", "latents": "latent_rows"}
"""The symbol of the rows that go through a product; of all others the tokens of the pass."""


class OperationSteps(Frozen):
    """One operation: its FLOPs, the cache that it reads, and its time."""

    flops: Step
    cache: Step | None
    time: Step  # in nanoseconds


class PassDerivation(Frozen):
    legend: dict[str, tuple[str, int | float]]
    operations: tuple[OperationSteps, ...]


def derive_pass(rank: Architecture, stage: range, demand: Demand, forward: Forward, on: Machine) -> PassDerivation:
    """The products and the attention of a pass on one rank of a stage."""
    symbols = Symbols()
    rank = unrolled(rank)
    formulas = symbols.apply(rank)
    flops = product_flops(formulas, stage)
    steps = []
    for operation in demand.operations(forward):
        if operation.what in flops:
            product: Product = operation.what
            rows = demand.rows(product, forward)
            formula = symbols.of(ROWS.get(product, "step_tokens"), round(rows)) * flops[product]
            steps.append(steps_of(symbols, operation, formula, None, on))
        elif operation.what == "scores":
            formula = attention_formula(symbols, rank, formulas, stage, forward)
            steps.append(steps_of(symbols, operation, formula, cache_step(demand, forward), on))
    return PassDerivation(legend=symbols.occurring(), operations=tuple(steps))


def attention_formula(symbols: Symbols, rank: Architecture, formulas: Any, stage: range, forward: Forward) -> Any:
    """FLOPs over all query-key pairs."""
    (part,) = forward.parts

    def attending(architecture: Architecture) -> list[tuple[Any, int]]:
        return [
            (mixer, len(block.layers))
            for block in blocks_within(architecture, stage)
            for mixer in block.mixers
            if not isinstance(mixer, Recurrent)
        ]

    def flops(mixer: Any) -> Any:
        return pair_flops(mixer, absorbed=part.decodes)

    backs = of_all_layers(attending(rank), flops)
    pairs = sum(
        symbols.of("pairs", int(part.pairs(back))) * each
        for back, each in zip(backs, of_all_layers(attending(formulas), flops).values(), strict=True)
    )
    return pairs


def cache_step(demand: Demand, forward: Forward) -> Step:
    """Bytes of cache that attention reads: the bits of a token, which the derivation of memory has, times the tokens
    that a layer looks back on."""
    (part,) = forward.parts
    terms = [(int(part.context(back)), float(bits)) for back, bits in demand.read.items()]
    return Step(
        what="scores",
        formula="tokens read · bits of a token / 8",
        values="(" + " + ".join(f"{tokens:,} · {bits:,.0f}" for tokens, bits in terms) + ") / 8",
        result=round(sum(tokens * bits for tokens, bits in terms) / 8),
        unit="bytes read",
    )


def steps_of(symbols: Symbols, operation: Operation, flops: Any, cache: Step | None, on: Machine) -> OperationSteps:
    """The lines of one operation."""
    formula, values = symbols.written(flops)
    what, part = operation.what, timed(operation, on)
    return OperationSteps(
        flops=Step(what=what, formula=formula, values=values, result=round(operation.flops), unit="FLOPs"),
        cache=cache,
        time=Step(
            what=what,
            formula="max(FLOPs / (peak · share), bytes / (bandwidth · share))",
            values=f"max({1e6 * part.compute:,.1f} µs, {1e6 * part.memory:,.1f} µs)",
            result=round(1e9 * part.seconds),
            unit="ns",
        ),
    )
