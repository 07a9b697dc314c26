"""SGLang: a share of the free memory is for weights and cache, the rest for what a pass takes.

Read in SGLang 0.5.23: `arg_groups/memory_hook.py` (defaults), `mem_cache/kv_cache_configurator.py` (the memory for the
pools), `distributed/utils.py` (pipeline stages), `layers/vocab_parallel_embedding.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from calc.errors import Message
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.formats.stored import Piece
from calc.hardware.gpu import GPU
from calc.hardware.overhead import CUDA_CONTEXT, NONE, OverheadItem, Range, libraries
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.derivation import NUMBERS, Numbers
from calc.model.linear_attention import KimiDelta
from calc.model.mixers import CompressedAttention
from calc.model.mla import LatentAttention
from calc.model.named import Peak
from calc.serving.engines.engine import Budget, Engine, LaidOut, Limits, LoadedWeights, reads_another_cache
from calc.serving.engines.launch import Launch, degrees, quantised, stated
from calc.serving.engines.layouts import broken_tiles
from calc.serving.engines.loading import Loader, rotary_tables, up_to
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.sglang.pool import TokenPool
from calc.serving.engines.vllm.engine import FUSED
from calc.serving.engines.vllm.profile import profile_peaks
from calc.serving.workload import Workload
from calc.units import GIB, MIB

VOCABULARY = 64
"""Rows of embedding and head come in multiples of it (`vocab_parallel_embedding.py`)."""
TIERS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""GiB of the GPU below which hold: tokens of a prefill chunk, and the largest batch of CUDA graphs with fewer than four
ranks and with more (`handle_gpu_memory_settings`)."""
LARGEST = (16_384, 512, 512)
LARGE, LARGE_RESERVE = 60 * 1024, 10 * 1024
"""MiB: of a GPU larger than the first at least the second is kept free."""
CUDA_GRAPHS = Range(low=0.1, high=4)
"""GiB. A log of SGLang has 1.04 ("Capture cuda graph end", github.com/sgl-project/sglang/pull/12978); how far others
are from it is an assumption."""
SEQUENCES = 2048
"""Sequences at once, at least, where no flag says how many (`resolve_max_num_reqs`)."""
STEPS, SHARE = (4096, 2048, 1024), 0.9
"""What is tried when the defaults do not do."""

SPELLING = {
    "cuda_graph_max_bs": ("--cuda-graph-max-bs-decode",),
    "disable_cuda_graph": ("--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"),
}
"""Flags that have other names since 0.5.23."""


