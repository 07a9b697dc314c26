"""The text of `print(model)` in PyTorch, as a tree of modules and as a checkpoint to compare with ours.

A module prints as `Kind(what it says of itself)`; one that has parts as `Kind(`, a line `(name): ...` for each part,
and `)`; equal neighbours in a list once, as `(0-27): 28 x Kind(...)` (`__repr__` of torch.nn.Module and ModuleList).
Parameters themselves are not printed: shapes follow from what modules of known kinds say of themselves (`extra_repr` of
torch.nn's Linear, Embedding, convolutions and norms, of transformers' Conv1D and RMS norms).
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import NamedTuple

from calc.errors import ConfigError, Message, shown
from calc.families.fields import MAX_SIZE
from calc.model.tensor import Shape, Shapes
from calc.verify.checkpoint import MAX_TENSORS, Checkpoint, StoredTensor

MAX_CHARACTERS = 1_000_000  # 60 layers, each unlike the one before, print a tenth of it
MAX_DEPTH = 100
MAX_REPEATS = 10_000
MAX_WORD = 200  # characters of a name or class

Repeats = tuple[tuple[int, int], ...]

# Every repetition is possessive and ends where the next begins, so that no text takes more than a few passes.
LINE = r"""
    \((?P<name>[^(){}\s]{1,200}+)\):\s*+
    (?: (?:(?P<count>\d++)[ ]x[ ])?+
        (?: None\b | (?P<kind>[A-Za-z_][\w.]{0,199}+)\(
            (?: (?P<own> [^()]*+ (?: \([^()]*+\)(?!:) [^()]*+ )*+ ) \) )?+ )
      | Parameter[ ]containing:[ ]\[(?P<parameter>[^\[\]]*+)\] )
"""
"""A part of a module: with `own` if it ends on the spot, with `kind` alone if its parts follow."""
PART = re.compile(LINE, re.VERBOSE)
TOKEN = re.compile(f"{LINE} | [()]", re.VERBOSE)
"""A part, or else a lone bracket."""
NESTED = re.compile(r"\(([^()]*+)\)")
RANGE = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)
CLASS = re.compile(r"[\w.]{1,200}+\Z")

WRAPPERS = frozenset(
    """
    CheckpointWrapper DataParallel DeepSpeedEngine DistributedDataParallel FullyShardedDataParallel LoraModel
    OptimizedModule PeftModel PeftModelForCausalLM
    """.split()
)
"""Modules that hold one other, the checkpoint's own."""
WRAPPED = ("base_layer", "original_module")  # the checkpoint's own weights, where an adapter stands next to them


@dataclass
class Module:
    """A printed module, or a bare parameter: its kind is then `Parameter`."""

    kind: str
    """Class; empty for the whole where only parts of it were given."""
    name: str = ""
    """Name in the checkpoint, without wrappers; `{}` stands for each index that repeats."""
    repeats: Repeats = ()
    """First and last index for each `{}`."""
    printed: list[str] = field(default_factory=list)  # of itself, without brackets and the commas inside them
    parts: list["Module"] = field(default_factory=list)
    last: int = -1  # highest index among its parts

    @property
    def arguments(self) -> tuple[list[str], dict[str, str]]:
        """Arguments in its brackets: sizes without a name (`2048`, `14 14`), and values with one."""
        words = [word.strip().removeprefix("torch.Size").strip("[] ") for word in "".join(self.printed).split(",")]
        named = [word.partition("=") for word in words if "=" in word]
        sizes = [word for word in words if "=" not in word and (word[:1].isdecimal() or word[:1] == "-")]
        return sizes, {name: value for name, _, value in named}

    @property
    def count(self) -> int:
        return times(self.repeats)

    @property
    def place(self) -> str:
        """Place, short enough for a sentence."""
        place = spoken(self.name, self.repeats) or self.kind
        return place if len(place) <= MAX_WORD else f"…{place[-MAX_WORD:]}"

    def within(self) -> Iterator["Module"]:
        """This module and all in it, as printed."""
        yield self
        for part in self.parts:
            yield from part.within()


def times(repeats: Repeats) -> int:
    return prod(last - first + 1 for first, last in repeats)


def spoken(name: str, repeats: Repeats) -> str:
    """A name with the ranges of its indices: model.layers.0-27.mlp."""
    return name.format(*(f"{first}-{last}" for first, last in repeats))


