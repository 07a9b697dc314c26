"""Derivation of each number. The formulas are not written here: the classes' own arithmetic runs on SymPy symbols."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from calc.errors import Frozen, Message
from calc.model.architecture import Architecture
from calc.model.attention import BlockIndexer
from calc.model.block import Block, PredictionModule
from calc.model.feedforward import MLP, MoE
from calc.model.formula import (
    Formula,
    ceiling,
    floor,
    layer_count,
    minus,
    number,
    operand,
    power,
    product,
    quotient,
    repeated,
    sides,
    total,
)
from calc.model.mixers import Mixer
from calc.model.mla import LightningIndexer
from calc.model.tensor import Component, Tensor

Legend = Mapping[str, tuple[str, int | float]]
"""Symbol -> what configs call it, and its value."""

SYMBOLS = {  # field of the formulas -> symbol, and what configs call it; factors are written in this order
    "n_experts": ("E", "routed experts"),
    "chosen": ("K", "num_experts_per_tok"),
    "top_k": ("K", "num_experts_per_tok"),
    "n_zero": ("E_0", "experts that compute nothing"),
    "vocab": ("V", "vocab_size"),
    "positions": ("P", "rows of the position table"),
    "o_groups": ("g_o", "o_groups"),
    "group_heads": ("n_g", "query heads of an output group"),
    "n_q": ("n_q", "num_attention_heads"),
    "n_kv": ("n_kv", "num_key_value_heads"),
    "d_head": ("d_head", "head_dim"),
    "o_rank": ("r_o", "o_lora_rank"),
    "q_rank": ("r_q", "q_lora_rank"),
    "kv_rank": ("r_kv", "kv_lora_rank"),
    "d_nope": ("d_nope", "qk_nope_head_dim"),
    "d_rope": ("d_rope", "qk_rope_head_dim"),
    "d_v": ("d_v", "v_head_dim"),
    "indexer.n_index": ("n_i", "heads of the indexer"),
    "indexer.d_index": ("d_i", "head width of the indexer"),
    "n_index": ("n_i", "heads of the indexer"),
    "d_index": ("d_i", "head width of the indexer"),
    "rate": ("m", "tokens of a compressed entry"),
    "n_groups": ("g", "groups"),
    "n_heads": ("n_m", "heads of the recurrent mixer"),
    "n_heads.d_head": ("d_m", "head width of the recurrent mixer"),
    "n_k": ("n_k", "linear_num_key_heads"),
    "n_v": ("n_v", "linear_num_value_heads"),
    "d_k": ("d_k", "linear_key_head_dim"),
    "n_v.d_v": ("d_lv", "linear_value_head_dim"),
    "n_blocks": ("n_b", "blocks of the gates"),
    "d_block": ("d_b", "width of a block"),
    "d_inner": ("d_inner", "inner width"),
    "d_state": ("d_state", "state size"),
    "d_conv": ("d_conv", "convolution width"),
    "dt_rank": ("r_dt", "time step rank"),
    "intermediate": ("f", "intermediate_size"),
    "expert.intermediate": ("f_e", "width of one routed expert"),
    "shared.intermediate": ("f_s", "width of the shared experts together"),
    "parallel_mlp.intermediate": ("f_b", "width of the dense MLP beside the experts"),
    "latent": ("h_l", "moe_latent_size"),
    "d_embedding": ("h_e", "word_embed_proj_dim"),
    "d_in": ("h_in", "width of the input"),
    "hidden": ("h", "hidden_size"),
    "batch": ("B", "concurrent sequences"),
    "sequences": ("R", "sequences at once (max_num_seqs)"),
    "sequence": ("S", "tokens of a sequence"),
    "tokens": ("T", "tokens of a micro-batch on one GPU"),
    "step_tokens": ("T", "tokens of a forward pass"),
    "encoder_bytes": ("E", "bytes kept of images"),
    "rows": ("T_x", "tokens times the experts of each, on one GPU"),
    "logits": ("T_l", "tokens whose logits are computed"),
    "latent_rows": ("T_c", "tokens whose keys and values are made of latents"),
    "pairs": ("P_qk", "query-key pairs"),
    "cached": ("N", "tokens whose keys and values are read"),
    "chunks": ("n_c", "chunks that recurrent layers cut the sequences of a micro-batch into"),
    "micro_batch": ("B", "sequences of a micro-batch"),
    "followed_chunks": ("n_f", "those of them that are not the last of their sequence"),
    "logit_tokens": ("T_l", "tokens of a micro-batch whose logits are made whole"),
    "scored_tokens": ("N_s", "tokens of a micro-batch whose log-probabilities are made"),
    "scored_row": ("n_s", "scored tokens of one sequence"),
    "tile_tokens": ("m", "scored tokens of one tile of logits"),
    "stream_tokens": ("T_s", "of them, those of one tensor-parallel rank where the model is divided along the tokens"),
    "lora_rank": ("r", "rank of the adapters"),
}
STEMS = tuple(dict.fromkeys(stem for stem, _ in SYMBOLS.values()))
ROUNDED = {"floor": floor, "ceiling": ceiling}
PARTS = (Block, PredictionModule, MoE, MLP, LightningIndexer, BlockIndexer, *get_args(Mixer))
"""Classes whose sizes become symbols. A vision encoder and a family's extra weights stay numbers."""


