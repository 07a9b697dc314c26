"""SGLang: a share of the free memory is for weights and cache, the rest for what a pass takes.

Read in SGLang 0.5.23: `arg_groups/memory_hook.py` (defaults; `reserve_for_graph_mb`, `adjust_mem_fraction_for_vlm`) and
`arg_groups/cuda_graph_hook.py`, `configs/model_config.py` (`mm_disabled_models`),
`arg_groups/model_overrides/qwen3_vl.py`, `mem_cache/kv_cache_configurator.py` (the memory for the pools;
`mm_runtime_reservation_gb`), `distributed/utils.py` (pipeline stages), `layers/vocab_parallel_embedding.py`. Drafts:
`arg_groups/speculative_hook.py` (defaults), `arg_groups/validation_hook.py` (pipelines),
`model_executor/model_runner_components/spec_aux_hidden_state.py` (layers that are counted). Ranks of a model with
experts: `arg_groups/parallel_hook.py` (`handle_data_parallelism`), `arg_groups/overrides.py` (`_a2a_ep_size`,
`_dp_lm_head_validation`), `layers/linear.py`, `layers/vocab_parallel_embedding.py`, `layers/moe/ep_moe/layer.py`
(DeepEP's experts). Families that it does not serve: the classes of `models/`;
`model_loader/utils.py: resolve_transformers_arch` (a family without one runs by the code of transformers, here 5.19,
where that is written for others' attention: `is_backend_compatible`); `models/transformers.py` (`use_cache=False`);
`configs/hybrid_arch.py: mambaish_config` (which get a pool of states).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from calc.errors import Message, Refusal
from calc.formats import MODELOPT, CacheFormat, Precision, WeightFormat
from calc.formats.table import Format
from calc.hardware.gpu import GPU
from calc.hardware.overhead import CUDA_CONTEXT, NONE, OverheadItem, Range, libraries
from calc.hardware.parallel import Layout
from calc.hardware.shards import OutsideRules
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.model.feedforward import RankGroups
from calc.model.linear_attention import KimiDelta
from calc.model.mixers import CompressedAttention
from calc.model.named import Peak
from calc.model.vision import ListedTower
from calc.serving.engines.cache import Pool
from calc.serving.engines.drafts import DraftingEngine
from calc.serving.engines.families import class_family, families, outside_rules, undivided
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
    spelled,
)
from calc.serving.engines.loading import FUSED, round_up
from calc.serving.engines.rules import (
    SUPPORT,
    TILE,
    VOCABULARY,
    broken_expert_groups,
    broken_groups,
    broken_tiles,
    compressing,
    even_stages,
    halved_group_size,
    with_other_rates,
    without_asymmetry,
    without_cache,
    without_cache_in,
    without_pooling,
)
from calc.serving.engines.sglang.cache import (
    BLACKWELL,
    COMPRESSED_REQUESTS,
    HOPPER,
    TokenPool,
    attention_copies,
    slot_bytes,
)
from calc.serving.engines.sglang.options import SPECULATIVE_REQUESTS, SGLangOptions, SpeculativeAlgorithm, draft_length
from calc.serving.engines.sglang.rules import (
    unfit_flags,
    unfit_pages,
    without_marlin,
    without_modelopt_fp8,
)
from calc.serving.engines.sizes import Budget, GPUAtStart, HostCache, LaidOut, Limits
from calc.serving.engines.vllm.rules import SUPPORTED_UNTIL
from calc.serving.engines.vllm.working_memory import EXPERTS, FEED_FORWARD, OUTPUT_OF_EXPERTS, profile_peaks
from calc.serving.workload import Workload
from calc.units import GIB, MIB

TIERS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""GiB of the GPU below which hold: tokens of a prefill chunk, and the largest batch of CUDA graphs with fewer than four
ranks and with more (`handle_gpu_memory_settings`)."""
LARGEST = (16_384, 512, 512)
LARGE, LARGE_RESERVE = 60 * 1024, 10 * 1024
"""MiB: of a GPU larger than the first at least the second is kept free."""
CUDA_GRAPHS = Range(low=0.07, high=4)
"""GiB, "Capture cuda graph end": 0.09 for 4 batches (github.com/sgl-project/sglang/pull/18040), 0.93 for 13, 1.04 and
1.44 for 52 (pull/12978, pull/11830); the high end is an assumption."""
SEQUENCES = 2048
"""Sequences at once, at least, where no flag says how many (`resolve_max_num_reqs`)."""
DRAFTERS: dict[SpeculativeAlgorithm | None, str] = {
    None: "none",
    "NEXTN": "mtp",  # another name of EAGLE
    "EAGLE": "mtp",
    "EAGLE3": "eagle3",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
}
PREDICTED = families("sglang", "predicted")
STEPS, SHARE = (4096, 2048, 1024), 0.9
"""Values to try when the defaults do not do."""

