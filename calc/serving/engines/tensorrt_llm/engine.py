"""TensorRT-LLM's PyTorch backend: a share of what is free once weights and a pass are there is for the cache.

Read in TensorRT-LLM 1.3: `_torch/pyexecutor/_util.py` (`KvCacheCreator`: the memory for the cache),
`_torch/modules/attention.py` (`MLA`), `mapping.py` (`pp_layers`), `commands/serve.py` (flags). Its cache, blocks of
tokens in layers that keep all, in layers with a window, and recurrent states: `_torch/pyexecutor/resource_manager.py`
(`get_cache_size_per_token`), `_torch/pyexecutor/_util.py` (`_derive_layer_type_attention_windows`) and
`_torch/pyexecutor/kv_cache/mamba_cache_manager` (`_max_resident_sequences`, `_minimum_live_gpu_quota`: a state for
every sequence that may run, of the layers of each stage).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Any, ClassVar, Self

from calc.errors import Message, Refusal
from calc.formats import FLOATS, MODELOPT, CacheFormat, Precision, WeightFormat
from calc.formats.stored import Piece
from calc.formats.table import KERNELS
from calc.hardware.engine_rules import version
from calc.hardware.gpu import GPU
from calc.hardware.overhead import ALONE, CUDA_CONTEXT, NONE, OverheadItem, Range
from calc.hardware.parallel import Layout
from calc.hardware.shards import copies_within_piece
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.model.named import Peak
from calc.serving.engines.cache import Pool
from calc.serving.engines.engine import Engine
from calc.serving.engines.families import families, unserved
from calc.serving.engines.launch import Launch, ServerStart, Spelling, option_combinations, parallel_flags, set_flags
from calc.serving.engines.loading import FUSED, ExpertPadding, quantized
from calc.serving.engines.rules import broken_tiles, even_stages, with_other_rates, without_cache, without_pooling
from calc.serving.engines.sglang.cache import bits_with_index, slot_bytes
from calc.serving.engines.sizes import Budget, GPUAtStart, LaidOut, Limits, LoadedWeights
from calc.serving.engines.tensorrt_llm.options import TensorRTLLMOptions
from calc.serving.engines.vllm.working_memory import EXPERTS, OUTPUT_OF_EXPERTS, layer_elements
from calc.serving.kv_cache import growth
from calc.serving.workload import Workload

EXPERT_PADDING = ExpertPadding(hidden=128, inner=128)
"""`weight_alignment` of experts in MXFP4 (`fused_moe/quantization.py`); on Blackwell the model's width is rounded up to
512 instead."""
CUDA_GRAPHS = Range(low=0.05, high=2)
"""GiB of the graphs of up to 19 batches, up to 128; an assumption: logs state them with libraries only."""
BATCH, TOKENS, FRACTION = 2048, 8192, 0.9
"""`max_batch_size`, `max_num_tokens` and `free_gpu_memory_fraction` where no flag says them (`llmapi/llm_args.py`)."""
NODE = 8
"""GPUs that its own all-reduce joins."""
STEPS, SEQUENCES, SHARE = (4096, 2048, 1024), (512, 256, 128, 64, 32, 16), 0.95
"""Values to try when the defaults do not do."""
IN_FILE = ("tokens_per_block", "cuda_graph_config", "disable_mm_encoder", "enable_chunked_prefill")
"""Options that are no flags, or that the length of sequences decides."""
FLAGS = {
    name: (f"--{name}",)
    for name in ("free_gpu_memory_fraction", "max_batch_size", "max_num_tokens", "enable_chunked_prefill")
}

CACHES: tuple[CacheFormat, ...] = ("bf16", "fp16", "fp8")
"""Formats of the cache (`KvCacheConfig.dtype`), without nvfp4, which takes scales of a calibration."""
UNTIL_HOPPER = frozenset({"awq", "gptq"})
"""Ways of storing weights for which the documentation's table of hardware has no Blackwell."""
FROM_BLACKWELL = families("tensorrt-llm", "from_blackwell")
BLACKWELL = (10, 0)
WINDOWED = families("tensorrt-llm", "windowed")


