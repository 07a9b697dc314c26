"""vLLM: sets its cache aside at start, from what profiling leaves of its share of the GPU."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import ceil
from typing import ClassVar, Self

from calc.errors import Message, Refusal
from calc.formats import COMPRESSED_TENSORS, MODELOPT, CacheFormat, Precision, WeightFormat
from calc.hardware.engine_rules import EngineSupport
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU
from calc.hardware.overhead import CUDA_CONTEXT, NONE, OverheadItem, Range, libraries
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.model.named import Peak
from calc.serving.engines.cache import Cache, Pool
from calc.serving.engines.launch import (
    Image,
    Launch,
    Separation,
    ServerRole,
    Spelling,
    cached,
    combined,
    degrees,
    quantized,
    stated,
)
from calc.serving.engines.loading import TensorLoader, rotary_tables, up_to
from calc.serving.engines.rules import (
    SUPPORT,
    VOCABULARY,
    broken_expert_groups,
    broken_groups,
    broken_tiles,
    even_stages,
    without_cache,
    without_cache_in,
    without_foreign_cache,
)
from calc.serving.engines.sizes import Budget, GPUAtStart, HostCache, LaidOut, Limits, LoadedWeights
from calc.serving.engines.vllm.cache import CachePlan, Division, divide, is_a100, limits, share_of
from calc.serving.engines.vllm.drafts import SPECULATION, VLLMDrafts
from calc.serving.engines.vllm.encoder import encoder_pass
from calc.serving.engines.vllm.kernels import Capability, capability
from calc.serving.engines.vllm.layers import state_bytes
from calc.serving.engines.vllm.loading import FUSED, expert_padding, runs_triton
from calc.serving.engines.vllm.options import VLLMOptions, holds
from calc.serving.engines.vllm.rules import (
    missing_kernels,
    smallest_group,
    unfit_flags,
    unread_gptq,
    unserved_family,
    unshared_tokens,
    without_adapters,
)
from calc.serving.engines.vllm.working_memory import (
    ANY_GRAPHS,
    ANY_LINK,
    UNIFIED_NOTE,
    graphs_formula,
    graphs_range,
    has_formula,
    non_torch,
    profile_peaks,
    sampler,
)
from calc.serving.workload import Workload
from calc.units import GIB

STEPS, SEQUENCES, SHARE = (8192, 4096, 2048, 1024, 512), (256, 128, 64, 32, 16), 0.95
"""Values to try when the defaults do not do, from mild to strong."""

SIZES = frozenset(
    "max_num_batched_tokens max_num_seqs gpu_memory_utilization enforce_eager mxfp4_kernel kv_offloading_size".split()
)
"""Options on which the cache's groups and blocks do not depend."""
ADAPTERS = ("enable_lora", "max_loras", "max_lora_rank")
OS_PAGE = 4096
"""Bytes of which a row of blocks on the host is a multiple."""
LOADS = (*SPECULATION, *ADAPTERS, "language_model_only", "mxfp4_kernel", "version")
NO_FLAGS: dict[str, tuple[str, ...]] = dict.fromkeys((*SPECULATION, "mxfp4_kernel", "version"), ())
"""Options that say which kernel and version, or that a flag of another form sets."""
CACHE_WORDS: dict[CacheFormat, str] = {
    "fp8": "fp8",
    "fp8_ds_mla": "fp8_ds_mla",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
}
"""Names in `--kv-cache-dtype` (`config/cache.py`, `CacheDType`)."""
ROLES: dict[ServerRole, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}
SEPARATION = Separation(
    flags={
        side: ("--kv-transfer-config", f'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}')
        for side, role in ROLES.items()
    },
    router=("vllm-router", "--vllm-pd-disaggregation"),
    port=8000,
    notes=(Message("Set VLLM_NIXL_SIDE_CHANNEL_HOST to the address of each server."),),
)
"""docs/features/nixl_connector_usage.md, and the README of vllm-project/router."""