def module_tree(text: str) -> tuple[Module, str]:
    """The first module tree in a text, and the text that follows it. Raises ConfigError."""
    if len(text) > MAX_CHARACTERS:
        sentence = "The text is {length:,} characters long; a printed model has at most {most:,}."
        raise ConfigError(Message(sentence, length=len(text), most=MAX_CHARACTERS))
    first = next(printed_parts(text), None)
    if first is None:
        raise ConfigError(
            Message("No printed model in this text: it has lines like (lm_head): Linear(in_features=768, ...).")
        )
    before, _, printed = text[: first.start()].rpartition("(")
    kind = CLASS.search(before[-MAX_WORD:]) if ")" not in printed else None
    root = Module(kind[0], printed=[printed]) if kind else Module("")
    path, nested, end = [root], 0, first.start()  # modules that we are in; brackets open in the last's own words
    for part in TOKEN.finditer(text, end):
        module = path[-1]
        printed, end = text[end : part.start()], part.end()
        if printed and not printed.isspace():
            module.printed.append(printed.replace(",", " ") if nested else printed)
        if part["name"]:
            inner = _part(module, part)
            if inner is not None:
                module.parts.append(inner)
                if part["kind"] and part["own"] is None:
                    path.append(inner)
                    nested = 0
        elif part[0] == "(":
            nested += 1
        elif nested:
            nested -= 1
        else:
            path.pop()
            if not path:
                break
        if len(path) + nested > MAX_DEPTH:
            raise ConfigError(
                Message("The modules are nested more than {most} deep at {place}.", most=MAX_DEPTH, place=module.place)
            )
    if not path and not root.kind:
        raise ConfigError(Message("A bracket closes that was never opened; copy the print-out from its first line on."))
    if path and (root.kind or len(path) > 1):
        raise ConfigError(
            Message("The print-out ends inside {place}; copy it up to its last bracket.", place=path[-1].place)
        )
    return root, text[end:]


def printed_parts(text: str) -> Iterator[re.Match[str]]:
    return PART.finditer(text)


def _part(module: Module, part: re.Match[str]) -> Module | None:
    """The part of a module that a line shows; None where the line says None."""
    name, repeats = _index(module, part["name"], part["count"])
    if module.kind in WRAPPERS or name in WRAPPED:
        name = module.name
    elif module.name:
        name = f"{module.name}.{name}"
    repeats = module.repeats + repeats
    if part["parameter"] is not None:  # torch.float32 of size 10x10
        _, _, size = part["parameter"].partition(" of size ")
        return Module("Parameter", name, repeats, [size.partition(" ")[0].replace("x", " ")])
    if part["kind"] is None:
        return None
    own = NESTED.sub(lambda inner: inner[1].replace(",", " "), part["own"] or "")
    return Module(part["kind"], name, repeats, [own])


def _index(module: Module, name: str, count: str | None) -> tuple[str, Repeats]:
    """The name of a part, `{}` for a range of indices, and that range."""
    between = RANGE.fullmatch(name)
    if between is None and count is None:
        if name.isascii() and name.isdecimal() and len(name) <= 6:
            _advance(module, int(name), int(name))
        return name, ()
    if between is None or count != str(int(between[2]) - int(between[1]) + 1):
        sentence = "({name}) in {place} must be like (0-27): 28 x, a range and its length."
        raise ConfigError(Message(sentence, name=shown(name), place=module.place))
    first, last = int(between[1]), int(between[2])
    if last - first >= MAX_REPEATS:
        sentence = "({name}) in {place} repeats {count} times; at most {most:,} times are read."
        raise ConfigError(Message(sentence, name=name, place=module.place, count=count, most=MAX_REPEATS))
    _advance(module, first, last)
    return "{}", ((first, last),)


def _advance(module: Module, first: int, last: int) -> None:
    if not module.last < first <= last:
        sentence = "Index {first:,} in {place} comes after {last:,}; indices count upwards."
        raise ConfigError(Message(sentence, first=first, place=module.place, last=module.last))
    module.last = last


# The tensors of such a tree.


MAX_KINDS_NAMED = 20

WEIGHTLESS = frozenset(
    """
    ModuleList ModuleDict Sequential ParameterList ParameterDict Identity Flatten Unflatten Unfold Fold Softmax Upsample
    PixelShuffle PixelUnshuffle ReLU ReLU6 LeakyReLU ELU SELU CELU GELU GELUTanh SiLU Mish Sigmoid LogSigmoid Tanh
    Hardtanh Hardswish Hardsigmoid Softplus Softsign GLU AccurateGELUActivation ClippedGELUActivation FastGELUActivation
    GELUActivation LaplaceActivation LinearActivation MishActivation NewGELUActivation PytorchGELUTanh
    QuickGELUActivation ReLUSquaredActivation SiLUActivation SqrtSoftplusActivation
    """.split()
)
WEIGHTLESS_ENDINGS = (
    *("RotaryEmbedding", "RotaryEmb", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "DropPath"),
    *("UnweightedRMSNorm", "L2Norm", "Pool1d", "Pool2d", "Pool3d", "Loss"),
)
QUANTISED = ("4bit", "8bit", "QLinear", "QuantLinear", "Quantized", "FP8", "Fp8", "AQLM", "EETQ", "BitLinear")
"""Parts of the names of linear layers whose weights are stored packed."""
ALWAYS = (
    Message(
        "Parameters of a module outside any linear layer, embedding, convolution or norm are never printed: A_log, D "
        "and dt_bias of recurrent layers, attention sinks, stacked experts; compare the list with the model's config "
        "to see what is missing."
    ),
    Message(
        "A print-out does not say which modules share weights either: apart from a tied head, each is counted "
        "wherever it is printed."
    ),
)