CACHE_WORDS: dict[CacheFormat, str] = {"fp8": "fp8_e4m3", "bf16": "bf16"}
"""Names in `--kv-cache-dtype`."""
DIVISION = ("moe_dense_tp_size", "enable_dp_lm_head", "moe_a2a_backend")
LOADS = ("language_model_only", "speculative_algorithm", "speculative_draft_model_path", *DIVISION)
SERVER_ROLES: tuple[ServerRole, ...] = ("prefill", "decode")
TRANSFER = ("--disaggregation-transfer-backend", "nixl", "--host", "0.0.0.0")
ROLE_FLAGS = RoleFlags(
    flags={side: ("--disaggregation-mode", side, *TRANSFER) for side in SERVER_ROLES},
    router=("python", "-m", "sglang_router.launch_router", "--pd-disaggregation"),
    port=30_000,
    without=("language_model_only",),
)
"""docs/advanced_features/pd_disaggregation.md; `arg_groups/model_hook.py: handle_language_model_only`."""
SPELLING = {
    "cuda_graph_max_bs": ("--cuda-graph-max-bs-decode",),
    "disable_cuda_graph": ("--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"),
}
"""Flags that have other names since 0.5.23."""
UNSERVED = families("sglang", "unserved")
FORGETFUL = families("sglang", "forgetful")
WITHOUT = families("sglang", "without_images")
GRAPHS = families("sglang", "graphs_with_images")
EMBEDDINGS = 100 * MIB
"""Bytes of the cache's memory for embeddings of images (`SGLANG_VLM_CACHE_SIZE_MB`)."""
STREAMED = families("sglang", "streamed")
STREAMED_BATCH, MANY = 512, 400
"""Requests at once up to which all have CUDA graphs there, and from which images get three times the room."""
UNREAD = families("sglang", "unread_encoder")
WHOLE_EMBEDDING = families("sglang", "whole_embedding")
UNREPEATED = families("sglang", "unrepeated")
WHOLE_DENSE = families("sglang", "whole_dense")
HEAD_OF_COPY = families("sglang", "head_of_copy")
DEEPEP = families("sglang", "deepep")
DEEPEP_RESERVE, DEEPEP_PREFILL = 2 * 1024, 1024
"""MiB that are kept free for DeepEP's buffers where there are CUDA graphs, and for its graphs of prompts
(`reserve_for_deepep_a2a_mb`, `reserve_for_graph_mb`)."""
DEEPEP_PROMPT, DEEPEP_MULTIPLE = 2048, 8
"""Tokens of the longest prompt with a graph there, whatever a chunk is, and what all are multiples of
(`apply_deepep_adjustments`)."""
LAYERS, HIDDEN = 24, 1024
"""ViT-L/14: an encoder as large takes 5 % of the share, one twice as large 10 % more of what is left."""


def tier(memory: int) -> tuple[int, int, int]:
    """The row of `TIERS` of a GPU with so many bytes, without the limit."""
    return next((row[1:] for row in TIERS if memory < row[0] * GIB), LARGEST)


def request_table(requests: int, context: int) -> int:
    """Bytes of the table that says where the tokens of each request lie (`ReqToTokenPool`): 32 bits each, one request
    for padding, four tokens more."""
    return 4 * (requests + 1) * (context + 4)


def smallest_group(form: Format) -> int | None:
    """Inputs of the smallest group of routed experts in AWQ (`awq.py`: without Marlin's shape, `MoeWNA16Config`); None:
    of what is not AWQ no check is made."""
    return halved_group_size(form) if form.tool == "awq" else None


def unserved_family(architecture: Architecture) -> Iterator[Refusal]:
    """Families that it does not run, with the nearest engine that does."""
    family = architecture.model_type
    nearest = SUPPORT["transformers" if family in SUPPORTED_UNTIL else "vllm"].title
    if family in UNSERVED:
        sentence = "SGLang does not serve models of the family {family}; {nearest} does."
        yield Refusal(Message(sentence, family=family, nearest=nearest), "engine")
    elif family in FORGETFUL:
        sentence = (
            "SGLang runs models of the family {family} by the code of transformers, without keeping their recurrent "
            "states from step to step; {nearest} keeps them."
        )
        yield Refusal(Message(sentence, family=family, nearest=nearest), "engine")


