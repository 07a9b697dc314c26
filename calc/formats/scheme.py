"""Storage format of each tensor: which matrices are quantized, and which stay in 16 bits."""

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cached_property
from typing import NamedTuple

from calc.budget import spend
from calc.errors import Frozen
from calc.formats.table import FORMATS, Format
from calc.model.tensor import Component, Tensor

EXPERTS: frozenset[Component] = frozenset({"experts_routed"})
LINEARS: frozenset[Component] = EXPERTS | {"attention", "mlp", "experts_shared", "ssm_linear"}
EVERY_MODULE: frozenset[Component] = LINEARS | {"embedding", "router", "lm_head"}
"""Kinds of modules that MLX quantizes."""
ALWAYS_PLAIN = frozenset(
    {"weights_proj", "compressor", "shared_expert_gate", "x_proj", "dt_proj", "in_proj_a", "in_proj_b"}
)
"""Small matrices that no published checkpoint quantizes, by a module in their path: an indexer's weights, DeepSeek-V4's
compressors, gates of one row, Mamba's time step, a gated delta rule's decays."""
ROOTS = frozenset({"model", "language_model", "text_model"})
"""Words that wrappers put before `layers`, or leave out."""
MAX_PATTERN = 200
MAX_PATTERNS = 100  # each is tried on each weight of each layer; published checkpoints have six at most
NESTED = re.compile(r"[)\]}*+?]\s*[*+{]|\(\?[^:]|\\[1-9]")
REPEATED_GROUP = re.compile(r"[)*+?}]\s*[*+?{]|\(\?|\\[1-9]")
QUANTIFIER = re.compile(r"[*+?{]")
MAX_QUANTIFIERS = 3
DIGIT = re.compile(r"\d")


class Compiled(NamedTuple):
    """Names of modules, by how they are matched."""

    words: frozenset[str]
    beginnings: frozenset[str]  # of names that end in `*` and have no other
    lengths: tuple[int, ...]  # of these
    wildcards: dict[str, re.Pattern[str]]  # of the name, and of what lies in it
    regexes: tuple[re.Pattern[str], ...]


class ModuleNames(Frozen):
    """Modules by name: in words, with `*` for anything, or as a regular expression after `re:`.

    A name stands for the module and for what lies in it: `lm_head`, `mlp.gate`, `model.layers.*.self_attn`,
    `re:.*lm_head`. Checkpoints put different words before the layers, so a name may begin anywhere in the path; but one
    with a number does not mean a layer of multi-token prediction unless it says so (`mtp.layers.0*`).
    """

    names: tuple[str, ...] = ()

    def hold(self, tensor: str) -> bool:
        """Whether a weight lies in one of them."""
        if not self.names:
            return False
        module = tensor.removesuffix(".weight")
        path = without_root(module)
        prediction = next((i for i, part in enumerate(path) if part.startswith("mtp")), len(path))
        wrapped = (module, f"language_model.{module}", f"model.language_model.{'.'.join(path)}")
        return any(self._begin(path[at:], numbered=at <= prediction) for at in range(len(path))) or any(
            regex.match(name) for regex in self._compiled.regexes for name in wrapped
        )

    def _begin(self, path: list[str], *, numbered: bool) -> bool:
        """Whether a path begins with one of the names; with one that has a number only where that may be meant."""
        names, tail = self._compiled, ".".join(path)
        named = {".".join(path[:end]) for end in range(1, len(path) + 1)} & names.words
        named |= {tail[:length] for length in names.lengths} & names.beginnings
        named |= {wild for wild, pattern in names.wildcards.items() if pattern.match(tail)}
        return any(numbered or not DIGIT.search(name) for name in named)

    @cached_property
    def _compiled(self) -> Compiled:
        names = [".".join(without_root(name.removesuffix(".weight"))) for name in self.names if name[:3] != "re:"]
        beginnings = frozenset(name[:-1] for name in names if name.find("*") == len(name) - 1)
        return Compiled(
            words=frozenset(name for name in names if "*" not in name),
            beginnings=beginnings,
            lengths=tuple({len(name) for name in beginnings}),
            wildcards={n: re.compile(f"{translate(n)}|{translate(f'{n}.*')}") for n in names if "*" in n[:-1]},
            regexes=tuple(re.compile(name[3:]) for name in self.names if name[:3] == "re:"),
        )

    @property
    def numbered(self) -> bool:
        """Whether any name has a number, so that layers may differ."""
        return any(DIGIT.search(name) for name in self.names)