class PrintedTensor(NamedTuple):
    """One weight that a print-out shows, with everywhere that it repeats."""

    name: str
    """Checkpoint name; `{}` stands for each index that repeats."""
    shape: Shape
    repeats: Repeats
    """First and last index for each `{}`."""

    def names(self) -> Iterator[str]:
        """The name of each occurrence, as the checkpoint has it."""
        for indices in product(*(range(first, last + 1) for first, last in self.repeats)):
            yield self.name.format(*indices)


def read_printed(text: str) -> Checkpoint:
    """The tensors that `print(model)` shows, in the order printed, and sentences on those that they may lack or hold
    twice. It may stand in a longer log; a module that is used in several places counts at each. Raises ConfigError."""
    root, rest = module_tree(text)
    modules = list(root.within())
    tensors: list[PrintedTensor] = []
    sizeless = _collect(root, tensors)
    if not tensors:
        raise ConfigError(
            Message("This print-out shows no sizes; it has lines like (lm_head): Linear(in_features=768, ...).")
        )
    (name, repeats), most = Counter((tensor.name, tensor.repeats) for tensor in tensors).most_common(1)[0]
    if most > 1:
        sentence = "{name} is printed twice; each part of a module has its own name."
        raise ConfigError(Message(sentence, name=shown(spoken(name, repeats))))
    if (count := sum(times(tensor.repeats) for tensor in tensors)) > MAX_TENSORS:
        written = f"{count:,}" if count < 10**15 else Message("far too many")
        sentence = "This print-out stands for {written} tensors; a model has at most {most:,}."
        raise ConfigError(Message(sentence, written=written, most=MAX_TENSORS))
    unseen = (*_missing(sizeless), *_assumed(modules), *_left_out(modules, rest), *ALWAYS)
    rows = {name: StoredTensor(None, tensor.shape, None) for tensor in tensors for name in tensor.names()}
    return Checkpoint.model_construct(tensors=rows, total_bytes=None, unseen=unseen)


def _collect(module: Module, tensors: list[PrintedTensor]) -> list[Module]:
    """Adds the tensors of a module and all in it to `tensors`; returns the innermost modules without any size."""
    before = len(tensors)
    shapes = _shapes(module)
    for leaf, shape in (shapes or {}).items():
        tensors.append(PrintedTensor(".".join(filter(None, (module.name, leaf))), shape, module.repeats))
    sizeless = [inner for part in module.parts for inner in _collect(part, tensors)]
    known = shapes is not None or sizeless or len(tensors) > before
    weightless = module.kind in WEIGHTLESS or module.kind.endswith(WEIGHTLESS_ENDINGS)
    return sizeless if known or weightless else [module]