class SGLang(Engine):
    name: ClassVar[str] = "sglang"
    title: ClassVar[str] = "SGLang"
    versions: ClassVar[str] = "0.5.23"
    step_option: ClassVar[str] = "chunked_prefill_size"
    sequences_option: ClassVar[str | None] = "max_running_requests"
    share_option: ClassVar[str | None] = "mem_fraction_static"
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("fp8", "int4")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("fp8",)
    loads_draft: ClassVar[bool] = False

    options: SGLangOptions
    options_type: ClassVar[type[SGLangOptions]] = SGLangOptions

    def refusal(self, architecture: Architecture, precision: Precision) -> Message | None:
        return reads_another_cache(architecture)

    def unaccepted(self, architecture: Architecture, precision: Precision, layout: Layout) -> Message | None:
        return broken_tiles(architecture, precision, layout)

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """What does not divide goes one each to the last stages (`get_pp_indices`)."""
        each, more = divmod(layers, pp)
        start = 0
        for stage in range(pp):
            stop = start + each + (stage >= pp - more)
            yield range(start, stop)
            start = stop

    def vocabulary(self, rows: int, tp: int) -> int:
        """Padded to 64, or where tp does not divide that, to 64 for each rank."""
        padded = up_to(rows, VOCABULARY)
        return rows if tp == 1 else (up_to(rows, VOCABULARY * tp) if padded % tp else padded) // tp

    @property
    def loads_vision(self) -> bool:
        return not self.options.language_model_only

    def with_draft(self, architecture: Architecture) -> Architecture:
        return architecture

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        loader = Loader(fused=FUSED, vocabulary=VOCABULARY, absorbs_latents=True)
        return loader.loaded(rank, pieces, stage, layout)

    def tables(self, rank: Architecture) -> LoadedWeights:
        return rotary_tables(rank)

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """Defaults by the GPU's memory; the share leaves what a chunk and CUDA graphs are reckoned to take."""
        options, ranks = self.options, layout.tp * layout.dp  # it counts data-parallel attention within its tp
        chunk, few, many = next((tier[1:] for tier in TIERS if gpu.memory_bytes < tier[0] * GIB), LARGEST)
        step = options.chunked_prefill_size or chunk
        usual = few if ranks < 4 else many
        batch = options.cuda_graph_max_bs or min(usual, options.max_running_requests or usual)
        total = gpu.memory_bytes / MIB
        reserved = 512 + max(step, 2048) * 1.5 + ranks * layout.pp * 128
        if not options.disable_cuda_graph:
            reserved += decode_graphs(batch, layout.dp) + prefill_graphs(step, architecture, layout, self.loads_vision)
        if total > LARGE:
            reserved = max(reserved, LARGE_RESERVE)
        share = options.mem_fraction_static or round((total - reserved) / total, 3)
        sequences = options.max_running_requests or SEQUENCES
        return Limits(step_tokens=step, sequences=sequences, share=share, in_flight_tokens=step)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> TokenPool:
        stages = [stage.blocks for stage in laid_out.stages]
        return TokenPool(laid_out.whole.model_type, stages, laid_out.precision.kv, self.options)

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        """Those of a prefill chunk; logits are of the few sequences that it ends."""
        blocks = [write.apply(block) for block in laid_out.stages[stage].blocks]
        hidden, tokens = write.of("hidden", laid_out.rank.hidden), write.of("step_tokens", limits.step_tokens)
        return profile_peaks(blocks, hidden, 0, tokens=tokens, sequences=0, width=laid_out.precision.activation_bytes)

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        graphs = NONE if self.options.disable_cuda_graph else CUDA_GRAPHS
        return {"cuda_context": CUDA_CONTEXT, "libraries": libraries(gpus), "cuda_graphs": graphs}

    def budget(
        self,
        total: int,
        limits: Limits,
        loaded: int,
        working: int,
        overhead: Mapping[OverheadItem, int],
        stated: int | None,
    ) -> Budget:
        """Its share of what is free before loading, less weights (`_profile_available_bytes`); the rest must hold a
        pass and its graphs."""
        free = total - overhead["cuda_context"] - overhead["libraries"]
        requested = int(free * (limits.share or 1))
        missing = max(0, requested + working + overhead["cuda_graphs"] - free)
        return Budget(requested, {"weights": loaded}, sum(overhead.values()), missing)

    def launch(self, model: str, precision: Precision, layout: Layout, length: int) -> Launch:
        """`sglang.launch_server`. Its tensor-parallel ranks are all that share a layer, of which attention makes
        groups."""
        sizes = {
            "--tp-size": layout.tp * layout.dp,
            "--pp-size": layout.pp,
            "--attn-dp-size": layout.dp,
            "--ep-size": layout.ep,
        }
        quantise, notes = quantised(precision)
        return Launch(
            words=(
                *("python", "-m", "sglang.launch_server", "--model-path", model),
                *degrees(sizes),
                *("--context-length", str(length)),
                *quantise,
                *(("--kv-cache-dtype", "fp8_e4m3") if precision.kv == "fp8" else ()),
                *stated(self.options, SPELLING),
            ),
            notes=notes,
        )

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """A larger share, then smaller chunks, then both."""
        larger = self.options.mem_fraction_static is None and limits.share is not None and limits.share < SHARE
        shares: list[dict[str, object]] = [{"mem_fraction_static": SHARE}] if larger else []
        steps = [n for n in STEPS if n < limits.step_tokens] if self.options.chunked_prefill_size is None else []
        chunks: list[dict[str, object]] = [{"chunked_prefill_size": step} for step in steps]
        yield from shares
        yield from chunks
        yield from (share | chunk for share in shares for chunk in chunks)


def decode_graphs(batch: int, dp: int) -> float:
    """MiB that are kept free for CUDA graphs up to a batch; copies of the attention are padded to each other's size."""
    padding = (3 if batch <= 300 else 4.5) * batch * dp if dp > 1 else 0
    return 2 * batch + padding


def prefill_graphs(most: int, architecture: Architecture, layout: Layout, loads_vision: bool) -> int:
    """The same for graphs of prompts up to so many tokens, which some models and pipelines go without
    (`disable_breakable_cudagraph_if_incompatible`): 8 MiB for each, 1,536 for all with a latent."""
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    images = loads_vision and architecture.vision is not None
    if layout.pp > 1 or images or any(isinstance(m, KimiDelta | CompressedAttention) for m in mixers):
        return 0
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return 1536
    lengths = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    lengths += [*range(1280, 4097, 256), *range(4608, most + 1, 512)]
    return 8 * len([length for length in lengths if length <= most])
