"""GGUF files: block formats, and the mixes that llama.cpp makes of them.

A mix such as Q4_K_M names a base type; which matrices get another one is decided by role and layer, as in llama.cpp's
`src/llama-quant.cpp` (0c1e57098), run without options. An importance matrix is taken for granted with the mixes that
can't be made without.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from calc.errors import Frozen
from calc.formats.format_names import WeightFormat
from calc.formats.ggml import TYPES as GGML
from calc.formats.table import Format

Role = Literal["embedding", "output", "q", "k", "v", "o", "down", "up", "gate", "other"]
Where = Callable[[int, int], bool]  # of layer i among n


def block_type(name: str, block: int, nbytes: int) -> Format:
    """`nbytes` for each block of a row: the weights, whose bits the name says, and their scales and minima."""
    bits = int("".join(filter(str.isdigit, name.partition("_")[0])))
    scales = 8 * nbytes - bits * block
    return Format(bits=bits, block=(1, block), scale_bits=scales, source="ggml, ggml-common.h", name=name)


MIX_TYPES = {
    name: block_type(name, block, nbytes)
    for name, block, nbytes in GGML.values()
    if name[0] in "BFMQ" or name[:2] == "IQ"
}
NARROW = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""Fallback in blocks of 32 where a row does not divide into blocks of 256; for the IQ types, IQ4_NL."""


def early(share: int) -> Where:
    """The first of so many equal shares of the layers: 8 means the first eighth."""
    return lambda i, n: i < n // share


def first(count: int) -> Where:
    """So many layers from the first on."""
    return lambda i, n: i < count


