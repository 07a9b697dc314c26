"""CUDA graphs of vLLM: the sizes that are captured, and what their graphs take.

Sizes as `config/vllm.py: _set_cudagraph_sizes` has them; bytes fitted to public start-up logs of 2024 to 2026.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from calc.errors import Message
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU
from calc.hardware.overhead import NONE, Range
from calc.serving.engines.loading import up_to
from calc.serving.engines.sizes import Limits
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds

SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
OLD_SIZES = (1, 2, 4, *range(8, 513, 8))
"""Tokens of a step that graphs are captured for, where limits allow them; the old ones up to 0.11."""
ANY = Range(low=0, high=2.4)
"""GiB. vLLM's logs: 0.04 to 0.7 with small models, 0.5 to 2.4 with two sets of graphs; none when switched off."""
EACH, LAYER = 3.2, 0.085
"""MiB of a graph, and of each layer in it, on the V1 runner of 0.12 to 0.28: fitted to seven starts of five models of
28 to 80 layers with 7 to 102 graphs, on one to eight GPUs, all within 0.05 GiB. Of five others, two are off by 0.04 and
0.13 GiB, one by 0.46 whose GPU others used meanwhile; two took 2.1 and 4.1 GiB, as did five of older versions (2.2 to
4.1), which nothing in the source explains."""
OLD_EACH, OLD_LAYER, OLD_SEVERAL = 2.3, 0.17, 1.43
"""The same of a graph in pieces up to 0.11: four starts on one GPU; several GPUs take 1.36 and 1.51 times as much."""
OLD_LEAST = 0.7
"""The least that logs have of the formula up to 0.11: nine starts, 0.68 to 1.55 of it. Four more took 2.2 to 2.9 GiB,
which is not explained, so that the usual range stays the most."""
SECOND_RUNNER, SECOND_LEAST = 0.5, 0.31
"""What the V2 runner's graphs take of that, eight starts; and the most GiB of one or two graphs, 0.04 to 0.31 on nine
starts."""
LEAST = 0.06
"""GiB of one or two graphs; six starts."""
SPREAD = 0.25
"""How far logs lie from the formula, as a share of it."""
DRAFTS_MOST = 1.9
"""GiB that graphs with a draft may take on the V1 runner, however few: 1.62 to 1.89 on three starts of GLM-5.2, of
which the source explains less than 0.1; 0.49 to 0.74 on three of Qwen3.6, by the formula 0.41 to 0.53."""
ROCM = Range(low=0.4, high=4.1)
"""GiB on AMD's GPUs: five starts, 0.49 to 4.1; no formula holds."""
ASCEND = Range(low=0.25, high=0.95)
"""GiB on Ascend: six starts of vllm-ascend on one NPU with 10 to 70 graphs, estimated 0.29 to 0.87, taken 0.37 to
0.73."""
OTHERS: Mapping[Platform | None, Range] = {"rocm": ROCM, "cann": ASCEND}


def captured_sizes(options: VLLMOptions, limits: Limits) -> tuple[int, ...]:
    """Tokens of a step that a graph is captured for, ascending."""
    if not holds("graphs up to twice the sequences", options):
        return OLD_SIZES[: bisect_right(OLD_SIZES, limits.step_tokens)]
    query, sequences = 1 + options.guessed, limits.sequences
    wide = query if holds("guesses widen graphs", options) else 1
    sizes = SIZES[: bisect_right(SIZES, min(2 * sequences * wide, limits.step_tokens))]
    if query == 1:
        return sizes
    if holds("the second runner", options):
        batches = {sequences, *SIZES[: bisect_right(SIZES, sequences)]}
        return tuple(sorted({*sizes, *(query * n for n in batches if query * n <= sizes[-1])}))
    rounded = {up_to(size, query) for size in sizes}
    return tuple(sorted(size for size in rounded if size <= sizes[-1])) or (query,)


class Graphs(NamedTuple):
    """Number of graphs that are captured."""

    pieces: int  # between attention, one for each size
    full: int  # one for each batch of decode steps that may run

    @property
    def both(self) -> int:
        return self.pieces + self.full


def captured_graphs(options: VLLMOptions, limits: Limits) -> Graphs:
    """Decode steps have as many tokens a sequence as are guessed, and one."""
    sizes, query = captured_sizes(options, limits), 1 + options.guessed
    steps = sizes if query == 1 else sorted({up_to(size, query) for size in sizes})
    full = bisect_right(steps, min(sizes[-1], query * limits.sequences))
    return Graphs(len(sizes), full if holds("graphs of whole decode steps", options) else 0)


def graphs_gib(
    graphs: Graphs,
    layers: int,
    options: VLLMOptions,
    *,
    several: bool,
    draft_layers: int = 0,
    constants: tuple[float, float] | None = None,
) -> float:
    """GiB of the graphs of a stage of so many layers; `several`: GPUs that share them. `constants`: MiB of a graph and
    of each layer in it, instead of the version's. The first runner captures a draft in pieces of its own."""
    new = holds("graphs up to twice the sequences", options)
    each, layer = constants or ((EACH, LAYER) if new else (OLD_EACH, OLD_LAYER))
    if holds("the second runner", options):
        return SECOND_RUNNER * graphs.both * (each + layer * layers) / 1024
    piece = each + layer * layers + (each + layer * draft_layers if draft_layers else 0)
    if new:
        return (graphs.pieces * piece + graphs.full * (each + layer * layers)) / 1024
    pieces = graphs.pieces * piece * (OLD_SEVERAL if several else 1)
    return (pieces + graphs.full * (EACH + LAYER * layers)) / 1024


def has_formula(options: VLLMOptions, gpu: GPU) -> bool:
    """Whether graphs are captured whose bytes follow from their number and layers: CUDA, from 0.8 on."""
    captured = gpu.platform == "cuda" and not options.enforce_eager
    return captured and holds("prompts are cut into chunks", options)


def graphs_formula(options: VLLMOptions, limits: Limits, layers: int) -> Message:
    """The formula in words."""
    old = not holds("graphs up to twice the sequences", options)
    each, layer = (OLD_EACH, OLD_LAYER) if old else (EACH, LAYER)
    return Message(
        "CUDA graphs: {graphs:,} of them, each {each:g} MiB and {layer:g} MiB for each of {layers:,} layers with "
        "vLLM's first model runner; half of that with its second, the default from 0.29 on.",
        graphs=captured_graphs(options, limits).both,
        each=each,
        layer=layer,
        layers=layers,
    )


def graphs_range(
    options: VLLMOptions, limits: Limits, gpu: GPU, layers: int, *, several: bool, draft_layers: int = 0
) -> Range:
    """GiB of CUDA graphs on a GPU whose stage has so many layers, and as many of a draft that passes at once; the
    formula is its middle from 0.12 on, unless there is a draft."""
    if options.enforce_eager:
        return NONE
    if not has_formula(options, gpu):
        return OTHERS.get(gpu.platform, ANY)
    graphs = captured_graphs(options, limits)
    middle = max(LEAST, graphs_gib(graphs, layers, options, several=several, draft_layers=draft_layers))
    if not holds("graphs up to twice the sequences", options):
        return Range(low=OLD_LEAST * middle, high=max(ANY.high, middle))
    most = (1 + SPREAD) * middle
    if holds("the second runner", options):
        most = max(SECOND_LEAST, most)
    elif draft_layers:
        most = max(DRAFTS_MOST, most)
    return Range(low=(1 - SPREAD) * middle, high=most)