class Step(Frozen):
    """One line of a derivation."""

    what: str | Message
    """A component, a part of memory, or what else it is called; a tensor by its checkpoint name."""
    formula: Formula | None = None
    values: Formula | None = None
    result: int
    unit: str = "parameters"


class Derivation(Frozen):
    legend: Legend  # of the symbols that occur
    tensors: tuple[Step, ...]  # elements of one occurrence of each of `Architecture.tensors()`, in its order
    parameters: tuple[Step, ...]  # they sum to the total
    active: tuple[Step, ...]  # they sum to the active ones
    cache: tuple[Step, ...]  # elements a token and layer, times the layers: they sum to one token's


class Numbers:
    """Sizes as they are: what `Symbols` does with names."""

    def of(self, field: str, value: int) -> Any:
        return value

    def apply(self, model: Any) -> Any:
        return model


NUMBERS = Numbers()


class Symbols(Numbers):
    """Symbols for the sizes of an architecture: one for each field, more where layers differ in it."""

    def __init__(self) -> None:
        self.legend: dict[str, tuple[Any, Any]] = {}
        self.rank: dict[str, tuple[int, int]] = {}  # where a symbol stands in a product
        self.written_so_far: dict[Any, tuple[Formula, Formula]] = {}
        self.used: set[str] = set()

    def of(self, field: str, value: int) -> Any:
        """The symbol of a field: f, then f_2 where another layer has another width."""
        from sympy import Symbol

        stem, meaning = SYMBOLS[field]
        name, number = stem, 1
        while self.legend.get(name, (meaning, value)) != (meaning, value):
            number += 1
            name = f"{stem}_{number}"
        self.legend[name] = (meaning, value)
        self.rank[name] = (STEMS.index(stem), number)
        return Symbol(name, positive=True, integer=True)

    def named(self, name: str, value: float, meaning: str | Message) -> Any:
        """A symbol for a figure that is no size of the model."""
        from sympy import Symbol

        self.legend[name] = (meaning, value)
        self.rank.setdefault(name, (len(STEMS), len(self.rank)))
        return Symbol(name, real=True)

    def line(self, what: str | Message, expression: Any, unit: str = "bytes") -> "Step":
        """One line of a derivation: the formula, the values filled in, and what they give."""
        from sympy import sympify

        formula, values = self.written(expression)
        sizes = {symbol: sympify(self.legend[symbol.name][1]) for symbol in expression.free_symbols}
        result = expression.xreplace(sizes)
        return Step(what=what, formula=formula, values=values, result=int(result), unit=unit)

    def apply(self, model: Frozen, prefix: str = "") -> Any:
        """A model whose sizes, and those of its parts, are symbols."""
        values: dict[str, Any] = {}
        fields = type(model).model_fields
        for field, value in model:
            if isinstance(value, PARTS):
                within = f"{field}."
                values[field] = self.apply(value, within if any(name.startswith(within) for name in SYMBOLS) else "")
            elif isinstance(value, tuple) and value and isinstance(value[0], PARTS):
                values[field] = tuple(self.apply(part) for part in value)
            elif isinstance(value, int) and not isinstance(value, bool) and value:
                # where the same word means another thing next to a sibling: the d_head that goes with n_heads
                qualified = [f"{other}.{field}" for other in fields if f"{other}.{field}" in SYMBOLS]
                name = qualified[0] if qualified else prefix + field
                values[field] = self.of(name, value) if name in SYMBOLS else value
            else:
                values[field] = value
        return type(model).model_construct(**values)

    def written(self, expression: Any) -> tuple[Formula, Formula]:
        """A formula as people write it, and the same with the values filled in."""
        if expression not in self.written_so_far:
            self.used |= {symbol.name for symbol in getattr(expression, "free_symbols", ())}
            self.written_so_far[expression] = (
                write(expression, operand, self.rank),
                write(expression, lambda name: number(self.legend[name][1]), self.rank),
            )
        return self.written_so_far[expression]

    def occurring(self) -> dict[str, tuple[Any, Any]]:
        """The legend of what was written."""
        return {name: row for name, row in self.legend.items() if name in self.used}