class BlockPool(Pool):
    """Blocks of one budget. A block is one of the layers that keep the whole context; one of layers with a window
    counts as the part of it that their bytes are, for both kinds are divided as sequences of one length need them."""

    def __init__(self, laid_out: LaidOut, limits: Limits, tokens_per_block: int) -> None:
        self.page = tokens_per_block
        windowed, kv = laid_out.whole.model_type in WINDOWED, laid_out.precision.kv
        stages = laid_out.of_each_stage(lambda stage: growth(laid_out.stages[stage].blocks, kv, bits_with_index))
        windows = {window for bits in stages for window in bits if window is not None and bits[window] and windowed}
        passing = [sum(bits.get(window, 0) for window in windows) // 8 for bits in stages]
        whole = [sum(bits.values()) // 8 - seen for bits, seen in zip(stages, passing, strict=True)]
        self.only_windows = not any(whole)
        self.window = max(windows, default=0)
        self.ratio = 0.0 if self.only_windows else sum(passing) / sum(whole)
        """Bytes of a token in layers with a window, per byte in those that keep the whole context."""
        each = zip(whole, passing, strict=True)
        tokens = [
            seen if self.only_windows else max(capacity, ceil(seen / (self.ratio or 1))) for capacity, seen in each
        ]
        self.block_bytes = tuple(self.page * nbytes for nbytes in tokens) if any(tokens) else (1,) * len(tokens)
        self.states = laid_out.of_each_stage(lambda stage: slot_bytes(laid_out.stages[stage].blocks))
        """Bytes of the recurrent states of a sequence on each stage."""
        self.sequences = limits.sequences
        self.slots = limits.sequences * len(stages) + 1 + (laid_out.layout.dp > 1)
        """States on each stage: one pads CUDA graphs, and one a rank that has no request while others do."""

    def block_size(self, length: int) -> int:
        return self.page

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.page)

    def fixed_bytes(self, stage: int) -> int:
        return self.slots * self.states[stage]

    def fixed_bytes_per_stage(self) -> int:
        return self.sequences * sum(self.states)

    def request_blocks(self, length: int) -> int:
        """A window that does not begin with a block reaches into one more."""
        passing = min(self.blocks_of(length), self.blocks_of(self.window) + 1)
        return max(1, passing) if self.only_windows else self.blocks_of(length) + ceil(self.ratio * passing)

    def most_requests(self, budgets: Sequence[int]) -> float:
        return self.sequences if any(self.states) else inf

    def tokens(self, blocks: int, length: int) -> int:
        """Tokens of sequences of that length, where some layers have a window."""
        return int(self.concurrency(blocks, length) * length) if self.window else blocks * self.page


class TensorRTLLM(Engine):
    name: ClassVar[str] = "tensorrt-llm"
    versions: ClassVar[str] = "1.3"
    step_option: ClassVar[str] = "max_num_tokens"
    sequences_option: ClassVar[str | None] = "max_batch_size"
    share_option: ClassVar[str | None] = "free_gpu_memory_fraction"
    spelling: ClassVar[Spelling] = FLAGS
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("fp8", "nvfp4", "int4")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("fp8",)
    cache_from: ClassVar[frozenset[str]] = frozenset((MODELOPT,))
    fused = FUSED
    absorbs_latents = True
    experts = EXPERT_PADDING
    rotary_width: ClassVar[int] = 4  # `RopeParams.create_rope_const_params`

    options: TensorRTLLMOptions
    options_type: ClassVar[type[TensorRTLLMOptions]] = TensorRTLLMOptions

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """Formats of the table of `features/quantization.html`: 16 bits, those of ModelOpt, AWQ and GPTQ."""
        return weights in FLOATS or KERNELS.get(weights) in cls.support.formats

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        """`enable_attention_dp` makes each tensor-parallel rank a copy (`mapping.py`)."""
        yield from broken_tiles(model, precision, layout)
        if layout.tp > 1 and layout.dp > 1:
            sentence = "{engine} makes every rank a copy of the attention or none: tp {tp:,} with dp {dp:,} is neither."
            yield Refusal(Message(sentence, engine=self.title, tp=layout.tp, dp=layout.dp), "dp", [1])
        yield from super().layout_refusals(model, precision, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        yield from without_pooling(model, self.title)
        yield from without_cache(model)
        yield from with_other_rates(model, self.title)
        engine, weights, kv = self.title, precision.weights, precision.kv
        if (family := unserved(self.name, model)) is not None:
            sentence = "{engine}'s PyTorch backend does not serve models of the family {family}."
            yield Refusal(Message(sentence, engine=engine, family=family), "engine")
        if not self.keeps(weights):
            sentence = "{engine}'s PyTorch backend does not run weights in {format}."
            yield Refusal(Message(sentence, engine=engine, format=weights), "weights")
        if kv not in CACHES:
            sentence = "{engine} has no cache in {kv}; fp8 is one of its own."
            yield Refusal(Message(sentence, engine=engine, kv=kv), "kv", ["fp8"])

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        yield from super().gpu_refusals(gpu, laid_out)
        weights, capability = laid_out.precision.weights, gpu.capability if gpu.platform == "cuda" else None
        if KERNELS.get(weights) in UNTIL_HOPPER and capability is not None and version(capability) >= BLACKWELL:
            sentence = "{engine}'s documentation does not list {format} for {gpu}"
            yield Refusal(Message(sentence, engine=self.title, format=weights, gpu=gpu.name), "weights")
        family = laid_out.whole.model_type
        if family in FROM_BLACKWELL and capability is not None and version(capability) < BLACKWELL:
            sentence = "{engine} serves models of the family {family} on Blackwell GPUs only; {gpu} is not one."
            yield Refusal(Message(sentence, engine=self.title, family=family, gpu=gpu.name), "gpu")

    def request_refusals(self, workload: Workload, limits: Limits) -> Iterator[Refusal]:
        """Prompts that a pass does not take and that are not cut (`PyExecutor._validate_request`)."""
        if workload.prompt > limits.step_tokens and not self.options.enable_chunked_prefill:
            sentence = "Prompts of {prompt:,} tokens are more than max_num_tokens, {most:,}, without chunked prefill."
            yield Refusal(Message(sentence, prompt=workload.prompt, most=limits.step_tokens), "max_num_tokens")

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """Layers of each stage; the remainder goes one each to the first stages (`torch.tensor_split`)."""
        return even_stages(layers, pp, first=0)

    def vocabulary(self, rows: int, tp: int) -> int:
        """Padded to a multiple of the ranks (`_torch/modules/embedding.py`)."""
        return -(-rows // tp)

    def all_to_all(self, layout: Layout) -> bool:
        """Copies of the attention send tokens to experts where these are whole, over NVLink (`NVLinkOneSided`, the
        first that `CommunicationFactory.create_strategy` tries), and gather them where they are in slices
        (`moe_tp_size`); so they do, too, where not all links of the GPUs are NVLink and DeepEP does not run."""
        return (layout.dp > 1) & (layout.ep == layout.dp)

    @property
    def loads_vision(self) -> bool:
        return not self.options.disable_mm_encoder

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        """Latent attention has its up-projection once more, in 16 bits where it is quantized; else the half that makes
        keys (`k_b_proj_trans`)."""
        plain = [piece for piece in pieces if piece.tensor.name.endswith("kv_b_proj.weight") and not quantized(piece)]
        keys = sum(copies_within_piece(rank, piece.tensor, stage) * piece.tensor.numel for piece in plain)
        loaded = super().loaded(rank, pieces, stage, layout)
        return replace(loaded, absorbed=loaded.absorbed + keys)

    def sized_for(self, sequences: int, architecture: Architecture) -> Self:
        """States of all sequences that may run are set aside."""
        if self.options.max_batch_size is not None or not architecture.recurrent:
            return self
        enough = [n for n in SEQUENCES if n >= sequences] or [SEQUENCES[0]]
        return self.with_options(max_batch_size=enough[-1])

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        step = self.options.max_num_tokens or TOKENS
        sequences = self.options.max_batch_size or BATCH
        return Limits(step_tokens=step, sequences=sequences, share=self.cache_share, in_flight_tokens=step)

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        return slot_bytes(blocks)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> BlockPool:
        return BlockPool(laid_out, limits, self.options.tokens_per_block)

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        """Peaks of the pass that it measures (`_create_dummy_context_requests`); experts get the tokens of all copies
        of the attention."""
        hidden, tokens = write.of("hidden", laid_out.rank.hidden), write.of("step_tokens", limits.step_tokens)
        width, copies = laid_out.precision.activation_bytes, laid_out.layout.dp
        peaks = []
        for block in laid_out.stages[stage].blocks:
            for what, elements in layer_elements(write.apply(block), hidden):
                passed = tokens * copies if what in (EXPERTS, OUTPUT_OF_EXPERTS) else tokens
                tensors = {name: width * passed * size for name, size in elements.items()}
                peaks.append(Peak(what, {"input, residual and output": 3 * width * tokens * hidden} | tensors))
        return peaks

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        """GiB of NCCL and of the buffers of its all-reduce on each of several GPUs. One log has several: Kimi-K2.5 in
        nvfp4 on 8 x B300 under 1.3.0rc7 left 166.02 GiB, 0.9 of 184.47, about 8 GiB less than weights and a pass do;
        that fewer GPUs take less is an assumption."""
        graphs = CUDA_GRAPHS if self.options.cuda_graph_config else NONE
        joined = Range(low=0.5, high=1 + min(gpus, NODE)) if gpus > 1 else ALONE
        return {"cuda_context": CUDA_CONTEXT, "libraries": joined, "cuda_graphs": graphs}

    @property
    def cache_share(self) -> float:
        return self.options.free_gpu_memory_fraction or FRACTION

    def at_start(self, limits: Limits) -> Message:
        return Message(
            "{engine} {version} runs one sequence at once and gives its cache {share:.0%} of what is free once weights "
            "and a pass are there; step, sequences and share are its defaults unless set.",
            plural="{engine} {version} runs at most {n:,} sequences at once and gives its cache {share:.0%} of what is "
            "free once weights and a pass are there; step, sequences and share are its defaults unless set.",
            engine=self.title,
            version=self.versions,
            n=limits.sequences,
            share=limits.share,
        )

    def budget(self, limits: Limits, gpu: GPUAtStart) -> Budget:
        """The cache gets a share of what weights, a pass and all else leave (`_cal_max_memory`)."""
        own, outside = {"weights": gpu.loaded, "activations": gpu.working}, sum(gpu.overhead.values())
        free = gpu.total - outside - gpu.loaded - gpu.working
        cache = int(free * self.cache_share) if free > 0 else free
        return Budget(gpu.loaded + gpu.working + cache, own, outside, max(0, -free))

    def launch(self, start: ServerStart) -> Launch:
        """`trtllm-serve`. Its tensor-parallel ranks are all that share a layer, of which attention makes copies."""
        layout, precision = start.layout, start.precision
        sizes = {"--tp_size": layout.tp * layout.dp, "--pp_size": layout.pp, "--ep_size": layout.ep}
        settings, notes = self.settings(precision, layout), []
        if precision.checkpoint is None and (precision.weights != "bf16" or precision.replaces is not None):
            notes.append(Message("Name a checkpoint whose weights are stored in {format}.", format=precision.weights))
        if settings:
            notes.append(Message("The file config.yaml holds {settings}", settings=json.dumps(settings)))
        if self.all_to_all(layout):
            sentence = (
                "{engine} chooses at start how copies pass tokens to experts; time has them sent over NVLink, its "
                "first choice."
            )
            notes.append(Message(sentence, engine=self.title))
        chunked = self.options.enable_chunked_prefill and start.length > (self.options.max_num_tokens or TOKENS)
        return Launch(
            words=(
                *("trtllm-serve", start.model),
                *parallel_flags(sizes),
                *("--max_seq_len", str(start.length)),
                *set_flags(self.options, {**self.spelling, **dict.fromkeys(IN_FILE, ())}),
                *(("--enable_chunked_prefill",) if chunked else ()),
                *(("--config", "config.yaml") if settings else ()),
            ),
            notes=tuple(notes),
        )

    def settings(self, precision: Precision, layout: Layout) -> dict[str, Any]:
        """Settings that its configuration file has and no flag. What that says of the cache replaces all flags of
        it."""
        options = self.options
        cache: dict[str, Any] = {}
        if precision.kv == "fp8" and precision.cache_stated != "fp8":
            cache["dtype"] = "fp8"
        if options.tokens_per_block != TensorRTLLMOptions.model_fields["tokens_per_block"].default:
            cache["tokens_per_block"] = options.tokens_per_block
        if cache:
            cache["free_gpu_memory_fraction"] = self.cache_share
        return {
            **({"enable_attention_dp": True} if layout.dp > 1 else {}),
            **({"kv_cache_config": cache} if cache else {}),
            **({} if options.cuda_graph_config else {"cuda_graph_config": None}),
            **({"disable_mm_encoder": True} if options.disable_mm_encoder else {}),
        }

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        changes: dict[str, list[object]] = {
            "enable_chunked_prefill": [True],
            "free_gpu_memory_fraction": [SHARE],
            "max_batch_size": [n for n in SEQUENCES if workload.batch <= n < limits.sequences],
            "max_num_tokens": [n for n in STEPS if n < limits.step_tokens],
        }
        return option_combinations(self.options, changes)