class VLLM(VLLMDrafts):
    name: ClassVar[str] = "vllm"
    support: ClassVar[EngineSupport] = SUPPORT["vllm"]
    title: ClassVar[str] = support.title
    versions: ClassVar[str] = "0.33"
    step_option: ClassVar[str] = "max_num_batched_tokens"
    sequences_option: ClassVar[str | None] = "max_num_seqs"
    share_option: ClassVar[str | None] = "gpu_memory_utilization"
    limits_by: ClassVar[tuple[str, ...]] = ("pp",)
    separation: ClassVar[Separation | None] = SEPARATION
    disk_tier: ClassVar[str | None] = "LMCache, max_local_disk_size"  # docs.lmcache.ai, Configuring LMCache
    image: ClassVar[Image | None] = Image(
        names={
            "cuda": "vllm/vllm-openai:latest",
            "rocm": "vllm/vllm-openai-rocm:latest",
            "910B": "quay.io/ascend/vllm-ascend:v0.23.0",
            "910_93": "quay.io/ascend/vllm-ascend:v0.23.0-a3",
            "310P": "quay.io/ascend/vllm-ascend:v0.23.0-310p",
        },
        port=SEPARATION.port,
    )
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("fp8", "int4")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("fp8",)
    cache_from: ClassVar[frozenset[str]] = frozenset((MODELOPT, COMPRESSED_TENSORS))  # utils/torch_utils.py

    options_type: ClassVar[type[VLLMOptions]] = VLLMOptions
    spelling: ClassVar[Spelling] = NO_FLAGS
    weight_options: ClassVar[tuple[str, ...]] = LOADS

    def __init__(self, options: VLLMOptions | None = None, draft_model: Architecture | None = None) -> None:
        super().__init__(options, draft_model)
        self.divisions = dict[tuple[int, int, int, str, Platform | None, Capability | None], Division]()
        """Divisions by model and tensor parallelism; they keep their model, so that no other has the same id."""

    def with_options(self, **changes: object) -> Self:
        """Flags of sizes leave it to what layers keep and how they are grouped."""
        other = super().with_options(**changes)
        if changes.keys() <= SIZES:
            other.divisions = self.divisions
        return other

    def sized_for(self, sequences: int, architecture: Architecture) -> Self:
        """States of more sequences than run would have to have blocks."""
        if self.options.max_num_seqs is not None:
            return self
        enough = [n for n in SEQUENCES if n >= sequences] or ([SEQUENCES[0]] if architecture.recurrent else [])
        return self.with_options(max_num_seqs=enough[-1]) if enough else self

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        yield from broken_tiles(model, precision, layout)
        yield from broken_groups(model, precision, layout)
        yield from broken_expert_groups(model, precision, layout, smallest_group)
        if (padded := up_to(model.vocab, VOCABULARY)) % layout.tp:
            sentence = "The vocabulary, padded to {n:,} rows, does not divide by tp {tp:,}."
            yield Refusal(Message(sentence, n=padded, tp=layout.tp), "tp")
        yield from layout.unspread(model)
        if layout.ep not in (1, ranks := layout.tp * layout.dp):  # `FusedMoEParallelConfig.make`
            sentence = "vLLM spreads experts over all {n:,} ranks or none, not over {ep:,}."
            yield Refusal(Message(sentence, n=ranks, ep=layout.ep), "ep", [1, ranks])
        yield from self.unstaged(model, layout)
        yield from self.undivided_draft(model, layout)
        if layout.dcp > 1:
            yield from unshared_tokens(model, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        yield from without_cache(model)
        yield from without_foreign_cache(precision.kv, self.title)
        yield from without_cache_in(precision, self.title)
        yield from unfit_flags(model, self.options)
        yield from unread_gptq(precision, self.options)
        yield from without_adapters(model, self.options)
        yield from self.draft_refusals(model)
        yield from super().model_refusals(model, precision)

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """Layers of each stage; the remainder goes one each to the last stages but the very last, which holds the head
        (`get_pp_indices`)."""
        return even_stages(layers, pp, first=pp - 1 - layers % pp)

    def vocabulary(self, rows: int, tp: int) -> int:
        return rows if tp == 1 else -(-up_to(rows, VOCABULARY) // tp)

    @property
    def free_at_start(self) -> float | None:
        """`request_memory` of `v1/worker/utils.py`."""
        return share_of(self.options) if holds("its share must be free", self.options) else None

    @property
    def loads_vision(self) -> bool:
        return not self.options.language_model_only

    @property
    def loader(self) -> TensorLoader:
        return TensorLoader(
            fused=FUSED,
            vocabulary=VOCABULARY,
            undoes_double_quantization=True,
            absorbs_latents=True,
            experts=expert_padding(self.options),
            least_group=smallest_group,
            adapter_rows=self.options.max_loras * self.options.max_lora_rank if self.options.enable_lora else 0,
        )

    def for_gpu(self, gpu: GPU, architecture: Architecture) -> Self:
        triton = self.options.mxfp4_kernel is None and runs_triton(self.options, architecture, gpu)
        return self.with_options(mxfp4_kernel="triton") if triton else self

    def tables(self, rank: Architecture) -> LoadedWeights:
        return rotary_tables(rank)

    def kernels_on(self, gpu: GPU) -> tuple[Hashable, ...]:
        return *super().kernels_on(gpu), is_a100(gpu)

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        return limits(self.options, gpu, architecture, workload.context, pp=layout.pp)

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        return state_bytes(architecture, blocks, self.options)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> Cache | None:
        return self.cache_over(laid_out.ranges, laid_out, gpu, limits)

    def cache_over(self, stages: Sequence[range], laid_out: LaidOut, gpu: GPU, limits: Limits) -> CachePlan | None:
        return self.division(laid_out, gpu).plan(stages, limits)

    def division(self, laid_out: LaidOut, gpu: GPU) -> Division:
        whole, layout, kv = laid_out.whole, laid_out.layout, laid_out.precision.kv
        key = id(whole), layout.tp, layout.dcp, kv, gpu.platform, capability(gpu)
        if key not in self.divisions:
            draft = self.guesser(whole)
            draft = draft and Layout(tp=layout.tp).rank(draft)
            self.divisions[key] = divide(whole, laid_out.rank, kv, self.options, gpu, layout.tp, layout.dcp, draft)
        return self.divisions[key]

    def host_cache(self, laid_out: LaidOut, pool: Pool, blocks: int, length: int) -> HostCache | None:
        """Rows of a block of every rank, whole pages of the operating system, as many as go into the size
        (`v1/kv_offload/cpu/spec.py: CPUOffloadingSpec`)."""
        options, layout = self.options, laid_out.layout
        if options.kv_offloading_size is None or options.kv_offloading_backend != "native":
            return None
        block = max(pool.block_bytes)
        row = up_to(block * layout.tp * layout.pp, OS_PAGE)
        rows = int(options.kv_offloading_size * GIB) // row
        return HostCache(
            blocks=rows,
            block_bytes=row,
            bytes_per_rank=rows * block,
            bytes=rows * row * layout.dp,
            tokens=pool.tokens(rows, length),
            concurrency=pool.concurrency(rows, length),
        )

    def left_out(self) -> Iterator[Message]:
        """`VllmConfig._post_init_kv_transfer_config`: the size reaches the native backend alone."""
        yield from super().left_out()
        if self.options.kv_offloading_backend == "lmcache":
            yield Message(
                "LMCache's own server keeps the cache on the host and says how much; kv_offloading_size only turns it "
                "on."
            )

    @property
    def adapters(self) -> tuple[int, int]:
        """Every worker keeps them whole, pinned (`lora/lora_model.py: from_lora_tensors`; `LoRAConfig`)."""
        options = self.options
        return (options.max_loras, options.max_cpu_loras or options.max_loras) if options.enable_lora else (0, 0)

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        yield from super().gpu_refusals(gpu, laid_out)
        division = self.division(laid_out, gpu)
        yield from unserved_family(division.rank, self.options)
        yield from missing_kernels(division, gpu)

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        part = laid_out.stages[stage]
        return profile_peaks(
            [write.apply(block) for block in part.blocks],
            write.of("hidden", laid_out.rank.hidden),
            write.of("vocab", laid_out.whole.vocab) if part.last and not laid_out.whole.pooled else 0,
            tokens=write.of("step_tokens", limits.step_tokens),
            sequences=write.of("sequences", limits.sequences),
            width=laid_out.precision.activation_bytes,
            sampler=sampler(self.options, several=laid_out.layout.tp > 1),
            auxiliary=self.auxiliary,
            encoder_bytes=write.of("encoder_bytes", limits.encoder_bytes) if limits.encoder_bytes else 0,
            encoder=encoder_pass(laid_out.whole, limits.image_patches, laid_out.layout.tp) if part.last else {},
        )

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        graphs = NONE if self.options.enforce_eager else ANY_GRAPHS
        outside = ANY_LINK if gpus > 1 else libraries(gpus)
        return {"cuda_context": CUDA_CONTEXT, "libraries": outside, "cuda_graphs": graphs}

    def overhead_on(self, gpu: GPU, laid_out: LaidOut, limits: Limits) -> Mapping[OverheadItem, Range]:
        """Graphs by their number and layers, non-torch memory by what joins the GPUs."""
        gpus, layers = laid_out.layout.gpus, max(map(len, laid_out.ranges))
        graphs = graphs_range(self.options, limits, gpu, layers, several=gpus > 1, draft_layers=self.passing_layers)
        outside = non_torch(gpu, gpus, self.options)
        return {"cuda_context": CUDA_CONTEXT, "libraries": outside, "cuda_graphs": graphs}

    def overhead_notes(self, gpu: GPU, laid_out: LaidOut, limits: Limits) -> Iterator[Message]:
        if has_formula(self.options, gpu):
            yield graphs_formula(self.options, limits, max(map(len, laid_out.ranges)))
        if gpu.memory == "unified":
            yield UNIFIED_NOTE

    def budget(self, limits: Limits, gpu: GPUAtStart) -> Budget:
        """Its share of the GPU less what it holds (`determine_available_memory`); a CUDA context is there before it
        looks. Or as much cache as is stated, on top of what it holds, whatever the share."""
        total, loaded, working, stated, overhead = gpu
        own = {"weights": loaded, "activations": working, "libraries": overhead["libraries"]}
        outside = overhead["cuda_context"]
        if holds("graphs are of its share", self.options):
            own["cuda_graphs"] = overhead["cuda_graphs"]
        else:
            outside += overhead["cuda_graphs"]
        requested = ceil(total * (limits.share or 1))
        if stated is not None:
            requested = sum(own.values()) + stated
        looks = stated is not None or holds("its share must be free", self.options)
        shortage = max(0, requested + outside - total) if looks else 0
        return Budget(requested, own, outside, shortage)

    def request_refusals(self, workload: Workload, limits: Limits) -> Iterator[Refusal]:
        """Steps that a text of a model without a cache does not go into (`SchedulerConfig.verify_max_model_len`)."""
        if limits.share is None and workload.context > limits.step_tokens:
            sentence = (
                "Each token sees the whole text: {context:,} tokens do not go into steps of {most:,} "
                "(max_num_batched_tokens)."
            )
            message = Message(sentence, context=workload.context, most=limits.step_tokens)
            yield Refusal(message, "max_num_batched_tokens", [workload.context])

    def launch(
        self,
        model: str,
        precision: Precision,
        layout: Layout,
        length: int,
        sequences: int = 1,
        *,
        sparse: bool = False,
    ) -> Launch:
        """`vllm serve`. Experts are spread over all ranks or none (`--enable-expert-parallel`)."""
        sizes = {
            "--tensor-parallel-size": layout.tp,
            "--pipeline-parallel-size": layout.pp,
            "--data-parallel-size": layout.dp,
            "--decode-context-parallel-size": layout.dcp,
        }
        quantize, notes = quantized(precision)
        return Launch(
            words=(
                *("vllm", "serve", model),
                *degrees(sizes),
                *(("--enable-expert-parallel",) if layout.ep > 1 else ()),
                *("--max-model-len", str(length)),
                *quantize,
                *cached(precision, CACHE_WORDS),
                *self.speculation,
                *stated(self.options, self.spelling),
            ),
            notes=notes,
        )

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        changes: dict[str, list[object]] = {
            "gpu_memory_utilization": [SHARE],
            "max_num_seqs": [n for n in SEQUENCES if workload.batch <= n < limits.sequences],
            "max_num_batched_tokens": [n for n in STEPS if n < limits.step_tokens],
            "enforce_eager": [True],
        }
        return combined(self.options, changes)