def more_bits(i: int, n: int) -> bool:
    """The first and the last eighth, and every third layer between: llama.cpp's `use_more_bits`."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def middle(i: int, n: int) -> bool:
    """All but the first and the last eighth."""
    return n // 8 <= i < 7 * n // 8


def always(i: int, n: int) -> bool:
    return True


class MixStep(NamedTuple):
    """Another type than the base, in some layers."""

    type: str
    where: Where = always


class Mix(NamedTuple):
    """The type of each role; None: the base. `v` counts among the tensors of its role, as `down`, `up` and `gate` do in
    a model without experts; with them these count layers."""

    base: str
    output: str = "Q6_K"
    embedding: str | None = None
    q: str | None = None
    k: str | None = None
    v: tuple[MixStep, ...] = ()
    v_grouped: str | None = None  # where at least four query heads share a KV head
    o: str | None = None
    down: tuple[MixStep, ...] = ()
    down_plain: tuple[MixStep, ...] = ()  # where there is no importance matrix
    down_weighed: tuple[MixStep, ...] = ()  # where there is one
    up: tuple[MixStep, ...] = ()  # with the gate
    of_eight: tuple[str | None, str, str] = (None, "Q8_0", "Q8_0")  # o, k and v of a model with eight experts


O_OF_EIGHT = ("Q5_K", "Q8_0", "Q8_0")


def tiny(base: str, embedding: str, better: str, o: str | None = None) -> Mix:
    """A mix of one or two bits: a better type for values and the first eighth of the down-projections."""
    return Mix(
        base,
        output="Q5_K",
        embedding=embedding,
        v=(MixStep(better),),
        v_grouped="Q4_K",
        o=o,
        down=(MixStep(better, early(8)),),
        of_eight=OF_EIGHT_TINY,
    )


OF_EIGHT_TINY = ("Q5_K", "Q4_K", "Q4_K")
MIXES: dict[WeightFormat, Mix] = {
    "Q8_0": Mix("Q8_0", output="Q8_0"),
    "Q6_K": Mix("Q6_K"),
    "Q5_K_M": Mix("Q5_K", v=(MixStep("Q6_K", more_bits),), down=(MixStep("Q6_K", more_bits),)),
    "Q5_K_S": Mix("Q5_K"),
    "Q5_1": Mix("Q5_1"),
    "Q5_0": Mix("Q5_0", down_weighed=(MixStep("Q5_1", early(8)),)),
    "Q4_K_M": Mix("Q4_K", v=(MixStep("Q6_K", more_bits),), down=(MixStep("Q6_K", more_bits),), of_eight=O_OF_EIGHT),
    "Q4_K_S": Mix("Q4_K", v=(MixStep("Q5_K", first(4)),), down=(MixStep("Q5_K", early(8)),), of_eight=O_OF_EIGHT),
    "Q4_1": Mix("Q4_1"),
    "Q4_0": Mix("Q4_0", down_weighed=(MixStep("Q4_1", early(8)),)),
    "IQ4_NL": Mix("IQ4_NL", v_grouped="Q5_K", down_plain=(MixStep("Q5_K", early(8)),), of_eight=O_OF_EIGHT),
    "IQ4_XS": Mix("IQ4_XS", v_grouped="Q5_K", down_plain=(MixStep("Q5_K", early(8)),), of_eight=O_OF_EIGHT),
    "Q3_K_L": Mix("Q3_K", v=(MixStep("Q5_K"),), o="Q5_K", down=(MixStep("Q5_K"),)),
    "Q3_K_M": Mix(
        "Q3_K",
        v=(MixStep("Q5_K", first(2)), MixStep("Q4_K")),
        o="Q4_K",
        down=(MixStep("Q5_K", early(16)), MixStep("Q4_K")),
        of_eight=O_OF_EIGHT,
    ),
    "Q3_K_S": Mix("Q3_K", of_eight=O_OF_EIGHT),
    "IQ3_M": Mix("IQ3_S", v=(MixStep("Q4_K"),), o="Q4_K", down=(MixStep("Q4_K", early(8)),), of_eight=O_OF_EIGHT),
    "IQ3_S": Mix("IQ3_S", v_grouped="Q4_K", of_eight=O_OF_EIGHT),
    "IQ3_XS": Mix(
        "IQ3_S", q="IQ3_XXS", k="IQ3_XXS", v_grouped="Q4_K", up=(MixStep("IQ3_XXS", middle),), of_eight=O_OF_EIGHT
    ),
    "IQ3_XXS": Mix(
        "IQ3_XXS",
        output="Q5_K",
        embedding="IQ3_S",
        q="IQ2_S",
        k="IQ2_S",
        v_grouped="Q4_K",
        o="IQ3_S",
        of_eight=O_OF_EIGHT,
    ),
    "Q2_K": Mix("Q2_K", v=(MixStep("Q3_K"),), v_grouped="Q4_K", o="Q3_K", down=(MixStep("Q3_K"),), of_eight=O_OF_EIGHT),
    "Q2_K_S": Mix("Q2_K", v_grouped="Q4_K", down=(MixStep("Q4_K", early(8)),)),
    "IQ2_M": tiny("IQ2_S", "IQ3_S", "IQ3_S", o="IQ3_S"),
    "IQ2_S": tiny("IQ2_XS", "IQ3_S", "IQ3_S", o="IQ3_S"),
    "IQ2_XS": tiny("IQ2_XS", "Q2_K", "Q2_K"),
    "IQ2_XXS": tiny("IQ2_XXS", "Q2_K", "Q2_K"),
    "IQ1_M": tiny("IQ1_M", "Q2_K", "Q2_K", o="IQ2_XXS"),
    "IQ1_S": tiny("IQ1_S", "Q2_K", "Q2_K", o="IQ2_XXS"),
}
FALCON: dict[WeightFormat, Mix] = {
    name: mix._replace(output="Q8_0", o=mix.o if mix.of_eight == OF_EIGHT_TINY else None) for name, mix in MIXES.items()
}
"""Types of Falcon's tensors, which has rules of its own."""
FALCON |= {
    "Q3_K_M": FALCON["Q3_K_M"]._replace(down=(MixStep("Q5_K", early(16)), MixStep("Q4_K", more_bits))),
    "Q3_K_L": FALCON["Q3_K_L"]._replace(o="Q4_K", down=(MixStep("Q4_K"),)),
    "Q4_K_M": FALCON["Q4_K_M"]._replace(down=(MixStep("Q6_K", early(16)), MixStep("Q5_K", more_bits))),
    "Q4_K_S": FALCON["Q4_K_S"]._replace(down=()),
}
ENDS: dict[str, Role] = {
    "output.weight": "output",
    "token_embd.weight": "embedding",
    "per_layer_token_embd.weight": "embedding",
}
ROLES: dict[str, Role] = {
    "attn_qkv.weight": "v",
    "attn_kv_b.weight": "v",
    "attn_v.weight": "v",
    "attn_k.weight": "k",
    "attn_q.weight": "q",
    "attn_output.weight": "o",
    "ffn_up": "up",
    "ffn_gate": "gate",
    "ffn_down": "down",
}
"""Role of a tensor in the rules: by its name outside the layers, by a part of it within."""
ROLES_BY_PLACE: tuple[Role, ...] = ("v", "down", "up", "gate")
"""Roles whose type depends on the place."""