def stores_fp8(precision: Precision) -> bool:
    """Whether linear layers are read as block fp8 (`Fp8Config`), whatever experts are in."""
    return precision.weights == "fp8" or any(form.name == "fp8" for form in precision.stored_forms)


def leaving_whole(model: Architecture, precision: Precision) -> dict[str, tuple[str, int | str]]:
    """Flags that leave dense feed-forwards, or shared experts, whole on each rank, with their values, by the part."""
    flags: dict[str, tuple[str, int | str]] = {}
    if model.model_type in WHOLE_DENSE:
        flags["dense"] = "moe_dense_tp_size", 1
    if model.model_type in DEEPEP and stores_fp8(precision):
        flags["shared"] = "moe_a2a_backend", "deepep"
    return flags


def uneven_parts(model: Architecture, precision: Precision, layout: Layout, groups: RankGroups) -> Iterator[Refusal]:
    """Dense feed-forwards and shared experts of which the ranks of a group can't hold equal parts, of block fp8 whole
    tiles (`layers/linear.py: divide`; `fp8.py: validate_block_quant_shapes`), with the flag that leaves them whole."""
    widths = [("dense", block.dense) for block in model.all_blocks]
    for moe in model.experts:
        widths += [("dense", moe.parallel_mlp), ("shared", moe.shared)]
    flags, tile = leaving_whole(model, precision), TILE if precision.weights == "fp8" else 1
    for part, wide in dict.fromkeys((part, mlp.intermediate) for part, mlp in widths if mlp is not None):
        ranks: int = getattr(groups, part)
        if ranks == 1 or wide % (ranks * tile) == 0:
            continue
        if part in flags:
            name, value = flags[part]
            sentence = (
                "{n:,} columns over {ranks:,} GPUs are {each:g} each, not whole fp8 tiles of {tile:,}: {flag} leaves "
                "them whole on each GPU."
                if tile > 1
                else "{n:,} columns over {ranks:,} GPUs are {each:g} each: {flag} leaves them whole on each GPU."
            )
            flag = " ".join(spelled(name, value, SPELLING))
            message = Message(sentence, n=wide, ranks=ranks, each=wide / ranks, tile=tile, flag=flag)
            yield Refusal(message, name, [value])
        elif ranks > layout.tp and wide % ranks:
            sentence = "SGLang divides {n:,} columns of the feed-forward over all {ranks:,} ranks, which is not even."
            yield Refusal(Message(sentence, n=wide, ranks=ranks), "dp", [1])


def unrepeated_heads(model: Architecture, layout: Layout) -> Iterator[Refusal]:
    """Why a class does not divide KV heads, of which it puts none on several ranks."""
    mixers = (mixer for block in model.blocks for mixer in block.attentions if not mixer.absorbs)
    counts = {mixer.cached_heads for mixer in mixers} if model.model_type in UNREPEATED else set()
    for count in sorted(count for count in counts if count % layout.tp):
        sentence = (
            "SGLang's class of {family} does not repeat KV heads on several ranks: {n:,} do not divide over {tp:,}."
        )
        yield Refusal(Message(sentence, family=model.model_type, n=count, tp=layout.tp), "tp")


def batches(most: int, *, guesses: bool = False) -> list[int]:
    """Batches of sequences that graphs are captured for, up to the largest (`generate_decode_cuda_graph_batch_sizes`);
    finer steps where tokens are drafted."""
    steps = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32)]
    if guesses:
        steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16)]
    return [*(batch for batch in steps if batch < most), most]


def decode_graphs(batch: int, dp: int) -> float:
    """MiB that are kept free for CUDA graphs up to a batch; copies of the attention are padded to each other's size."""
    padding = (3 if batch <= 300 else 4.5) * batch * dp if dp > 1 else 0
    return 2 * batch + padding


def prefill_graphs(most: int, architecture: Architecture, layout: Layout, images: bool, multiple: int = 1) -> int:
    """MiB of graphs of prompts up to so many tokens, each rounded up to a multiple, which some models and pipelines go
    without (`disable_breakable_cudagraph_if_incompatible`): 8 for each, 1,536 for all with a latent. `images`: the
    model reads them and has no such graphs for that."""
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    if layout.pp > 1 or images or any(isinstance(m, KimiDelta | CompressedAttention) for m in mixers):
        return 0
    if any(mixer.absorbs for mixer in mixers):
        return 1536
    lengths = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    lengths += [*range(1280, 4097, 256), *range(4608, most + 1, 512)]
    return 8 * len({round_up(length, multiple) for length in lengths if length <= most})


