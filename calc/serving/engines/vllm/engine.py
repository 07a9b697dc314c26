"""vLLM: sets its cache aside at start, from what profiling leaves of its share of the GPU.

Drafts were read in the wheels of vLLM 0.11 to 0.33 (`config/speculative.py`, `model_executor/models/llama_eagle3.py`,
`v1/worker/gpu/spec_decode/eagle/utils.py`), how kernels pad routed experts in MXFP4 in `oracle/mxfp4.py`.
"""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar, Self

from calc.errors import Message, Refusal
from calc.formats import COMPRESSED_TENSORS, MODELOPT, CacheFormat, Precision, WeightFormat
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU
from calc.hardware.overhead import CUDA_CONTEXT, NONE, OverheadItem, Range, libraries
from calc.hardware.parallel import Layout
from calc.hardware.shards import AS_RUN, OutsideRules
from calc.model.architecture import Architecture
from calc.model.block import Block, PredictionModule
from calc.model.derivation import NUMBERS, Numbers
from calc.model.feedforward import RankGroups
from calc.model.named import Peak
from calc.serving.engines.cache import Pool
from calc.serving.engines.drafts import DraftingEngine
from calc.serving.engines.families import class_family, families, undivided, versions
from calc.serving.engines.launch import (
    Image,
    Launch,
    RoleFlags,
    ServerRole,
    ServerStart,
    Spelling,
    cache_dtype_flags,
    option_combinations,
    parallel_flags,
    quantized,
    set_flags,
)
from calc.serving.engines.loading import FUSED, ExpertPadding, round_up
from calc.serving.engines.rules import (
    VOCABULARY,
    broken_expert_groups,
    broken_groups,
    broken_tiles,
    even_stages,
    with_other_rates,
    without_cache,
    without_cache_in,
)
from calc.serving.engines.sizes import Budget, GPUAtStart, HostCache, LaidOut, Limits
from calc.serving.engines.vllm.cache import CachePlan, Division, divide, is_a100, limits, share_of
from calc.serving.engines.vllm.encoder import encoder_pass
from calc.serving.engines.vllm.layers import TRITON_EXPERTS, Capability, capability, compresses, family_of, state_bytes
from calc.serving.engines.vllm.options import Version, VLLMOptions, holds
from calc.serving.engines.vllm.rules import (
    missing_kernels,
    smallest_group,
    spelled,
    undivided_groups,
    unfit_flags,
    unread_gptq,
    unserved_family,
    unshared_tokens,
    without_adapters,
    without_dtype,
)
from calc.serving.engines.vllm.working_memory import (
    ANY_GRAPHS,
    ANY_LINK,
    EXPERTS,
    OUTPUT_OF_EXPERTS,
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

SPECULATION = ("speculative", "num_speculative_tokens", "model_draft", "weights_draft")
"""Options that one flag says."""
SPLIT_TOKENS, SPLIT_ON_ONE_STAGE, SPLIT_DENSE = (
    families("vllm", rule) for rule in ("split_tokens", "split_on_one_stage", "split_dense")
)
BY_TRANSFORMERS, EAGLE_ON_STAGES = families("vllm", "by_transformers"), families("vllm", "eagle_on_stages")
PREDICTED_SINCE = versions("vllm", "predicted_since")
NO_DRAFT_MODELS: tuple[Version, Version] = (0, 11), (0, 15)
"""Versions from the one that took the first engine out to that before the second got them (`v1/spec_decode`)."""

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
MARLIN = ExpertPadding(hidden=256, inner=128)
TRITON = ExpertPadding(inner=64, scale_rows=256, fp32_bias=True)
"""`triton_kernels`, which come with vLLM: `hopper_value.py`, `hopper_scale.py` with eight warps."""
EXPERTS_CHUNK = 16_384
"""Tokens that routed experts took at once before (`VLLM_FUSED_MOE_CHUNK_SIZE`)."""
PADDED_ROW = 64
"""Bytes of which a row of values is a multiple in the `triton_kernels` of 0.17 to 0.21."""
ROLES: dict[ServerRole, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}
ROLE_FLAGS = RoleFlags(
    flags={
        side: ("--kv-transfer-config", f'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}')
        for side, role in ROLES.items()
    },
    router=("vllm-router", "--vllm-pd-disaggregation"),
    port=8000,
    notes=(Message("Set VLLM_NIXL_SIDE_CHANNEL_HOST to the address of each server."),),
)
"""docs/features/nixl_connector_usage.md, and the README of vllm-project/router."""


class VLLM(DraftingEngine):
    name: ClassVar[str] = "vllm"
    versions: ClassVar[str] = "0.33"
    step_option: ClassVar[str] = "max_num_batched_tokens"
    sequences_option: ClassVar[str | None] = "max_num_seqs"
    share_option: ClassVar[str | None] = "gpu_memory_utilization"
    method_option: ClassVar[str] = "speculative"
    draft_option: ClassVar[str] = "model_draft"
    without_draft: ClassVar[tuple[str, ...]] = ("none", "ngram")
    limits_by: ClassVar[tuple[str, ...]] = ("pp",)
    plans_by_ranges = True
    disaggregation: ClassVar[RoleFlags | None] = ROLE_FLAGS
    disk_tier: ClassVar[str | None] = "LMCache, max_local_disk_size"  # docs.lmcache.ai, Configuring LMCache
    image: ClassVar[Image | None] = Image(
        names={
            "cuda": "vllm/vllm-openai:latest",
            "rocm": "vllm/vllm-openai-rocm:latest",
            "910B": "quay.io/ascend/vllm-ascend:v0.23.0",
            "910_93": "quay.io/ascend/vllm-ascend:v0.23.0-a3",
            "310P": "quay.io/ascend/vllm-ascend:v0.23.0-310p",
        },
        port=ROLE_FLAGS.port,
    )
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("fp8", "int4")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("fp8",)
    cache_from: ClassVar[frozenset[str]] = frozenset((MODELOPT, COMPRESSED_TENSORS))  # utils/torch_utils.py

    options: VLLMOptions
    options_type: ClassVar[type[VLLMOptions]] = VLLMOptions
    spelling: ClassVar[Spelling] = NO_FLAGS
    weight_options: ClassVar[tuple[str, ...]] = LOADS
    rotary_width: ClassVar[int] = 2
    fused = FUSED
    vocabulary_multiple = VOCABULARY
    undoes_double_quantization = True
    absorbs_latents = True
    repeats_keys = True
    least_group = staticmethod(smallest_group)

    def __init__(self, options: VLLMOptions | None = None, draft_model: Architecture | None = None) -> None:
        super().__init__(options, draft_model)
        self.divisions: dict[tuple[int, int, int, str, Platform | None, Capability | None], Division] = {}
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
        groups = self.groups(model, layout)
        yield from broken_tiles(model, precision, layout, groups)
        yield from broken_groups(model, precision, layout, groups)
        yield from broken_expert_groups(model, precision, layout, smallest_group)
        if (padded := round_up(model.vocab, VOCABULARY)) % layout.tp:
            sentence = "The vocabulary, padded to {n:,} rows, does not divide by tp {tp:,}."
            yield Refusal(Message(sentence, n=padded, tp=layout.tp), "tp")
        if layout.tp > 1:
            yield from undivided_groups(model, layout.tp)
        yield from layout.unspread(model)
        yield from undivided(self.name, self.title, model, layout, layout.tp)
        if layout.ep not in (1, ranks := layout.tp * layout.dp):  # `FusedMoEParallelConfig.make`
            sentence = "vLLM spreads experts over all {n:,} ranks or none, not over {ep:,}."
            yield Refusal(Message(sentence, n=ranks, ep=layout.ep), "ep", [1, ranks])
        if groups is not None and self.options.enable_lora:  # `lora/layers/fused_moe.py: _ep_check`
            sentence = "vLLM serves no LoRA adapters where copies of several ranks (dp with tp) spread experts (ep)."
            yield Refusal(Message(sentence), "enable_lora", ["false"])
        yield from self.unstaged(model, layout)
        yield from self.draft_layout_refusals(model, layout)
        if layout.dcp > 1:
            yield from unshared_tokens(model, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        yield from without_cache(model)
        yield from with_other_rates(model, self.title)
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
        return rows if tp == 1 else -(-round_up(rows, VOCABULARY) // tp)

    def groups(self, model: Architecture, layout: Layout) -> RankGroups | None:
        """Each rank alone for shared experts, where copies of several ranks spread experts: it takes its part of its
        copy's tokens (`ParallelConfig.use_sequence_parallel_moe`)."""
        family = model.model_type
        splits = family in SPLIT_TOKENS or (family in SPLIT_ON_ONE_STAGE and layout.pp == 1)
        if not splits or min(layout.tp, layout.dp, layout.ep) == 1:
            return None
        return RankGroups(dense=1 if family in SPLIT_DENSE and layout.pp == 1 else layout.tp, shared=1, head=layout.tp)

    @property
    def free_at_start(self) -> float | None:
        """`request_memory` of `v1/worker/utils.py`."""
        return share_of(self.options) if holds("its share must be free", self.options) else None

    @property
    def loads_vision(self) -> bool:
        return not self.options.language_model_only

    @property
    def experts(self) -> ExpertPadding:
        """Padding by the kernel in the options."""
        if self.options.mxfp4_kernel != "triton":
            return MARLIN
        padded = holds("rows of experts are padded", self.options)
        return TRITON._replace(
            row_bytes=PADDED_ROW if padded and not holds("rows of experts are as they are", self.options) else 1,
            keeps_scales=not holds("scales of experts are freed", self.options),
        )

    @property
    def adapter_rows(self) -> int:
        return self.options.max_loras * self.options.max_lora_rank if self.options.enable_lora else 0

    def for_gpu(self, gpu: GPU, architecture: Architecture) -> Self:
        """Triton where no option says so: with gpt-oss on Hopper, whose adapters Marlin serves."""
        options, hopper = self.options, capability(gpu) == (9, 0)
        triton = hopper and options.mxfp4_kernel is None and holds("Triton comes with it", options)
        triton = triton and family_of(architecture) in TRITON_EXPERTS and not options.enable_lora
        return self.with_options(mxfp4_kernel="triton") if triton else self

    def kernel_key(self, gpu: GPU) -> tuple[Hashable, ...]:
        return *super().kernel_key(gpu), is_a100(gpu)

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        return limits(self.options, gpu, architecture, workload.context, pp=layout.pp)

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        return state_bytes(architecture, blocks, self.options)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> CachePlan | None:
        return self.division(laid_out, gpu).plan(laid_out.ranges, limits)

    def division(self, laid_out: LaidOut, gpu: GPU) -> Division:
        whole, layout, kv = laid_out.whole, laid_out.layout, laid_out.precision.kv
        key = id(whole), layout.tp, layout.dcp, kv, gpu.platform, capability(gpu)
        if key not in self.divisions:
            draft = self.draft_architecture(whole)
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
        row = round_up(block * layout.tp * layout.pp, OS_PAGE)
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
        yield from without_dtype(laid_out, gpu)
        yield from missing_kernels(division, gpu)

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        """Peaks of the profile run; experts take the tokens of all data-parallel ranks, with or without expert
        parallelism (`all2all_utils.py: maybe_make_prepare_finalize`, by default `allgather_reducescatter`)."""
        part, copies = laid_out.stages[stage], laid_out.layout.dp
        if not holds("experts take a whole step", self.options):
            copies = max(1, min(copies, EXPERTS_CHUNK // limits.step_tokens))
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
            gathered={EXPERTS: copies, OUTPUT_OF_EXPERTS: copies},
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
        """Steps that a text of a model without a cache does not go into, or that have fewer tokens than sequences may
        run (`SchedulerConfig.verify_max_model_len`); or than an image or video has that is not cut
        (`encoder_cache_manager.py: compute_mm_encoder_budget`)."""
        if limits.sequences > limits.step_tokens:
            sentence = (
                "vLLM does not start with more sequences (max_num_seqs, {sequences:,}) than tokens of a step "
                "(max_num_batched_tokens, {tokens:,})."
            )
            message = Message(sentence, sequences=limits.sequences, tokens=limits.step_tokens)
            yield Refusal(message, "max_num_seqs", [limits.step_tokens])
        if limits.least_step > limits.step_tokens:
            sentence = (
                "vLLM does not cut images or videos of this model, of which one has up to {least:,} tokens: a step of "
                "{tokens:,} (max_num_batched_tokens) is too short."
            )
            message = Message(sentence, least=limits.least_step, tokens=limits.step_tokens)
            yield Refusal(message, "max_num_batched_tokens", [limits.least_step])
        if limits.share is None and workload.context > limits.step_tokens:
            sentence = (
                "Each token sees the whole text: {context:,} tokens do not go into steps of {most:,} "
                "(max_num_batched_tokens)."
            )
            message = Message(sentence, context=workload.context, most=limits.step_tokens)
            yield Refusal(message, "max_num_batched_tokens", [workload.context])

    def launch(self, start: ServerStart) -> Launch:
        """`vllm serve`. Experts are spread over all ranks or none (`--enable-expert-parallel`)."""
        sizes = {
            "--tensor-parallel-size": start.layout.tp,
            "--pipeline-parallel-size": start.layout.pp,
            "--data-parallel-size": start.layout.dp,
            "--decode-context-parallel-size": start.layout.dcp,
        }
        quantize, notes = quantized(start.precision)
        if start.positions is not None and start.length > start.positions:
            sentence = (
                "vLLM does not start with more than the {most:,} tokens of config.json unless "
                "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set, or --hf-overrides scales the positions (YaRN)."
            )
            notes = (*notes, Message(sentence, most=start.positions))
        return Launch(
            words=(
                *("vllm", "serve", start.model),
                *parallel_flags(sizes),
                *(("--enable-expert-parallel",) if start.layout.ep > 1 else ()),
                *("--max-model-len", str(start.length)),
                *quantize,
                *cache_dtype_flags(start.precision, CACHE_WORDS),
                *self.speculation,
                *set_flags(self.options, self.spelling),
            ),
            notes=notes,
        )

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        least = max(limits.least_step, self.options.max_num_seqs or 1)
        changes: dict[str, list[object]] = {
            "gpu_memory_utilization": [SHARE],
            "max_num_seqs": [n for n in SEQUENCES if workload.batch <= n < limits.sequences],
            "max_num_batched_tokens": [n for n in STEPS if least <= n < limits.step_tokens],
            "enforce_eager": [True],
        }
        return option_combinations(self.options, changes)

    @property
    def drafter(self) -> str:
        return self.options.speculative

    @property
    def draft_tokens(self) -> int:
        return self.options.draft_tokens

    @property
    def draft_precision(self) -> Precision:
        return Precision(weights=self.options.weights_draft or "bf16")

    @property
    def passing_layers(self) -> int:
        """Layers that one drafted token passes: of a draft model all, else one (`deepseek_mtp.py`)."""
        if self.drafter in ("none", "ngram"):
            return 0
        return self.draft_model.num_layers if self.drafter == "draft_model" and self.draft_model is not None else 1

    def outside_rules(self, model: Architecture) -> OutsideRules:
        return AS_RUN if class_family(model) in BY_TRANSFORMERS else super().outside_rules(model)

    def with_draft(self, architecture: Architecture) -> Architecture:
        """The model with its draft layers: its own, which read its embedding and its head
        (`load_eagle_model`), or EAGLE's, one more like the last behind a projection of [state; embedding]."""
        if self.drafter == "mtp":
            shared = {"embedding": None} | ({"head": None} if holds("guesses share the head", self.options) else {})
            own = tuple(module.model_copy(update=shared) for module in architecture.prediction)
            changed = own != architecture.prediction
            return architecture.model_copy(update={"prediction": own}) if changed else architecture
        if self.drafter != "eagle":
            return architecture
        after = architecture.num_layers
        (last,) = (block for block in architecture.blocks if after - 1 in block.layers)
        block = last.model_copy(update={"layers": (after,), "places": ()})
        module = PredictionModule(block=block, norms=(), projection=("fc",))
        return architecture.model_copy(update={"prediction": (module,)})

    def draft_tables(self, architecture: Architecture, tp: int, stages: int) -> int:
        """The embedding once more for the model's own layers or a head, which read it far from the first stage."""
        width = architecture.d_embedding or architecture.hidden
        at_end = architecture.tied or "embedding" in self.outside_rules(architecture).on_every_stage
        own = not at_end if self.reads_embedding(architecture) else self.drafter == "mtp"
        return 2 * self.vocabulary(architecture.vocab, tp) * width if own and stages > 1 else 0

    def mtp_refusals(self, model: Architecture, family: str) -> Iterator[Refusal]:
        options, layers = self.options, len(model.prediction)
        if not layers:
            sentence = "This model has no multi-token prediction (MTP) layer; eagle adds one of its layers."
            yield Refusal(Message(sentence), "speculative", ["eagle"])
        elif (since := PREDICTED_SINCE.get(family)) is None:
            sentence = "{engine} has no multi-token prediction (MTP) for models of the family {family}."
            yield Refusal(Message(sentence, engine=self.title, family=family), "speculative", self.without_draft)
        elif options.is_older_than(*since):
            sentence = (
                "vLLM has multi-token prediction (MTP) for models of the family {family} from version {version} on."
            )
            version = spelled(since)
            yield Refusal(Message(sentence, family=family, version=version), "version", [version])
        if layers and options.draft_tokens > layers and options.draft_tokens % layers:
            sentence = "{n} draft tokens are no multiple of the {layers} layers that propose them."
            below = options.draft_tokens - options.draft_tokens % layers
            near = [below, below + layers]
            yield Refusal(Message(sentence, n=options.draft_tokens, layers=layers), "num_speculative_tokens", near)

    def draft_model_refusals(self, model: Architecture) -> Iterator[Refusal]:
        """Draft models have the model's vocabulary (`verify_equal_vocab_size_if_draft_model`), heads one layer."""
        draft, (missing, back) = self.draft_model, NO_DRAFT_MODELS
        if self.drafter == "draft_model":
            if not self.options.is_older_than(*missing) and self.options.is_older_than(*back):
                yield Refusal(
                    Message("vLLM {least} to {most} take no draft model.", least="0.11", most="0.14"), "version"
                )
            if draft is not None and draft.vocab != model.vocab:
                sentence = (
                    "The draft model's vocabulary has {other:,} tokens, the model's {own:,}: {engine} takes equal ones."
                )
                why = Message(sentence, other=draft.vocab, own=model.vocab, engine="vLLM")
                yield Refusal(why, "model_draft")
            if draft is not None:
                yield from unserved_family(draft, self.options)
        if self.drafter == "eagle3" and draft is not None and draft.num_layers != 1:
            sentence = "EAGLE-3's head has one layer, the draft model {n:,}: draft_model serves whole models."
            yield Refusal(Message(sentence, n=draft.num_layers), "speculative", ["draft_model"])
        elif self.drafter == "eagle3" and compresses(model):
            sentence = (
                "There is no EAGLE-3 head for attention that compresses tokens; mtp guesses with a layer of its own."
            )
            yield Refusal(Message(sentence), "speculative", ["mtp"])

    def hands_states(self, family: str) -> bool:
        """`set_eagle3_aux_hidden_state_layers`."""
        return family not in families(self.name, "without_eagle3")

    def unstaged(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Why a model or its drafts do not go with pipeline stages. Layers that embed n-grams read the text itself,
        which the first stage has (`Qwen4ExpForConditionalGenerationConfig`); drafts that have no embedding of their own
        read the model's on the last stage (`maybe_share_target_embed`)."""
        if layout.pp == 1:
            return
        if any(extra.component == "embedding" for block in model.all_blocks for extra in block.extras):
            sentence = (
                "Layers of this model embed n-grams of the text, which only the first of {pp} pipeline stages has."
            )
            yield Refusal(Message(sentence, pp=layout.pp), "pp", [1])
        if self.drafter in ("none", "ngram"):
            return
        if not holds("drafts on pipeline stages", self.options):
            yield Refusal(Message("vLLM has drafts on pipeline stages (pp) from version 0.30 on."), "pp", [1])
        elif self.reads_embedding(model) and not (
            holds("the last stage embeds for drafts", self.options)
            and ("embedding" in self.outside_rules(model).on_every_stage or model.model_type in EAGLE_ON_STAGES)
        ):
            sentence = "This draft reads the model's embedding, which only the first of {pp} pipeline stages has."
            yield Refusal(Message(sentence, pp=layout.pp), "pp", [1])
        elif self.drafter == "eagle3" and model.model_type not in EAGLE_ON_STAGES:
            sentence = "{engine}'s class of {family} hands no states to a head of EAGLE-3 on another stage (pp)."
            yield Refusal(Message(sentence, engine=self.title, family=model.model_type), "pp", [1])

    def reads_embedding(self, model: Architecture) -> bool:
        """Whether the draft has no embedding of its own (`has_own_embed_tokens`)."""
        return self.drafter in ("eagle", "eagle3") or model.model_type == "nemotron_h"

    @property
    def speculation(self) -> tuple[str, ...]:
        """The flag `--speculative-config` of the draft."""
        if self.drafter == "none":
            return ()
        config: dict[str, Any] = {"method": self.drafter}
        if self.drafter not in ("mtp", "ngram"):
            config["model"] = self.options.model_draft or "org/draft"
        return "--speculative-config", json.dumps(config | {"num_speculative_tokens": self.draft_tokens})