class Rule(Frozen):
    """A format, and the matrices that have it: those of some modules, or where none is named those of components."""

    form: Format
    modules: ModuleNames = ModuleNames()
    components: frozenset[Component] = LINEARS


class Scheme(Frozen):
    """Storage of a checkpoint. The first rule that a matrix meets decides; one that meets none stays in 16 bits."""

    rules: tuple[Rule, ...]
    skip: ModuleNames = ModuleNames()  # in 16 bits whatever the rules say
    plain: frozenset[str] = frozenset()  # words of a path whose modules are in 16 bits, too
    plain_prediction: bool = False  # whether layers of multi-token prediction are

    @cached_property
    def known(self) -> dict[tuple[str, Component, int], Format]:
        """Earlier results: a model is laid out many times to find the fewest GPUs."""
        return {}

    def form(self, tensor: Tensor, layer: int) -> Format:
        if self.plain_prediction and tensor.excluded_as == "multi_token_prediction":
            return FORMATS["bf16"]
        if self.plain and not self.plain.isdisjoint(tensor.name.split(".")):
            return FORMATS["bf16"]
        if not self.names_modules:
            form = self.of_components.get(tensor.component)
            return form if form is not None and is_matrix(tensor) else FORMATS["bf16"]
        name = tensor.name.format(layer=layer - tensor.begins, expert=0)
        key = (name, tensor.component, len(tensor.shape))
        if key not in self.known:
            spend()
            self.known[key] = self._form(tensor, name)
        return self.known[key]

    @cached_property
    def of_components(self) -> dict[Component, Format]:
        """The format of the matrices of each component, where no rule asks for names."""
        return {component: rule.form for rule in reversed(self.rules) for component in rule.components}

    def _form(self, tensor: Tensor, name: str) -> Format:
        for rule in self.rules:
            if rule.modules.hold(name) if rule.modules.names else tensor.component in rule.components:
                return rule.form if is_matrix(tensor) and not self.skip.hold(name) else FORMATS["bf16"]
        return FORMATS["bf16"]

    @cached_property
    def names_modules(self) -> bool:
        """Whether it asks for names: otherwise a component has one format in all layers."""
        return bool(self.skip.names) or any(rule.modules.names for rule in self.rules)

    @cached_property
    def differs_by_layer(self) -> bool:
        """Whether any name holds the number of a layer."""
        return self.skip.numbered or any(rule.modules.numbered for rule in self.rules)


def is_matrix(tensor: Tensor) -> bool:
    """Whether it is the weight of a linear module: [out, in], or a stack of them, one for each expert; a rank's
    stack may be of one expert."""
    stacked = tensor.stacked > 1 or ("{expert}" not in tensor.name and tensor.component in EXPERTS)
    if len(tensor.shape) - stacked != 2:
        return False
    *path, leaf = tensor.name.split(".")
    return (leaf == "weight" or stacked) and ALWAYS_PLAIN.isdisjoint(path)


def without_root(name: str) -> list[str]:
    """The path of a module without the words that wrappers put before `layers`."""
    path = name.split(".")
    first = next((i for i, part in enumerate(path) if part not in ROOTS), 0)
    return path[first:]


def pattern_count(names: Iterable[str]) -> int:
    """Number of different names that are tried one by one: regular expressions, and those with `*` before their end."""
    return len({name for name in names if name.startswith("re:") or "*" in name[:-1]})


def readable(pattern: str) -> bool:
    """Whether a pattern can be matched, and in good time: quantifiers neither nested nor many."""
    if not pattern.startswith("re:"):
        return len(pattern) <= MAX_PATTERN and pattern.count("*") <= 4
    return NESTED.search(pattern) is None and is_quick(pattern[3:])


def is_quick(regex: str) -> bool:
    """Whether a regular expression is one, and is searched for in a name in good time: no group is repeated and few
    parts are, for a search tries each length of one with each of the others."""
    plain = regex.replace("(?:", "(")
    if len(regex) > MAX_PATTERN or REPEATED_GROUP.search(plain) or len(QUANTIFIER.findall(plain)) > MAX_QUANTIFIERS:
        return False
    try:
        re.compile(regex)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