def reads_images(architecture: Architecture) -> bool:
    return architecture.vision is not None and architecture.model_type not in WITHOUT


def has_graphs(architecture: Architecture) -> bool:
    """Whether a model that reads images has CUDA graphs of prompts."""
    wrapper = architecture.vision.wrapper if architecture.vision is not None else None
    return architecture.model_type in GRAPHS or wrapper in GRAPHS


def streams_images(architecture: Architecture, gpu: GPU) -> bool:
    return architecture.model_type in STREAMED and gpu.capability == "9.0" and gpu.memory_bytes >= 60 * GIB


def image_buffers(architecture: Architecture, gpu: GPU, requests: int | None) -> int:
    """Bytes of the cache's memory that images keep: embeddings, or what a number of requests stream."""
    if streams_images(architecture, gpu):
        return (3 if (requests or 0) >= MANY else 1) * GIB
    return EMBEDDINGS


def share_left(model_type: str, tower: ListedTower) -> float:
    """Factor on the share of memory, by the layers and the width that `num_hidden_layers` and `hidden_size` of the
    vision_config state, else those of ViT-L/14; 1 without a vision_config of its own."""
    if not tower.images:
        return 1
    if model_type in UNREAD:
        return 0.95
    ratio = (tower.num_layers or LAYERS) * (tower.hidden or HIDDEN) ** 2 / (LAYERS * HIDDEN**2)
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (ratio - 1)))