def write(expression: Any, leaf: Callable[[str], Formula], rank: Mapping[str, tuple[int, int]]) -> Formula:
    """A SymPy expression as people write it, each symbol as `leaf` says: 2·n_q·d_head·h + h², ⌊(d_head + d_i) / m⌋."""
    from sympy import fraction

    def place(part: Any) -> list[tuple[int, int]]:
        return sorted(rank[symbol.name] for symbol in part.free_symbols)

    def degree(part: Any) -> Any:
        """Matrices before biases and norms."""
        factors = part.args if part.is_Mul else (part,)
        return -sum(factor.exp if factor.is_Pow else int(not factor.is_Number) for factor in factors), place(part)

    def made(part: Any) -> Formula:
        if part.is_Symbol:
            return leaf(part.name)
        if part.is_Add:
            terms = sorted(part.args, key=lambda each: (each.could_extract_minus_sign(), degree(each)))
            return total(*(minus(made(-each)) if each.could_extract_minus_sign() else made(each) for each in terms))
        if part.is_Mul and part.args[0] == -1:
            return minus(made(-part))
        if part.is_Pow and (not part.exp.is_Number or (part.exp.is_Integer and part.exp > 1)):
            return power(made(part.base), made(part.exp))
        if part.is_Mul or part.is_Pow or part.is_Rational:
            above, below = fraction(part)
            if below != 1:
                return quotient(made(above), made(below))
            if not part.is_Mul:
                return number(part)
            factors = sorted(part.args, key=lambda factor: (not factor.is_Number, place(factor)))
            return product(*map(made, factors))
        if part.func.__name__ in ROUNDED:
            return ROUNDED[part.func.__name__](made(part.args[0]))
        raise TypeError(f"A formula holds {part.func.__name__}, which has no way of being written.")

    return number(expression) if isinstance(expression, int) else made(rounded_up(expression))


def rounded_up(expression: Any) -> Any:
    """The expression with ⌈x⌉ where whole numbers are rounded up by -(-x // n)."""
    import sympy

    def is_turned(part: Any) -> bool:
        return isinstance(part, sympy.floor) and bool(part.args[0].could_extract_minus_sign())

    if not expression.has(sympy.floor):
        return expression
    return expression.replace(is_turned, lambda part: -sympy.ceiling(-part.args[0]))


def derive(architecture: Architecture) -> Derivation:
    """Formulas and values of every tensor, of the totals, and of the cache."""
    symbols = Symbols()
    formulas = symbols.apply(architecture)
    pairs = list(zip(architecture.tensors(), formulas.tensors(), strict=True))
    return Derivation(
        tensors=tuple(_shape_step(symbols, tensor, formula) for tensor, formula in pairs),
        parameters=tuple(_parameter_steps(symbols, pairs, active=False)),
        active=tuple(_parameter_steps(symbols, pairs, active=True)),
        cache=tuple(step for _, step in window_steps(symbols, architecture, formulas)),
        legend=symbols.occurring(),
    )


