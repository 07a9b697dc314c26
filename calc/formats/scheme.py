"""What is stored in which format: which matrices are quantized, and which stay in 16 bits."""

import re
from fnmatch import fnmatchcase
from functools import cached_property

from calc.errors import Frozen
from calc.formats.table import FORMATS, Format
from calc.model.tensor import Component, Tensor

EXPERTS: frozenset[Component] = frozenset({"experts_routed"})
LINEARS: frozenset[Component] = EXPERTS | {"attention", "mlp", "experts_shared", "ssm_linear"}
ALWAYS_PLAIN = frozenset({"weights_proj", "shared_expert_gate", "x_proj", "dt_proj"})
"""Small matrices that no published checkpoint quantizes: an indexer's weights, gates of one row, Mamba's time step."""
MAX_PATTERN = 200
Patterns = tuple[frozenset[str], tuple[re.Pattern[str], ...], tuple[str, ...]]
"""Modules by plain names, regular expressions and wildcards."""
NESTED = re.compile(r"[)\]}*+?]\s*[*+{]|\(\?[^:]|\\[1-9]")


class Rule(Frozen):
    """A format, and the modules that have it: by name, by `re:` pattern, by wildcard; none named: all linear ones."""

    form: Format
    targets: tuple[str, ...] = ()

    @cached_property
    def patterns(self) -> Patterns:
        return compiled(self.targets)


class Scheme(Frozen):
    """How a checkpoint is stored. The first rule that names a module decides; what none names stays in 16 bits."""

    rules: tuple[Rule, ...]
    skip: tuple[str, ...] = ()  # modules in 16 bits whatever the rules say
    components: frozenset[Component] = LINEARS

    @cached_property
    def skipped(self) -> Patterns:
        return compiled(self.skip)

    @cached_property
    def known(self) -> dict[tuple[str, Component, int], Format]:
        """What was asked before: a model is laid out many times to find the fewest GPUs."""
        return {}

    def form(self, tensor: Tensor, layer: int) -> Format:
        """The format of a tensor in one layer."""
        name = tensor.name.format(layer=layer, expert=0)
        key = (name, tensor.component, len(tensor.shape))
        if key not in self.known:
            self.known[key] = self._form(tensor, name)
        return self.known[key]

    def _form(self, tensor: Tensor, name: str) -> Format:
        if not is_matrix(tensor) or tensor.component not in self.components or named(name, self.skipped):
            return FORMATS["bf16"]
        forms = (rule.form for rule in self.rules if not rule.targets or named(name, rule.patterns))
        return next(forms, FORMATS["bf16"])

    @cached_property
    def differs_by_layer(self) -> bool:
        """Whether any name holds the number of a layer."""
        names = (*self.skip, *(target for rule in self.rules for target in rule.targets))
        return any(any(character.isdigit() for character in name) for name in names)


def is_matrix(tensor: Tensor) -> bool:
    """Whether it is the weight of a linear module: [out, in], or a stack of them, one for each expert."""
    stacked = tensor.experts > 1 and "{expert}" not in tensor.name
    module, _, leaf = tensor.name.rpartition(".")
    return (
        len(tensor.shape) - stacked == 2
        and (leaf == "weight" or stacked)
        and module.rpartition(".")[2] not in ALWAYS_PLAIN
    )


def matrices(tensor: Tensor) -> int:
    """How many matrices one occurrence holds."""
    return tensor.experts if tensor.experts > 1 and "{expert}" not in tensor.name else 1


def named(name: str, patterns: Patterns) -> bool:
    """Whether a module is named, itself or what it is part of: `lm_head`, `mlp.gate`, `model.layers.*.self_attn`,
    `re:.*lm_head`. Checkpoints put different words before the layers, so names may start anywhere in the path."""
    words, regexes, wildcards = patterns
    if not any(patterns):
        return False
    path = name.removesuffix(".weight").split(".")
    runs = {".".join(path[a:b]) for a in range(len(path)) for b in range(a + 1, len(path) + 1)}
    tails = [".".join(path[a:]) for a in range(len(path))]
    whole = (".".join(path), f"language_model.{'.'.join(path)}", ".".join(("model", "language_model", *path[1:])))
    return (
        not runs.isdisjoint(words)
        or any(regex.match(form) for regex in regexes for form in whole)
        or any(fnmatchcase(tail, wild) or fnmatchcase(tail, f"{wild}.*") for wild in wildcards for tail in tails)
    )


def compiled(patterns: tuple[str, ...]) -> Patterns:
    plain = [without_root(p) for p in patterns if not p.startswith("re:") and "*" not in p]
    wild = tuple(without_root(p) for p in patterns if not p.startswith("re:") and "*" in p)
    return frozenset(plain), tuple(re.compile(p[3:]) for p in patterns if p.startswith("re:")), wild


def without_root(pattern: str) -> str:
    """A module's name without the words that wrappers put before `layers`."""
    parts = pattern.removesuffix(".weight").split(".")
    while len(parts) > 1 and parts[0] in ("model", "language_model", "text_model"):
        parts = parts[1:]
    return ".".join(parts)


def readable(pattern: str) -> bool:
    """Whether a pattern can be matched, and in good time: quantifiers neither nested nor many."""
    if not pattern.startswith("re:"):
        return len(pattern) <= MAX_PATTERN and pattern.count("*") <= 4
    if len(pattern) > MAX_PATTERN or len(re.findall(r"[*+{]", pattern)) > 4 or NESTED.search(pattern):
        return False
    try:
        re.compile(pattern[3:])
    except re.error:
        return False
    return True