class SGLang(DraftingEngine):
    name: ClassVar[str] = "sglang"
    versions: ClassVar[str] = "0.5.23"
    step_option: ClassVar[str] = "chunked_prefill_size"
    sequences_option: ClassVar[str | None] = "max_running_requests"
    share_option: ClassVar[str | None] = "mem_fraction_static"
    method_option: ClassVar[str] = "speculative_algorithm"
    draft_option: ClassVar[str] = "speculative_draft_model_path"
    without_draft: ClassVar[tuple[str, ...]] = ("NGRAM",)
    spelling: ClassVar[Spelling] = SPELLING
    disaggregation: ClassVar[RoleFlags | None] = ROLE_FLAGS
    disk_tier: ClassVar[str | None] = "LMCache, max_local_disk_size"  # --enable-lmcache
    image: ClassVar[Image | None] = Image(
        names={"cuda": "lmsysorg/sglang:latest"}, port=ROLE_FLAGS.port, listens=("--host", "0.0.0.0")
    )
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("fp8", "int4")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("fp8",)
    cache_from: ClassVar[frozenset[str]] = frozenset((MODELOPT,))  # model_executor: configure_kv_cache_dtype
    weight_options: ClassVar[tuple[str, ...]] = LOADS
    rotary_width: ClassVar[int] = 2
    fused = FUSED
    vocabulary_multiple = VOCABULARY
    absorbs_latents = True
    repeats_keys = True
    least_group = staticmethod(smallest_group)
    options: SGLangOptions
    options_type: ClassVar[type[SGLangOptions]] = SGLangOptions

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        groups = self.groups(model, layout) or RankGroups.of(layout.tp)
        yield from uneven_parts(model, precision, layout, groups)
        others = groups._replace(**dict.fromkeys(leaving_whole(model, precision), 1))
        yield from broken_tiles(model, precision, layout, others)
        yield from broken_groups(model, precision, layout, groups, repeats=True)
        yield from broken_expert_groups(model, precision, layout, smallest_group)
        ranks = layout.tp * attention_copies(model, layout)
        yield from undivided(self.name, self.title, model, layout, ranks)
        yield from unrepeated_heads(model, layout)
        yield from self.unspread_tables(model, layout)
        yield from self.undivided_experts(model, layout)
        yield from self.without_copies(model, layout)
        yield from self.unspread_draft(model, layout)
        yield from self.draft_layout_refusals(model, layout)
        yield from super().layout_refusals(model, precision, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        yield from without_pooling(model, self.title)
        yield from without_cache(model)
        yield from with_other_rates(model, self.title)
        yield from without_cache_in(precision, self.title, "int8", "int4", "fp8_ds_mla")
        yield from self.draft_refusals(model)
        yield from self.division_refusals(model, precision)
        yield from unfit_flags(model, self.options)
        yield from super().model_refusals(model, precision)

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        yield from super().gpu_refusals(gpu, laid_out)
        yield from unserved_family(laid_out.whole)
        precision = laid_out.precision
        if self.deepep and gpu.capability not in (HOPPER, *BLACKWELL):
            sentence = (
                "SGLang runs experts behind DeepEP with DeepGEMM, on compute capability 9.0, 10.0 and 10.3; {gpu} has "
                "none of these."
            )
            yield Refusal(Message(sentence, gpu=gpu.name), "moe_a2a_backend", ["none"])
        step = self.options.chunked_prefill_size or tier(gpu.memory_bytes)[0]
        own = max(1, step // attention_copies(laid_out.whole, laid_out.layout))
        yield from unfit_pages(laid_out.whole, gpu, self.options, own)
        yield from without_marlin(laid_out, gpu)
        yield from without_modelopt_fp8(laid_out, gpu)
        if gpu.platform == "cuda":
            yield from without_asymmetry(precision, self.title)
        if gpu.platform == "cuda" and precision.weights == "mxfp4" and not laid_out.whole.experts:
            sentence = "{engine} reads {format} as that of routed experts, which this model does not have."
            message = Message(sentence, engine=self.title, format=precision.weights)
            yield Refusal(message, "weights", ["nvfp4"])  # `Mxfp4Config.get_quant_method`: no method for a linear layer

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """Layers of each stage; the remainder goes one each to the last stages (`get_pp_indices`)."""
        return even_stages(layers, pp, first=pp - layers % pp)

    def vocabulary(self, rows: int, tp: int) -> int:
        """Padded to 64, or where tp does not divide that, to 64 for each rank."""
        padded = round_up(rows, VOCABULARY)
        return rows if tp == 1 else (round_up(rows, VOCABULARY * tp) if padded % tp else padded) // tp

    def groups(self, model: Architecture, layout: Layout) -> RankGroups | None:
        """All ranks: of what it does not give to the group of a copy (`attn_tp`: attention, embedding), linear layers
        take the group of all tensor-parallel ranks (`layers/linear.py: _resolve_linear_group`), so do dense
        feed-forwards (`models/deepseek_v2.py`; unless `moe_dense_tp_size` is 1), shared experts without an all-to-all
        backend and a head of its own (unless `enable_dp_lm_head` gives it to the group of a copy)."""
        options, family, ranks = self.options, model.model_type, layout.tp * attention_copies(model, layout)
        groups = RankGroups(
            dense=1 if options.moe_dense_tp_size == 1 and family in WHOLE_DENSE else ranks,
            shared=1 if self.deepep and family in DEEPEP else ranks,
            head=layout.tp if options.enable_dp_lm_head and family in HEAD_OF_COPY else ranks,
        )
        return None if groups == RankGroups.of(layout.tp) else groups

    def outside_rules(self, model: Architecture) -> OutsideRules:
        return outside_rules(self.name, class_family(model))

    def embedding_rows(self, model: Architecture, layout: Layout) -> int:
        """Rows of the embedding on a rank: all, padded to 64, in some families where the attention has copies."""
        if model.model_type in WHOLE_EMBEDDING and attention_copies(model, layout) > 1 and layout.tp > 1:
            return round_up(model.vocab, VOCABULARY)
        return super().embedding_rows(model, layout)

    @property
    def deepep(self) -> bool:
        return self.options.moe_a2a_backend == "deepep"

    def all_to_all(self, layout: Layout) -> bool:
        return self.deepep

    def undivided_experts(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Why routed experts are not on all ranks alike (`fused_moe_triton/layer.py`: as many whole ones on each of
        ep), or not on those that DeepEP has them on (`_a2a_ep_size`; `DeepEPBuffer`)."""
        ranks = layout.tp * layout.dp
        if self.deepep and model.experts and layout.ep != ranks:
            sentence = "With moe_a2a_backend deepep SGLang spreads the experts over all {ranks:,} ranks of tp times dp."
            yield Refusal(Message(sentence, ranks=ranks), "ep", [ranks])
        for count in sorted({moe.n_experts for moe in model.experts if moe.n_experts % layout.ep}):
            sentence = "SGLang gives each rank as many routed experts; {n:,} do not divide over {ep:,} ranks."
            nearest = [ep for ep in range(1, layout.ep) if count % ep == ranks % ep == 0]
            yield Refusal(Message(sentence, n=count, ep=layout.ep), "ep", nearest[-1:])

    def unspread_tables(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Why a model whose layers mix in embeddings of their own is not spread over stages
        (`models/gemma4_causal.py`)."""
        if layout.pp == 1 or self.options.disable_cuda_graph:
            return
        if any(extra.name.endswith("embed_tokens_per_layer.weight") for extra in model.extras):
            sentence = "SGLang spreads layers with embeddings of their own over stages (pp) without CUDA graphs alone."
            yield Refusal(Message(sentence), "pp", [1])

    def without_copies(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Why a head is not divided over the ranks of a copy (`_dp_lm_head_validation`; on one copy the flag has no
        effect)."""
        if not self.options.enable_dp_lm_head or layout.dp == 1:
            return
        if not model.experts:
            sentence = "enable_dp_lm_head goes with copies of the attention, and this model's are whole servers (dp)."
            yield Refusal(Message(sentence), "enable_dp_lm_head", ["false"])
        elif model.model_type not in HEAD_OF_COPY:
            sentence = "SGLang divides the LM head of the family {family} over all ranks."
            yield Refusal(Message(sentence, family=model.model_type), "enable_dp_lm_head", ["false"])

    def division_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        """Why a model's dense feed-forwards are not left whole, or its tokens not sent to experts."""
        options, family = self.options, model.model_type
        dense = any(block.dense for block in model.all_blocks)
        if options.moe_dense_tp_size is not None and family not in WHOLE_DENSE and dense:
            sentence = "SGLang divides the dense feed-forwards of the family {family} over all ranks."
            yield Refusal(Message(sentence, family=family), "moe_dense_tp_size")
        if not self.deepep:
            return
        if not model.experts:
            sentence = "moe_a2a_backend sends tokens to routed experts, which this model does not have."
            yield Refusal(Message(sentence), "moe_a2a_backend", ["none"])
        elif family not in DEEPEP:
            sentence = "SGLang does not send tokens to experts by DeepEP in the family {family}."
            yield Refusal(Message(sentence, family=family), "moe_a2a_backend", ["none"])
        elif not stores_fp8(precision):
            sentence = (
                "SGLang runs experts behind DeepEP in block fp8 unless further flags name other kernels; these are in "
                "{format}."
            )
            yield Refusal(Message(sentence, format=precision.weights), "moe_a2a_backend", ["none"])

    @property
    def loads_vision(self) -> bool:
        return not self.options.language_model_only

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """Defaults by the GPU's memory."""
        options, copies = self.options, attention_copies(architecture, layout)
        step = options.chunked_prefill_size or tier(gpu.memory_bytes)[0]
        images = self.loads_vision and reads_images(architecture)
        usual = SPECULATIVE_REQUESTS if options.speculative_algorithm else SEQUENCES
        usual = COMPRESSED_REQUESTS if any(compressing(architecture.blocks)) else usual
        sequences = options.max_running_requests or usual
        known = not architecture.recurrent or options.max_running_requests is not None  # states may allow fewer
        own = max(1, step // copies)  # each copy passes its part of a chunk (`handle_data_parallelism`)
        return Limits(
            step_tokens=own,
            step_copies=copies,
            sequences=sequences,
            share=options.mem_fraction_static or self.usual_share(gpu, architecture, layout),
            in_flight_tokens=own,
            reserved_free=image_buffers(architecture, gpu, options.max_running_requests) if images else 0,
            tables=request_table(-(-sequences // copies), workload.context) if known else 0,
            poll=options.scheduler_recv_interval,
        )

    def usual_share(self, gpu: GPU, architecture: Architecture, layout: Layout) -> float:
        """Share of a GPU that it takes where no flag states one: it leaves what a chunk, CUDA graphs and images are
        reckoned to take."""
        options, copies = self.options, attention_copies(architecture, layout)
        ranks = layout.tp * copies  # it counts data-parallel attention within its tp
        step = options.chunked_prefill_size or tier(gpu.memory_bytes)[0]
        images = self.loads_vision and reads_images(architecture)
        total = gpu.memory_bytes / MIB
        reserved = 512 + max(step, 2048) * 1.5 + ranks * layout.pp * 128
        if not options.disable_cuda_graph:
            without = images and not has_graphs(architecture)
            reserved += decode_graphs(
                self.largest_batch(gpu.memory_bytes, ranks, streams_images(architecture, gpu)), copies
            )
            longest, multiple = (DEEPEP_PROMPT, DEEPEP_MULTIPLE) if self.deepep else (step, 1)
            graphs = prefill_graphs(longest, architecture, layout, without, multiple)
            reserved += graphs + (DEEPEP_PREFILL if self.deepep and graphs else 0)
        if total > LARGE:
            reserved = max(reserved, LARGE_RESERVE)
        if self.deepep and not options.disable_cuda_graph:
            reserved += DEEPEP_RESERVE
        share = round((total - reserved) / total, 3)
        if images and architecture.vision is not None:
            share *= share_left(architecture.model_type, architecture.vision)
        return share

    def largest_batch(self, memory: int, ranks: int, streamed: bool = False) -> int:
        """Sequences of the largest CUDA graph on a GPU with so many bytes; `streamed`: images pass through the GPU, and
        graphs are for all requests at once (`expand_multimodal_decode_graph_to_running_limit`)."""
        few, many = tier(memory)[1:]
        usual, most = few if ranks < 4 else many, self.options.max_running_requests
        if streamed and most is not None and most <= STREAMED_BATCH:
            usual = most
        return self.options.cuda_graph_max_bs or min(usual, most or usual)

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        return slot_bytes(blocks)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> TokenPool:
        draft = self.draft_architecture(laid_out.whole)
        return TokenPool(laid_out, gpu, self.options, limits, 0 if draft is None else draft.num_layers)

    def host_cache(self, laid_out: LaidOut, pool: Pool, blocks: int, length: int) -> HostCache | None:
        """Cache of as many tokens as go into a rank's bytes, or the GPU's times the ratio, to the page above
        (`mem_cache/pool_host/base.py: HostKVCache`); of pipeline stages as many as the one that holds fewest. Pools of
        windows, states and index keys on the host are not read."""
        options = self.options
        if not options.enable_hierarchical_cache or not isinstance(pool, TokenPool) or not pool.keeps_tokens_alone:
            return None
        of_token = [int(cell) for cell in pool.cells if cell]
        tokens = int(pool.tokens(blocks, length) * options.hicache_ratio)
        if options.hicache_size:
            tokens = min(options.hicache_size * 10**9 // each for each in of_token)
        pages = tokens // pool.page + 1
        stored_tokens, layout = pages * pool.page, laid_out.layout
        return HostCache(
            blocks=pages,
            block_bytes=pool.page * sum(of_token) * layout.tp,
            bytes_per_rank=stored_tokens * max(of_token),
            bytes=stored_tokens * sum(of_token) * layout.tp * layout.dp,
            tokens=stored_tokens,
            concurrency=pool.concurrency(pages, length),
        )

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        """Peaks of a prefill chunk; logits are of the few sequences that it ends. Experts get the tokens of all copies
        of the attention unless an all-to-all backend sends them, and so do dense feed-forwards that all ranks share
        (`layers/dp_attention.py`: `dp_gather_partial`)."""
        blocks = [write.apply(block) for block in laid_out.stages[stage].blocks]
        hidden, tokens = write.of("hidden", laid_out.rank.hidden), write.of("step_tokens", limits.step_tokens)
        copies, groups = limits.step_copies, self.groups(laid_out.whole, laid_out.layout)
        gathered = {} if self.deepep else {EXPERTS: copies, OUTPUT_OF_EXPERTS: copies}
        if groups is not None and groups.dense > 1:
            gathered[FEED_FORWARD] = copies
        return profile_peaks(
            blocks,
            hidden,
            0,
            tokens=tokens,
            sequences=0,
            width=laid_out.precision.activation_bytes,
            auxiliary=self.auxiliary,
            gathered=gathered,
            sent=self.deepep,
        )

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        graphs = NONE if self.options.disable_cuda_graph else CUDA_GRAPHS
        return {"cuda_context": CUDA_CONTEXT, "libraries": libraries(gpus), "cuda_graphs": graphs}

    def budget(self, limits: Limits, gpu: GPUAtStart) -> Budget:
        """Its share of what is free before loading, less weights (`_profile_available_bytes`); the rest must hold a
        table of requests, a pass and its graphs."""
        free = gpu.total - gpu.overhead["cuda_context"] - gpu.overhead["libraries"]
        requested = int(free * (limits.share or 1)) - limits.reserved_free
        shortage = max(0, requested + limits.tables + gpu.working + gpu.overhead["cuda_graphs"] - free)
        return Budget(requested, {"weights": gpu.loaded}, sum(gpu.overhead.values()), shortage)

    def launch(self, start: ServerStart) -> Launch:
        """`sglang.launch_server`. Its tensor-parallel ranks are all that share a layer, of which attention makes
        groups; copies of a model without experts share nothing (`--dp-size`)."""
        shares = start.sparse or start.layout.ep > 1
        sizes = {
            "--tp-size": start.layout.tp * (start.layout.dp if shares else 1),
            "--dp-size": 1 if shares else start.layout.dp,
            "--pp-size": start.layout.pp,
            "--attn-dp-size": start.layout.dp if shares else 1,
            "--ep-size": start.layout.ep,
        }
        quantize, notes = quantized(start.precision)
        return Launch(
            words=(
                *("python", "-m", "sglang.launch_server", "--model-path", start.model),
                *parallel_flags(sizes),
                *("--context-length", str(start.length)),
                *quantize,
                *cache_dtype_flags(start.precision, CACHE_WORDS),
                *set_flags(self.options, self.spelling),
                *self.unnamed_head,
            ),
            notes=notes,
        )

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """A larger share, then smaller chunks, then both."""
        changes: dict[str, list[object]] = {
            "mem_fraction_static": [SHARE] if limits.share is not None and limits.share < SHARE else [],
            "chunked_prefill_size": [n for n in STEPS if n < limits.stated_step],
        }
        return option_combinations(self.options, changes)

    @property
    def drafter(self) -> str:
        return DRAFTERS[self.options.speculative_algorithm]

    @property
    def draft_tokens(self) -> int:
        length = draft_length(self.options, "")
        return 0 if length is None else length.tokens - 1

    def with_draft(self, architecture: Architecture) -> Architecture:
        """The model with its draft layers. They have an embedding and a head of their own until the cache is
        planned, and the model's after (`EagleDraftWorker.init_lm_head`)."""
        if not self.loads_draft:
            return architecture
        tables = {"embedding": "embed_tokens", "head": None if architecture.tied else "shared_head.head"}
        own = tuple(module.model_copy(update=tables) for module in architecture.prediction)
        return architecture.model_copy(update={"prediction": own})

    def draft_tables(self, architecture: Architecture, tp: int, stages: int) -> int:
        """A head has an embedding of its own until the cache is planned."""
        rows = self.vocabulary(architecture.vocab, tp)
        return 2 * rows * architecture.hidden if self.drafter == "eagle3" else 0

    def left_out(self) -> Iterator[Message]:
        yield from super().left_out()
        if self.loads_draft:
            yield Message(
                "SGLang plans its cache while the draft layers still have an embedding and a head of their own, which "
                "are counted here; later they share the model's."
            )
        if self.deepep:
            yield Message("DeepEP's buffers are taken to fit into the 2 GiB that SGLang keeps free for them.")

    def mtp_refusals(self, model: Architecture, family: str) -> Iterator[Refusal]:
        if not model.prediction:
            sentence = (
                "This model has no multi-token prediction (MTP) layer; EAGLE3 and STANDALONE guess with another model."
            )
            yield Refusal(Message(sentence), "speculative_algorithm", ["EAGLE3", "STANDALONE", "NGRAM"])
        elif family not in PREDICTED:
            sentence = "{engine} has no multi-token prediction (MTP) for models of the family {family}."
            yield Refusal(Message(sentence, engine=self.title, family=family), self.method_option, self.without_draft)

    def hands_states(self, family: str) -> bool:
        """`attention_backend_setup.py`: its class has `set_eagle3_layers_to_capture`."""
        return family in families(self.name, "with_eagle3")

    def unspread_draft(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Refusals of drafts in a layout (`check_pipeline_parallel_compat`)."""
        kind = self.options.speculative_algorithm
        if kind is not None and layout.pp > 1:
            sentence = "SGLang has drafts on pipeline stages (pp) where a server reads prompts alone."
            yield Refusal(Message(sentence), "pp", [1])
        if kind in ("STANDALONE", "NGRAM") and attention_copies(model, layout) > 1:
            sentence = "SGLang's {kind} does not go with copies of the attention (dp)."
            yield Refusal(Message(sentence, kind=str(kind)), "dp", [1])

    @property
    def unnamed_head(self) -> tuple[str, ...]:
        """The flag of a head that is not named."""
        unnamed = self.drafter == "eagle3" and self.options.speculative_draft_model_path is None
        return ("--speculative-draft-model-path", "org/draft") if unnamed else ()