def role_of(name: str) -> Role:
    """Role of a tensor, by its name in the file."""
    if name in ENDS:
        return ENDS[name]
    return next((role for part, role in ROLES.items() if part in name), "other")


class ModelSizes(Frozen):
    """Properties of a model that the rules use."""

    layers: int
    values: int  # tensors that are taken for values
    group: int  # query heads of a KV head, in the first layer
    experts: int = 0
    falcon: bool = False
    of_70b: bool = False  # one of the families that have a model of 80 layers with grouped values


def types_of(
    mix: WeightFormat, role: Role, places: Sequence[int], sizes: ModelSizes, *, imatrix: bool = False
) -> list[str]:
    """Type of each tensor of a role [places], by its number among them or by its layer; `Mix` says which."""
    rules, eight = rules_of(mix, sizes), sizes.experts == 8
    tiny = rules.of_eight == OF_EIGHT_TINY
    if role in ROLES_BY_PLACE:
        if role == "v" and eight and not tiny:
            return [rules.of_eight[2]] * len(places)
        count, steps = sizes.values if role == "v" else sizes.layers, steps_of(mix, role, sizes, imatrix=imatrix)
        chosen = [next((step.type for step in steps if step.where(i, count)), rules.base) for i in places]
        if role == "v" and sizes.of_70b and not tiny:  # the values of a 70B model are small
            return ["Q5_K" if form in ("Q3_K", "Q4_K") else form for form in chosen]
        return chosen
    if eight and role in ("o", "k"):
        return [rules.of_eight[role == "k"] or rules.base] * len(places)
    plain = {"embedding": rules.embedding, "output": rules.output, "q": rules.q, "k": rules.k, "o": rules.o}
    return [plain.get(role) or rules.base] * len(places)


def rules_of(mix: WeightFormat, sizes: ModelSizes) -> Mix:
    """The mix as llama.cpp makes it of this model: Falcon has types of its own."""
    return (FALCON if sizes.falcon else MIXES)[mix]


def steps_of(mix: WeightFormat, role: Role, sizes: ModelSizes, *, imatrix: bool = False) -> tuple[MixStep, ...]:
    """Types that replace the base for a role whose type depends on its layer; the first rule that holds decides."""
    rules, eight = rules_of(mix, sizes), sizes.experts == 8
    if role == "v":
        tiny = rules.of_eight == OF_EIGHT_TINY
        grouped = rules.v_grouped and (sizes.group >= 4 or (tiny and sizes.experts >= 4))
        return (MixStep(rules.v_grouped),) if rules.v_grouped and grouped else rules.v
    steps = rules.up if role != "down" else rules.down + (rules.down_weighed if imatrix else rules.down_plain)
    if eight and mix == "IQ3_M" and role == "down":
        steps = (*steps, MixStep("Q4_K", more_bits))
    return steps


def fitted(name: str, columns: int) -> Format:
    """The type of this name, or its fallback where rows of so many columns do not divide into its blocks."""
    candidates = (MIX_TYPES[tried] for tried in (name, NARROW.get(name, "IQ4_NL" if name[:2] == "IQ" else name), "F16"))
    return next(form for form in candidates if columns % (form.block[1] or 1) == 0)
