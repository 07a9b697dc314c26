"""The pool of equal blocks that groups of layers draw on (`v1/core/kv_cache_planning.py`)."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub
from typing import NamedTuple

from calc.serving.engines.vllm.blocks import DEFAULT, Spec, Specs
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds


class AlikeLayers(NamedTuple):
    """Alike layers of a group, in ascending order."""

    spec: Spec
    layers: tuple[int, ...]

    def count(self, stage: range) -> int:
        """How many of them stand on a pipeline stage."""
        return bisect_left(self.layers, stage.stop) - bisect_left(self.layers, stage.start)

    def nbytes(self, stops: Sequence[int]) -> list[int]:
        """Bytes of a block on each of the pipeline stages that end before these layers."""
        page, layers = self.spec.page, self.layers
        upto = [page * bisect_left(layers, stop) for stop in stops]
        return list(map(sub, upto, [0, *upto]))


class Group(NamedTuple):
    """Layers that share a table of blocks."""

    parts: tuple[AlikeLayers, ...]

    @property
    def block(self) -> int | None:
        """Tokens of a block; None: a whole request."""
        return self.parts[0].spec.block

    def nbytes(self, stops: Sequence[int]) -> list[int]:
        """Bytes of a block on each pipeline stage."""
        if len(self.parts) == 1:
            return self.parts[0].nbytes(stops)
        return list(map(sum, zip(*[part.nbytes(stops) for part in self.parts], strict=True)))

    def blocks(self, length: int, in_flight: int) -> int:
        """Blocks of a request of that length, of which all its layers take as many."""
        return self.parts[0].spec.blocks(length, in_flight)


def groups(specs: Specs, options: VLLMOptions) -> tuple[Group, ...]:
    """Layers that keep alike share a group. All of one type with blocks of one size are one; else blocks of all kinds
    take the same bytes, and each kind makes as many groups as the rarest, or most frequent, one needs."""
    if not holds("windows free their blocks", options):
        specs = without_windows(specs, DEFAULT)
    elif options.disable_hybrid_kv_cache_manager:
        specs = with_full_attention(specs)
    if len({uniform_type(spec) for spec in specs}) == 1:
        return (Group(tuple(AlikeLayers(spec, tuple(layers)) for spec, layers in specs.items())),)
    try:
        specs = with_equal_pages(specs)
    except UnequalPages:
        return groups(with_full_attention(specs), options)
    few, many = min(map(len, specs.values())), max(map(len, specs.values()))
    near = 1.5 if holds("groups half as large again", options) else 1.25
    size = many if many < near * few else few
    split_groups = []
    for spec, layers in specs.items():
        n = -(-len(layers) // size)
        split_groups += [Group((AlikeLayers(spec, tuple(layers[i::n])),)) for i in range(n)]
    return tuple(split_groups)


def uniform_type(spec: Spec) -> tuple[object, ...]:
    """What layers of one group have to share: how many blocks a request takes. Latents count as full attention."""
    if spec.kind in ("full", "mla"):
        return "full", spec.block
    return spec.kind, spec.block, spec.reach, spec.states, spec.page if spec.kind == "state" else 0


def with_full_attention(specs: Specs) -> Specs:
    """The same where layers with a window or chunk keep the whole context, if others do, in blocks as those have."""
    blocks = {spec.block for spec in specs if spec.kind in ("full", "mla")}
    return without_windows(specs, blocks.pop() if len(blocks) == 1 else None) if blocks else specs


def without_windows(specs: Specs, block: int | None) -> Specs:
    """The same where all attention keeps the whole context, in blocks of so many tokens; None: of their own."""
    by_spec: Specs = {}
    for spec, layers in specs.items():
        if spec.kind in ("window", "chunk"):
            assert spec.block is not None
            tokens = block or spec.block
            spec = spec._replace(kind="full", block=tokens, page=spec.page // spec.block * tokens, reach=0)
        by_spec[spec] = sorted([*by_spec.get(spec, []), *layers])
    return by_spec


class UnequalPages(ValueError):
    """Pages of latents, which are not padded, beside windows, which may as well keep the whole context."""


def with_equal_pages(specs: Specs) -> Specs:
    """The same where all pages take as many bytes as the largest: a smaller one holds more tokens where that fills it,
    else it is padded."""
    page, windows = max(spec.page for spec in specs), any(spec.kind == "window" for spec in specs)
    by_spec: Specs = {}
    for spec, layers in specs.items():
        if spec.kind != "state" and page % spec.page == 0:
            assert spec.block is not None
            spec = spec._replace(block=spec.block * (page // spec.page))
        elif spec.kind == "mla" and windows:
            raise UnequalPages
        spec = spec._replace(page=page)
        by_spec[spec] = sorted([*by_spec.get(spec, []), *layers])
    return by_spec


def block_bytes(groups: Sequence[Group], stops: Sequence[int]) -> tuple[int, ...]:
    """Bytes of a block of the pool on each of the pipeline stages that end before these layers: those of the widest
    group."""
    of_groups = [group.nbytes(stops) for group in groups]
    return tuple(map(max, zip(*of_groups, strict=True))) if len(groups) > 1 else tuple(of_groups[0])
