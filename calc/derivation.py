"""How each number comes about. The formulas are not written here: the classes' own arithmetic runs on SymPy symbols."""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from calc.activations import layer_elements
from calc.architecture import Architecture, Block
from calc.attention import BlockIndexer, LightningIndexer
from calc.feedforward import MLP
from calc.frozen import Frozen
from calc.inference import Memory
from calc.precision import FORMATS, Precision
from calc.tensor import Component, Tensor
from calc.workload import Workload

SYMBOLS = {  # field of the formulas -> symbol, and what configs call it
    "hidden": ("h", "hidden_size"),
    "vocab": ("V", "vocab_size"),
    "positions": ("P", "rows of the position table"),
    "n_q": ("n_q", "num_attention_heads"),
    "n_kv": ("n_kv", "num_key_value_heads"),
    "d_head": ("d_head", "head_dim"),
    "q_rank": ("r_q", "q_lora_rank"),
    "kv_rank": ("r_kv", "kv_lora_rank"),
    "d_nope": ("d_nope", "qk_nope_head_dim"),
    "d_rope": ("d_rope", "qk_rope_head_dim"),
    "d_v": ("d_v", "v_head_dim"),
    "d_embedding": ("h_e", "word_embed_proj_dim"),
    "d_in": ("h_in", "width of the input"),
    "indexer.n_index": ("n_i", "heads of the indexer"),
    "indexer.d_index": ("d_i", "head width of the indexer"),
    "o_groups": ("g_o", "o_groups"),
    "group_heads": ("n_g", "query heads of an output group"),
    "o_rank": ("r_o", "o_lora_rank"),
    "rate": ("m", "tokens of a compressed entry"),
    "n_index": ("n_i", "heads of the indexer"),
    "d_index": ("d_i", "head width of the indexer"),
    "d_inner": ("d_inner", "inner width"),
    "d_state": ("d_state", "state size"),
    "d_conv": ("d_conv", "convolution width"),
    "dt_rank": ("r_dt", "time step rank"),
    "n_heads": ("n_m", "heads of the recurrent mixer"),
    "n_groups": ("g", "groups"),
    "n_k": ("n_k", "linear_num_key_heads"),
    "n_v": ("n_v", "linear_num_value_heads"),
    "d_k": ("d_k", "linear_key_head_dim"),
    "n_blocks": ("n_b", "blocks of the gates"),
    "d_block": ("d_b", "width of a block"),
    "n_zero": ("E_0", "experts that compute nothing"),
    "latent": ("h_l", "moe_latent_size"),
    "beside.intermediate": ("f_b", "width of the dense MLP beside the experts"),
    "intermediate": ("f", "intermediate_size"),
    "expert.intermediate": ("f_e", "width of one routed expert"),
    "shared.intermediate": ("f_s", "width of the shared experts together"),
    "n_experts": ("E", "routed experts"),
    "top_k": ("K", "num_experts_per_tok"),
}


class Step(Frozen):
    """One line of a derivation."""

    what: str
    formula: str
    values: str
    result: int


class Derivation(Frozen):
    legend: dict[str, tuple[str, int]]  # symbol -> what configs call it, value
    tensors: tuple[Step, ...]  # elements of one occurrence of each of `Architecture.tensors()`, in its order
    parameters: tuple[Step, ...]  # they sum to the total
    cache: tuple[Step, ...]  # elements a token and layer, times the layers: they sum to one token's


class Symbols:
    """Symbols for the sizes of an architecture: one for each field, more where layers differ in it."""

    def __init__(self) -> None:
        self.legend: dict[str, tuple[str, int]] = {}

    def of(self, field: str, value: int) -> Any:
        from sympy import Symbol

        stem, meaning = SYMBOLS[field]
        name, number = stem, 1
        while name in self.legend and self.legend[name][1] != value:
            number += 1
            name = f"{stem}_{number}"
        self.legend[name] = (meaning, value)
        return Symbol(name, positive=True, integer=True)

    def apply(self, model: Frozen, prefix: str = "") -> Any:
        """The same model with symbols for its sizes."""
        values: dict[str, Any] = {}
        for field, value in model:
            if isinstance(value, MLP | LightningIndexer | BlockIndexer):
                values[field] = self.apply(value, f"{field}.")
            elif isinstance(value, int) and not isinstance(value, bool) and prefix + field in SYMBOLS and value:
                values[field] = self.of(prefix + field, value)
            else:
                values[field] = value
        return type(model).model_construct(**values)

    def block(self, block: Block) -> Block:
        mixers = tuple(self.apply(mixer) for mixer in block.mixers)
        return block.model_copy(update={"mixers": mixers, "ffn": None if block.ffn is None else self.apply(block.ffn)})

    def written(self, expression: Any) -> tuple[str, str]:
        """A formula as people write it, and the same with the values filled in."""
        from sympy.printing.str import StrPrinter

        class Printer(StrPrinter):  # type: ignore[misc]
            values: Mapping[str, tuple[str, int]] = {}

            def _print_Symbol(self, expr: Any) -> str:
                return str(self.values[expr.name][1]) if self.values else str(expr.name)

            def _print_Pow(self, expr: Any, rational: bool = False) -> str:
                return f"{self._print(expr.base)}²" if expr.exp == 2 else super()._print_Pow(expr, rational)

        plain, filled = Printer(), Printer()
        filled.values = self.legend
        return plain.doprint(expression).replace("*", "·"), filled.doprint(expression).replace("*", "·")


