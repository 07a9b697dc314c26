"""Memory of vLLM's passes besides weights and cache: the peaks that profiling finds, CUDA graphs, and what lies
outside.

Peaks are read in vLLM 0.33 (`gpu_worker.py`, `gpu/model_runner.py: profile_run`): one pass over as many tokens as a
step takes, then sampling for as many sequences as may run at once. Sizes of graphs are as `config/vllm.py:
_set_cudagraph_sizes` has them; their bytes, and in GiB a GPU what logs call non-torch (libraries and buffers of
communication, which no allocator of PyTorch holds), are fitted to public start-up logs of 2024 to 2026.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from calc.errors import Message
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU
from calc.hardware.overhead import NONE, Range, libraries
from calc.model.block import Block
from calc.model.named import Peak
from calc.model.tensor import Elements
from calc.serving.engines.loading import round_up
from calc.serving.engines.sizes import Limits
from calc.serving.engines.vllm.options import VLLMOptions, holds

SORTED, FILTERED, PLAIN, GATHERED = 39, 14, 2, 4
"""Bytes at the peak of profiling. Filtered: logits in 16 and in 32 bits, those that top-k leaves and probabilities in
32 (FlashInfer's `top_k_top_p_sampling_from_logits`). Sorted: also values and their 64-bit indices, sums and masks; of
ten start-up logs, off by 1.3 % at the median and 5.4 % at most, whose addresses are the sources of the rows “KV budget”
of `python -m benchmarks.accuracy`. Plain: the logits alone, of which ranks gather each other's and then put them in
order."""
GUESSED = 4
"""More at the peak where guesses are checked: 16-bit logits of a token that is guessed and of the next, of which the
sampler gets a copy (`v1/sample/rejection_sampler.py`; the first runner's dummy run has a guess for each sequence)."""
COUNTS, MASKS = 4, 4
"""Bytes that the second runner keeps for penalties (`gpu/sample/penalties.py: output_bin_counts`), and how many logits
a byte is kept for, of a prompt's words (`prompt_bin_mask`) and of a grammar's (`gpu/structured_outputs.py`)."""


class Sampler(NamedTuple):
    """Bytes for each logit."""

    peak: int  # while it samples for the first time, in profiling
    counts: int  # as long as the server runs


UNUSED = Sampler(0, 0)


def sampler(options: VLLMOptions, *, several: bool) -> Sampler:
    """The sampler of a version; `several`: tensor-parallel ranks share the vocabulary. The second runner samples with
    no parameters at first (`gpu/model_runner.py: _dummy_sampler_run`), later with all as the first one always has."""
    if not holds("the second runner", options):
        checked = GUESSED if options.draft_tokens and holds("guesses pass the sampler", options) else 0
        return Sampler(checked + (FILTERED if holds("sampling does not sort", options) else SORTED), 0)
    if holds("the second runner filters", options):
        return Sampler(FILTERED, COUNTS)
    return Sampler(GATHERED if several else PLAIN, COUNTS)


ATTENTION, SAMPLING = Message("a pass in a layer's attention"), Message("sampling for all sequences")
EXPERTS, OUTPUT_OF_EXPERTS = Message("a pass in the routed experts"), Message("the output of the routed experts")
FEED_FORWARD = Message("a pass in the feed-forward")
ENCODER = Message("a pass in the vision encoder")
COUNTS_SAVED, MASKS_SAVED = "counts of each sequence's words, for penalties", "masks of each sequence's words"


def profile_peaks(
    blocks: Iterable[Block],
    hidden: Any,
    vocab: Any,
    *,
    tokens: Any,
    sequences: Any,
    width: int = 2,
    sampler: Sampler = UNUSED,
    auxiliary: int = 0,
    encoder_bytes: Any = 0,
    encoder: Mapping[str, Any] = MappingProxyType({}),
    gathered: Mapping[Message, int] = MappingProxyType({}),
    sent: bool = False,
) -> list[Peak]:
    """The moments of the run on one rank. `vocab` is 0 on stages that do not sample; else all its logits are gathered
    on every rank. Parts in `gathered` take the tokens of so many copies of the attention; `sent`: ranks get only those
    whose experts they have. States of so many auxiliary
    layers stay for a draft. The largest images or video pass the encoder before, where `encoder` is alive;
    `encoder_bytes` of them stay, as does what the sampler keeps."""
    counts = sequences * vocab if sampler.counts else 0
    states = {COUNTS_SAVED: sampler.counts * counts, MASKS_SAVED: counts // MASKS} if counts else {}
    images = {"kept of images": encoder_bytes} if encoder_bytes else {}
    peaks = [Peak(ENCODER, {**encoder, **states})] if encoder else []
    for block in blocks:
        for what, elements in layer_elements(block, hidden, sent=sent):
            tensors = {"input, residual and output": 3 * hidden} | elements
            if auxiliary:
                tensors["states for the draft"] = auxiliary * hidden
            passed = tokens * gathered[what] if what in gathered else tokens
            peaks.append(Peak(what, {name: width * passed * size for name, size in tensors.items()} | images | states))
    if vocab:
        logits = {"logits, their copies and what sampling takes": sampler.peak * sequences * vocab}
        peaks.append(Peak(SAMPLING, logits | images | states))
    return peaks


def layer_elements(block: Block, hidden: Any, *, sent: bool = False) -> Iterator[tuple[Message, Elements]]:
    """Tensors of a layer besides its input and output: in its mixers, and in its feed-forward gate and up in one, and
    their product; with experts for each copy of the token, where the first makes room for the output
    (`fused_moe.py: fused_experts_impl`). Kernels of 0.33 have workspaces of their own, which stay (`workspace_shapes`):
    none of TensorRT-LLM's, and of Triton, Marlin and CUTLASS one of max(I, h) and one of max(2 I, h) for each copy;
    public logs do not tell these apart. There is a copy for each expert that a token chooses, also of those on other
    ranks (vLLM `experts/triton_moe.py`, SGLang `triton_utils/fused_moe.py: _fused_moe_kernel_sequence`, TensorRT-LLM
    `moe_kernels.cu: getWorkspaceDeviceBufferSizes`), unless tokens are sent to ranks."""
    for mixer in block.mixers:
        yield ATTENTION, mixer.fused_elements(hidden)
    moe, dense = block.moe, block.dense
    if moe is not None:
        inner, copies = moe.expert.intermediate, moe.top_k if sent else moe.choices
        wide = (2 if moe.gated else 1) * inner
        product = {"product of each expert": copies * inner}
        yield EXPERTS, {"gate and up of each expert": copies * wide} | product
        yield OUTPUT_OF_EXPERTS, {"output of each expert": copies * hidden} | product
    if dense is not None:
        wide = (2 if dense.gated else 1) * dense.intermediate
        yield FEED_FORWARD, {"gate and up": wide, "product": dense.intermediate}


GRAPH_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
OLD_GRAPH_SIZES = (1, 2, 4, *range(8, 513, 8))
"""Tokens of a step that graphs are captured for, where limits allow them; the old ones up to 0.11."""
ANY_GRAPHS = Range(low=0, high=2.4)
"""GiB. vLLM's logs: 0.04 to 0.7 with small models, 0.5 to 2.4 with two sets of graphs; none when switched off."""
GRAPH, GRAPH_LAYER = 3.2, 0.085
"""MiB of a graph, and of each layer in it, on the V1 runner of 0.12 to 0.28: fitted to seven starts of five models of
28 to 80 layers with 7 to 102 graphs, on one to eight GPUs, all within 0.05 GiB. Of five others, two are off by 0.04 and
0.13 GiB, one by 0.46 whose GPU others used meanwhile; two took 2.1 and 4.1 GiB, as did five of older versions (2.2 to
4.1), which nothing in the source explains."""
OLD_GRAPH, OLD_GRAPH_LAYER, OLD_GRAPHS_SHARED = 2.3, 0.17, 1.43
"""MiB of a graph in pieces up to 0.11: four starts on one GPU; several GPUs take 1.36 and 1.51 times as much."""
OLD_LEAST_GRAPHS = 0.7
"""The least that logs have of the formula up to 0.11: nine starts, 0.68 to 1.55 of it. Four more took 2.2 to 2.9 GiB,
which is not explained, so that the usual range stays the most."""
SECOND_RUNNER_GRAPHS, SECOND_LEAST_GRAPHS = 0.5, 0.31
"""Share of that which the V2 runner's graphs take, eight starts; and the most GiB of one or two graphs, 0.04 to 0.31 on
nine starts."""
LEAST_GRAPHS = 0.06
"""GiB of one or two graphs; six starts."""
GRAPHS_SPREAD = 0.25
"""Spread of logs about the formula, as a share of it."""
MOST_GRAPHS_WITH_DRAFT = 1.9
"""GiB that graphs with a draft may take on the V1 runner, however few: 1.62 to 1.89 on three starts of GLM-5.2, of
which the source explains less than 0.1; 0.49 to 0.74 on three of Qwen3.6, by the formula 0.41 to 0.53."""
ROCM_GRAPHS = Range(low=0.4, high=4.1)
"""GiB on AMD's GPUs: five starts, 0.49 to 4.1; no formula holds."""
ASCEND_GRAPHS = Range(low=0.25, high=0.95)
"""GiB on Ascend: six starts of vllm-ascend on one NPU with 10 to 70 graphs, estimated 0.29 to 0.87, taken 0.37 to
0.73."""
OTHERS_GRAPHS: Mapping[Platform | None, Range] = {"rocm": ROCM_GRAPHS, "cann": ASCEND_GRAPHS}


def captured_sizes(options: VLLMOptions, limits: Limits) -> tuple[int, ...]:
    """Tokens of a step that a graph is captured for, ascending."""
    if not holds("graphs up to twice the sequences", options):
        return OLD_GRAPH_SIZES[: bisect_right(OLD_GRAPH_SIZES, limits.step_tokens)]
    query, sequences = 1 + options.draft_tokens, limits.sequences
    wide = query if holds("guesses widen graphs", options) else 1
    sizes = GRAPH_SIZES[: bisect_right(GRAPH_SIZES, min(2 * sequences * wide, limits.step_tokens))]
    if query == 1:
        return sizes
    if holds("the second runner", options):
        batches = {sequences, *GRAPH_SIZES[: bisect_right(GRAPH_SIZES, sequences)]}
        return tuple(sorted({*sizes, *(query * n for n in batches if query * n <= sizes[-1])}))
    rounded = {round_up(size, query) for size in sizes}
    return tuple(sorted(size for size in rounded if size <= sizes[-1])) or (query,)


class Graphs(NamedTuple):
    """Number of graphs that are captured."""

    pieces: int  # between attention, one for each size
    full: int  # one for each batch of decode steps that may run

    @property
    def both(self) -> int:
        return self.pieces + self.full


def captured_graphs(options: VLLMOptions, limits: Limits) -> Graphs:
    """Decode steps have as many tokens a sequence as are drafted, and one."""
    sizes, query = captured_sizes(options, limits), 1 + options.draft_tokens
    steps = sizes if query == 1 else sorted({round_up(size, query) for size in sizes})
    full = bisect_right(steps, min(sizes[-1], query * limits.sequences))
    return Graphs(len(sizes), full if holds("graphs of whole decode steps", options) else 0)


def graph_mib(options: VLLMOptions) -> tuple[float, float]:
    """MiB of a graph, and of each layer in it."""
    new = holds("graphs up to twice the sequences", options)
    return (GRAPH, GRAPH_LAYER) if new else (OLD_GRAPH, OLD_GRAPH_LAYER)


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
    each, layer = constants or graph_mib(options)
    if holds("the second runner", options):
        return SECOND_RUNNER_GRAPHS * graphs.both * (each + layer * layers) / 1024
    piece = each + layer * layers + (each + layer * draft_layers if draft_layers else 0)
    if new:
        return (graphs.pieces * piece + graphs.full * (each + layer * layers)) / 1024
    pieces = graphs.pieces * piece * (OLD_GRAPHS_SHARED if several else 1)
    return (pieces + graphs.full * (GRAPH + GRAPH_LAYER * layers)) / 1024


def has_formula(options: VLLMOptions, gpu: GPU) -> bool:
    """Whether graphs are captured whose bytes follow from their number and layers: CUDA, from 0.8 on."""
    captured = gpu.platform == "cuda" and not options.enforce_eager
    return captured and holds("prompts are cut into chunks", options)


def graphs_formula(options: VLLMOptions, limits: Limits, layers: int) -> Message:
    """The formula in words."""
    each, layer = graph_mib(options)
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
        return OTHERS_GRAPHS.get(gpu.platform, ANY_GRAPHS)
    graphs = captured_graphs(options, limits)
    middle = max(LEAST_GRAPHS, graphs_gib(graphs, layers, options, several=several, draft_layers=draft_layers))
    if not holds("graphs up to twice the sequences", options):
        return Range(low=OLD_LEAST_GRAPHS * middle, high=max(ANY_GRAPHS.high, middle))
    most = (1 + GRAPHS_SPREAD) * middle
    if holds("the second runner", options):
        most = max(SECOND_LEAST_GRAPHS, most)
    elif draft_layers:
        most = max(MOST_GRAPHS_WITH_DRAFT, most)
    return Range(low=(1 - GRAPHS_SPREAD) * middle, high=most)


PCIE = Range(low=0.02, high=0.35)
"""Several without a switch between them: 0.09 (4 x RTX 4090) and 0.25 (2 x RTX 4090) are printed, the cache of two
more starts on 4 x RTX 4090 leaves less."""
SUPERCHIPS = Range(low=0.07, high=0.63)
"""4 x GH200: seventeen starts."""
SWITCHED, EACH_SWITCHED, SWITCHED_SPREAD = 0.5, 0.075, 0.75
"""Several on NVLink's switch, more for each of up to eight, and how far it may lie from that: 1.1 is what the cache of
nine starts on 8 x H100 leaves for it, 0.7 that of three on two; all of two machines."""
OLD_SWITCHED = Range(low=0.8, high=2.3)
"""GiB of several GPUs up to 0.11: 1.38 (2 x H200) and 1.84 (4 x H100) are printed, 2.2 is what the cache of one start
on 8 x H100 leaves."""
NODE = 8
"""GPUs on one switch, of which each has a buffer for each other."""
UNIFIED = Range(low=0.02, high=8)
"""Memory that the CPU shares: the driver's difference counts its page cache too, so that 3 to 8 GiB go to nobody's
account, on six starts on a GB10."""
UNIFIED_NOTE = Message(
    "The GPU shares its memory with the CPU: what the driver says is taken counts the system's page cache too, so that "
    "up to 8 GiB of the overhead depend on what else was read."
)
ANY_LINK = Range(low=0.02, high=1.84)
"""Several GPUs, whatever joins them: 1.84 is the most that a log prints. On two of AMD it is 0.73, in a fork."""
PROFILED = Range(low=0, high=1)
"""Rest of capturing a few graphs to estimate the others, which is done since 0.18 before the memory that is left is
read (`gpu_worker.py: determine_available_memory`), whether or not the estimate is then taken off: kernels that are
loaded by then. 0.46 to 0.55 on four starts, 1.3 on one, on one H100, one RTX 3090 and 8 x H100; 0.3 on two A100."""


def non_torch(gpu: GPU, gpus: int, options: VLLMOptions) -> Range:
    """GiB of non-torch memory on this GPU, of so many. Graphs may be captured to estimate what they take."""
    links = linked(gpu, gpus, options)
    estimates = not options.enforce_eager and holds("graphs are estimated", options) and gpu.platform == "cuda"
    return Range(low=links.low + PROFILED.low, high=links.high + PROFILED.high) if estimates else links


def linked(gpu: GPU, gpus: int, options: VLLMOptions) -> Range:
    """GiB of libraries and of buffers between so many of this GPU."""
    if gpu.memory == "unified":
        return UNIFIED
    if gpus == 1:
        return libraries(1)
    if gpu.platform != "cuda":
        return ANY_LINK
    if gpu.form == "superchip":
        return SUPERCHIPS
    if gpu.topology not in ("switch", "full mesh", "cube mesh"):
        return PCIE
    if not holds("links take less", options):
        return OLD_SWITCHED
    middle = SWITCHED + EACH_SWITCHED * min(gpus, NODE)
    return Range(low=max(PCIE.low, middle - SWITCHED_SPREAD), high=middle + SWITCHED_SPREAD)