def _shape_step(symbols: Symbols, tensor: Tensor, formula: Tensor) -> Step:
    plain, filled = zip(*(symbols.written(side) for side in formula.shape or (1,)), strict=True)
    return Step(what=tensor.name, formula=_shape(plain), values=_shape(filled), result=tensor.numel)


def _shape(lengths: tuple[Formula, ...]) -> Formula:
    return sides(*(Formula("group", (each,)) if len(lengths) > 1 and _has_sum(each) else each for each in lengths))


def _has_sum(formula: Formula) -> bool:
    return formula.kind == "sum" or any(map(_has_sum, formula.parts))


def _parameter_steps(symbols: Symbols, pairs: list[tuple[Tensor, Tensor]], *, active: bool) -> list[Step]:
    """One step for each component, or more where layers differ in it."""
    groups: dict[tuple[Component, tuple[int, ...]], list[tuple[Tensor, Tensor]]] = {}
    for tensor, formula in pairs:
        if tensor.excluded_as is None:
            groups.setdefault((tensor.component, tensor.layers), []).append((tensor, formula))
    sums: dict[
        tuple[Component, bool, Formula, Formula], tuple[int, int]
    ] = {}  # layers that share a formula, their parameters
    for (component, layers), members in groups.items():
        elements_each: Any = 0
        for _, formula in members:
            elements: Any = formula.layer_numel
            if active and formula.experts != 1:
                elements *= formula.top_k
                elements = elements // formula.experts if type(elements) is int else elements / formula.experts
            elements_each += elements
        key = (component, bool(layers), *symbols.written(elements_each))
        seen, parameters = sums.get(key, (0, 0))
        more = sum(tensor.active if active else tensor.parameters for tensor, _ in members)
        sums[key] = (seen + len(layers), parameters + more)
    return [
        Step(
            what=component,
            formula=repeated(layer_count(layers), formula) if layers else formula,
            values=repeated(layers, values) if layers else values,
            result=parameters,
        )
        for (component, _, formula, values), (layers, parameters) in sums.items()
    ]


def cached_elements(mixer: Any) -> tuple[Any, Any]:
    """Elements that a token leaves in the cache of a layer, and that it adds to compressed ones."""
    return mixer.cached_elements(), mixer.compressed_elements()


def window_steps(
    symbols: Symbols,
    architecture: Architecture,
    formulas: Architecture,
    cached: Callable[[Any], tuple[Any, Any]] = cached_elements,
) -> list[tuple[int | None, Step]]:
    """One step for each window and formula; None, the whole context, is a window too. `cached`: what a token leaves in
    a layer within its window, and for good."""
    sums: dict[tuple[int | None, Formula, Formula], tuple[int, int]] = {}

    def add(window: int | None, formula: Any, layers: int, elements: int) -> None:
        if elements:
            key = (window, *symbols.written(formula))
            seen, elements_all = sums.get(key, (0, 0))
            sums[key] = (seen + layers, elements_all + layers * elements)

    blocks = zip(architecture.all_blocks, formulas.all_blocks, strict=True)
    for block, symbolic_block in blocks:
        layers = len(block.cached_in)
        for mixer, formula in zip(block.mixers, symbolic_block.mixers, strict=True):
            for window, symbolic, elements in zip((mixer.window, None), cached(formula), cached(mixer), strict=True):
                add(window, symbolic, layers, elements)
    return [
        (
            window,
            Step(
                what=Message("whole context") if window is None else Message("last {n:,} tokens", n=window),
                formula=repeated(layer_count(layers), formula),
                values=repeated(layers, values),
                result=elements,
                unit="elements a token",
            ),
        )
        for (window, formula, values), (layers, elements) in sums.items()
    ]