def derive(architecture: Architecture) -> Derivation:
    """Formulas and values of every tensor, of the total, and of the cache."""
    symbols = Symbols()
    symbolic = symbols.apply(architecture)
    symbolic = symbolic.model_copy(
        update={
            "blocks": tuple(symbols.block(block) for block in architecture.blocks),
            "shared": tuple(symbols.block(block) for block in architecture.shared),
            "prediction": tuple(
                module.model_copy(update={"block": symbols.block(module.block)}) for module in architecture.prediction
            ),
        }
    )
    pairs = list(zip(architecture.tensors(), symbolic.tensors(), strict=True))
    return Derivation(
        tensors=tuple(_shape_step(symbols, tensor, formula) for tensor, formula in pairs),
        parameters=tuple(_parameter_steps(symbols, pairs)),
        cache=tuple(_cache_steps(symbols, architecture, symbolic)),
        legend=symbols.legend,
    )


def _shape_step(symbols: Symbols, tensor: Tensor, formula: Tensor) -> Step:
    plain, filled = zip(*(symbols.written(side) for side in formula.shape), strict=True)
    return Step(what=tensor.name, formula=_times(plain), values=_times(filled), result=tensor.numel)


def _times(sides: Iterable[str]) -> str:
    sides = tuple(sides)
    return " × ".join(f"({side})" if " + " in side and len(sides) > 1 else side for side in sides)


def _parameter_steps(symbols: Symbols, pairs: list[tuple[Tensor, Tensor]]) -> list[Step]:
    """One step for each component, or more where layers differ in it."""
    groups: dict[tuple[Component, tuple[int, ...]], list[tuple[Tensor, Tensor]]] = {}
    for tensor, formula in pairs:
        if tensor.apart is None:
            groups.setdefault((tensor.component, tensor.layers), []).append((tensor, formula))
    alike: dict[tuple[Component, bool, str, str], tuple[int, int]] = {}  # layers that share a formula, their parameters
    for (component, layers), members in groups.items():
        one = sum(
            prod(formula.shape) * (formula.experts if "{expert}" in tensor.name else 1) for tensor, formula in members
        )
        key = (component, bool(layers), *symbols.written(one))
        seen, parameters = alike.get(key, (0, 0))
        alike[key] = (seen + len(layers), parameters + sum(tensor.parameters for tensor, _ in members))
    return [
        Step(
            what=component,
            formula=f"{layers} layers · ({text})" if layers else text,
            values=f"{layers} · ({values})" if layers else values,
            result=parameters,
        )
        for (component, _, text, values), (layers, parameters) in alike.items()
    ]


def _cache_steps(symbols: Symbols, architecture: Architecture, symbolic: Architecture) -> list[Step]:
    """One step for each window and formula; None, the whole context, is a window too."""
    alike: dict[tuple[int | None, str, str], tuple[int, int]] = {}
    blocks = (*architecture.blocks, *architecture.shared)
    for block, symbolic_block in zip(blocks, (*symbolic.blocks, *symbolic.shared), strict=True):
        for mixer, formula in zip(block.mixers, symbolic_block.mixers, strict=True):
            if not mixer.cached_elements():
                continue
            key = (mixer.window, *symbols.written(formula.cached_elements()))
            layers, elements = alike.get(key, (0, 0))
            more = len(block.places or block.layers)
            alike[key] = (layers + more, elements + more * mixer.cached_elements())
    return [
        Step(
            what="whole context" if window is None else f"last {window:,} tokens",
            formula=f"{layers} layers · ({text})",
            values=f"{layers} · ({values})",
            result=elements,
        )
        for (window, text, values), (layers, elements) in alike.items()
    ]


def memory_steps(
    architecture: Architecture, memory: Memory, workload: Workload, precision: Precision, per_token: int, window: int
) -> list[Step]:
    """Bytes on one unshared GPU."""
    batch, context, tokens = workload.batch, workload.context, workload.step_tokens
    form = FORMATS[precision.weights]
    elements = max(
        layer_elements(block, architecture.hidden, workload) for block in (*architecture.blocks, *architecture.shared)
    )
    return [
        Step(
            what="weights",
            formula="parameters · bits / 8 + scales",
            values=f"{architecture.parameters().total:,} · {form.bits} / 8, the unquantised at 16 bits"
            if form.scale_bits
            else f"{architecture.parameters().total:,} · {form.bits} / 8",
            result=memory.weights,
        ),
        Step(
            what="kv_cache",
            formula="batch · (context · bytes a token + windows)",
            values=f"{batch:,} · ({context:,} · {per_token:,} + {window:,})",
            result=memory.kv_cache,
        ),
        Step(
            what="activations",
            formula="tokens of a pass · elements a token in the fullest layer · bytes",
            values=f"{tokens:,} · {elements:,} · {precision.activation_bytes}",
            result=memory.activations,
        ),
        Step(
            what="overhead",
            formula="middle of (low, high)",
            values=f"({memory.overhead_low:,} + {memory.overhead_high:,}) / 2",
            result=memory.overhead,
        ),
    ]