def _shapes(module: Module) -> Shapes | None:
    """The weights of a module alone, by what it says of itself; None where that gives no sizes."""
    kind, (sizes, named) = module.kind, module.arguments
    if kind in WEIGHTLESS or kind.endswith(WEIGHTLESS_ENDINGS):
        return None
    if kind == "Parameter":
        return {"": _shape(module, "".join(module.printed))}
    if {"in_features", "out_features"} <= named.keys():
        weight = _size(module, named["out_features"]), _size(module, named["in_features"])
        return _with_bias(weight, named.get("bias") == "True")
    if {"nf", "nx"} <= named.keys():  # transformers' Conv1D, a linear layer as [in, out]
        n_in, n_out = _size(module, named["nx"]), _size(module, named["nf"])
        return {"weight": (n_in, n_out), "bias": (n_out,)}
    if "kernel_size" in named and len(sizes) == 2 and "Transpose" not in kind:
        n_in, n_out, groups = (_size(module, size) for size in (*sizes, named.get("groups", "1")))
        if n_in % groups:
            sentence = "{place} has {groups:,} groups, which must divide its {n_in:,} channels."
            raise ConfigError(Message(sentence, place=module.place, groups=groups, n_in=n_in))
        return _with_bias((n_out, n_in // groups, *_shape(module, named["kernel_size"])), named.get("bias") != "False")
    if "Embedding" in kind and len(sizes) == 2:
        return {"weight": (_size(module, sizes[0]), _size(module, sizes[1]))}
    if "Norm" in kind and len(sizes) == 1:
        if "False" in (named.get("affine"), named.get("elementwise_affine")):
            return {}
        shape = _shape(module, sizes[0])
        return {"weight": shape} | ({"bias": shape} if _centred(module) and named.get("bias") != "False" else {})
    return None


def _with_bias(weight: Shape, bias: bool) -> Shapes:
    return {"weight": weight, "bias": weight[:1]} if bias else {"weight": weight}


def _centred(module: Module) -> bool:
    """Whether it is torch.nn's LayerNorm or BatchNorm, or of their kin: these have a bias unless told otherwise."""
    _, named = module.arguments
    return "RMS" not in module.kind and ("elementwise_affine" in named or "affine" in named)


def _shape(module: Module, words: str) -> Shape:
    return tuple(_size(module, word) for word in words.split())


def _size(module: Module, word: str) -> int:
    size = int(word) if word.isascii() and word.isdecimal() and len(word) <= 18 else 0
    if not 1 <= size <= MAX_SIZE:
        sentence = "{place} says {word} where {kind} has a size: a whole number between 1 and {most:,}."
        message = Message(sentence, place=module.place, word=shown(word), kind=shown(module.kind), most=MAX_SIZE)
        raise ConfigError(message)
    return size


def _missing(sizeless: list[Module]) -> Iterator[Message]:
    """Modules without sizes, one sentence a kind."""
    kinds: dict[str, list[Module]] = {}
    for module in sizeless:
        kinds.setdefault(module.kind, []).append(module)
    for kind, modules in list(kinds.items())[:MAX_KINDS_NAMED]:
        count = sum(module.count for module in modules)
        sentence = "The print-out gives no sizes for {count:,} × {kind} ({place}): weights that they hold are missing."
        if len(modules) > 1:
            sentence = (
                "The print-out gives no sizes for {count:,} × {kind} ({place} and elsewhere): weights that they hold "
                "are missing."
            )
        yield Message(sentence, count=count, kind=kind, place=modules[0].place)
    if len(kinds) > MAX_KINDS_NAMED:
        yield Message(
            "It gives no sizes for {more:,} further kinds of module either.", more=len(kinds) - MAX_KINDS_NAMED
        )


def _assumed(modules: list[Module]) -> Iterator[Message]:
    """Biases that are not printed, and packed weights."""
    linear = [module for module in modules if "in_features" in module.arguments[1]]
    unsaid = [module for module in linear if "bias" not in module.arguments[1]]
    norms = [module for module in modules if "Norm" in module.kind and _centred(module)]
    old_norms = [module for module in norms if "bias" not in module.arguments[1]]  # as older torch prints them
    packed = [module for module in linear if any(word in module.kind for word in QUANTISED)]
    if unsaid:
        yield Message("Whether {kinds} have a bias is not printed; none is counted.", kinds=_listed(unsaid))
    if old_norms:
        yield Message("Whether {kinds} have a bias is not printed; one is counted.", kinds=_listed(old_norms))
    if packed:
        yield Message(
            "{kinds} are listed with the shape that they stand for; what is stored is packed, with scales that are "
            "not printed.",
            kinds=_listed(packed),
        )


def _left_out(modules: list[Module], rest: str) -> Iterator[Message]:
    """Sentences on tensors that the list leaves out, by itself or because the text does."""
    wrappers = [module for module in modules if module.kind in WRAPPERS]
    if wrappers:
        yield Message(
            "Names are given without the wrappers {kinds}, as the wrapped model's checkpoint has them.",
            kinds=_listed(wrappers),
        )
    cut = [module for module in modules if any("..." in words or "…" in words for words in module.printed)]
    if cut:
        yield Message("The text has “...” inside {place}: what stood there is missing.", place=cut[0].place)
    if any(part["kind"] for part in printed_parts(rest)):
        yield Message("More modules follow after the end of the first model; they are not read.")


def _listed(modules: list[Module]) -> str | Message:
    """Their kinds, each with how often it occurs."""
    kinds = Counter[str]()
    for module in modules:
        kinds[module.kind] += module.count
    named = ", ".join(f"{count:,} × {kind}" for kind, count in list(kinds.items())[:MAX_KINDS_NAMED])
    return Message("{kinds} and others", kinds=named) if len(kinds) > MAX_KINDS_NAMED else named
