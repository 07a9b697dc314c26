"""llama.cpp: weights of a GGUF file and a cache on GPUs and the host, layer by layer, and the buffers of one pass.

Read in llama.cpp 0c1e57098 (libllama 0.5.0, ggml 0.25.3), whose dry run (`--fit`) it is held against.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar, Literal

from calc.errors import Message, Refusal, shown
from calc.formats import MIXES, CacheFormat, Precision, WeightFormat
from calc.formats.gguf_file import BLOCKS, layers_of, model_file
from calc.formats.gguf_types import IN_FILES
from calc.formats.stored import Piece, stored_gguf
from calc.hardware.engine_rules import EngineSupport
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead, OverheadItem, Range, bounds
from calc.hardware.parallel import Layout
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers, Symbols
from calc.model.named import Peak
from calc.serving.engines.cache import Setup
from calc.serving.engines.engine import Engine
from calc.serving.engines.families import families
from calc.serving.engines.launch import Launch, ServerStart
from calc.serving.engines.llamacpp.context import PADDING
from calc.serving.engines.llamacpp.fit import MachineRoom, Offloading
from calc.serving.engines.llamacpp.graph import unknown_mixers
from calc.serving.engines.llamacpp.launch import GGUFSource, ModelStart
from calc.serving.engines.llamacpp.options import CACHE_TYPES, CacheType, LlamaCppOptions
from calc.serving.engines.llamacpp.placement import HOST, ON_HOST
from calc.serving.engines.llamacpp.slots import SlotCache, placed, set_up
from calc.serving.engines.loading import round_up
from calc.serving.engines.rules import SUPPORT, without_pooling
from calc.serving.engines.sizes import LaidOut, Limits, LoadedWeights, StagePeak
from calc.serving.workload import Workload

CUDA_CONTEXT = Range(low=0.29, high=0.73)
"""GiB that llama.cpp's memory breakdown calls unaccounted: the CUDA context and cuBLAS's workspace, 300 to 750 MiB."""


class LlamaCpp(Engine):
    name: ClassVar[str] = "llamacpp"
    support: ClassVar[EngineSupport] = SUPPORT["llamacpp"]
    title: ClassVar[str] = support.title
    versions: ClassVar[str] = "0c1e57098"
    step_option: ClassVar[str] = "ubatch_size"
    sequences_option: ClassVar[str] = "parallel"
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("Q8_0", "Q4_K_M")
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ("q8_0", "q4_0")
    offloads: ClassVar[bool] = True
    splits_batch: ClassVar[bool] = False  # what is longer than n_ubatch alone (github.com/ggml-org/llama.cpp/pull/6017)
    state_width: ClassVar[int] = 4  # ggml.c: ggml_get_rows, ggml_mul_mat and what is added to them give F32
    draft_option: ClassVar[str | None] = "model_draft"
    vocabulary_gap: ClassVar[int] = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE
    weight_options: ClassVar[tuple[str, ...]] = (
        *("n_gpu_layers", "cpu_moe", "n_cpu_moe", "override_tensor", "tensor_split", "device"),
        *("spec_type", "model_draft", "weights_draft", "n_gpu_layers_draft", "mmproj"),
    )
    options: LlamaCppOptions
    options_type: ClassVar[type[LlamaCppOptions]] = LlamaCppOptions

    @property
    def kernels(self) -> str:
        words = (self.name, "cublas" * self.options.cuda_force_cublas, "scores" * (self.options.flash_attn == "off"))
        return "+".join(filter(None, words))

    def with_own_options(self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: Overhead) -> "LlamaCpp":
        """With `auto`, what `--fit` decides; it changes nothing where flags say which tensors, or shares of them, lie
        where (common/fit.cpp: `common_params_fit_impl`)."""
        if self.options.n_gpu_layers != "auto":
            return self
        whole = self.with_options(n_gpu_layers=None)
        places_experts = self.options.cpu_moe or self.options.n_cpu_moe
        offload = None if places_experts else whole.offloaded(laid_out, gpu, workload, overhead)
        return whole if offload is None else whole.with_options(**offload)

    @property
    def most_on_host(self) -> "LlamaCpp":
        return self.with_options(n_gpu_layers=0) if self.options.n_gpu_layers == "auto" else self

    def offloaded(
        self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: Overhead
    ) -> dict[str, object] | None:
        stated = self.options  # of which no flag takes back those that say which tensors, or shares of them, lie where
        places_experts = stated.cpu_moe and laid_out.whole.experts
        if stated.device == "none" or places_experts or stated.override_tensor or stated.tensor_split:
            return None
        high = bounds(overhead.sizes(self.overhead(laid_out.layout.gpus), 0))[1]
        room = MachineRoom((gpu.usable_bytes - high,) * laid_out.layout.pp)
        machine = self.options, room, workload.batch, self.draft_model
        model, precision, length = laid_out.whole, laid_out.precision, workload.context
        file = model_file(model, precision, predicts=self.options.predicts)
        options = file.once((*machine, length), lambda: Offloading(model, precision, *machine).fit(length))
        if options is None:
            return None
        changes = {name: value for name, value in options if value != getattr(stated, name) and name != "cpu_moe"}
        if "n_gpu_layers" in changes and options.n_gpu_layers is None:  # all, and the output
            changes["n_gpu_layers"] = layers_of(model, predicts=stated.predicts) + 1
        return changes

    def leaves_on_host(self, architecture: Architecture, gpus: int) -> bool:
        layers = layers_of(architecture, predicts=self.options.predicts)
        where = placed(self.options, layers, gpus)
        where = where if architecture.experts else replace(where, host_experts=0)
        return not where.all_on_devices or (not self.options.kv_offload and architecture.attends)

    @property
    def loads_vision(self) -> bool:
        return self.options.mmproj

    @property
    def loads_draft(self) -> bool:
        return self.options.predicts

    @property
    def stated_gpus(self) -> int | None:
        return None if self.options.tensor_split is None else len(self.options.shares(1))

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        return weights in MIXES or weights in IN_FILES

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        if self.options.split_mode == "none" and layout.pp > 1:
            yield Refusal(Message("With --split-mode none llama.cpp uses one GPU."), "tp")
        if layout.gpus > layout.pp:
            yield Refusal(Message("llama.cpp gives each GPU layers of its own: --pp instead of --tp and --dp."), "tp")
        yield from super().layout_refusals(model, precision, layout)
        split = self.options.shares(layout.pp)
        if len(split) != layout.pp or not any(split) or not all(0 <= share < inf for share in split):
            sentence = "--tensor-split {split} does not say what each of {n} GPUs takes."
            yield Refusal(Message(sentence, split=self.options.tensor_split, n=layout.pp), "tensor_split")

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        unread = [Refusal(sentence, "engine") for sentence in self.unread(model, precision)]
        unread = [*without_pooling(model, self.title)] or unread
        if unread:
            yield from unread
            return
        yield from super().model_refusals(model, precision)
        if self.options.override_tensor is not None and self.options.host_pattern is None:
            sentence = Message(
                "--override-tensor takes PATTERN=CPU, such as {example}.", example=r"\.ffn_.*_exps\.=CPU"
            )
            yield Refusal(sentence, "override_tensor")
        if self.options.split_mode == "row":
            sentence = Message(
                "llama.cpp {version} splits matrices by rows on SYCL and Hexagon: with CUDA it stops at "
                "--split-mode row.",
                version=self.versions,
            )
            yield Refusal(sentence, "split_mode", ["layer"])
        if self.options.split_mode == "tensor":
            sentence = Message(
                "The memory of each GPU with --split-mode tensor, which is experimental in llama.cpp, is not "
                "known here."
            )
            yield Refusal(sentence, "split_mode", ["layer"])
        yield from self.type_refusals(model, self.options.cache_types(precision.kv))
        yield from self.draft_refusals(model, precision)

    def unread(self, model: Architecture, precision: Precision) -> Iterator[Message]:
        """Why it does not read a file of a model, or has no such cache."""
        kind = model.model_type
        if model.gguf.architecture is None:
            yield Message("llama.cpp {version} does not read {kind}.", version=self.versions, kind=kind)
        elif (mixer := unknown_mixers(model)) is not None:
            yield Message(
                "The memory that llama.cpp plans for {mixer} in {kind} is not known here.", mixer=mixer, kind=kind
            )
        if not self.keeps(precision.weights):
            yield Message(
                "GGUF files do not store weights in {format}; Q4_K_M and Q8_0 are usual.", format=precision.weights
            )
        if precision.kv not in CACHE_TYPES:
            yield Message("llama.cpp keeps no cache in {kv}; q8_0 and q4_0 are usual.", kv=precision.kv)

    def type_refusals(
        self, model: Architecture, types: tuple[CacheType, CacheType], of: Literal["", "_draft"] = ""
    ) -> Iterator[Refusal]:
        """Why a cache can't be stored so (llama_init_from_model)."""
        keys, values = types
        fields = f"cache_type_k{of}", f"cache_type_v{of}"
        if BLOCKS[values][0] > 1 and self.options.flash_attn == "off":
            yield Refusal(Message("Quantized values need flash attention."), fields[1], ["f16"])
        mixers = [mixer for block in model.all_blocks for mixer in block.attentions]
        if keys != values and any(mixer.absorbs for mixer in mixers):
            yield Refusal(Message("Latent attention caches keys and values in one type."), fields[1], [keys])
        heads = [mixer.attended_widths for mixer in mixers if len(mixer.cached_vectors()) > 1]
        for kind, field, widths in zip(types, fields, zip(*heads, strict=True), strict=False):
            block = BLOCKS[kind][0]
            if (width := next((width for width in widths if width % block), None)) is not None:
                sentence = Message(
                    "A head of {width} elements is not a multiple of the {block} that {kind} stores together.",
                    width=width,
                    block=block,
                    kind=kind,
                )
                yield Refusal(sentence, field, ["f16"])

    def draft_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        """Why what guesses tokens can't be had."""
        options, draft = self.options, self.draft_model
        if options.model_draft is not None and options.guess != "draft-simple":
            sentence = Message("With --spec-type {kind} no draft model guesses tokens.", kind=options.guess)
            yield Refusal(sentence, "model_draft")
        predicting = model.model_type in families(self.name, "predicting") and len(model.prediction) == 1
        if options.predicts and not predicting:
            sentence = Message("llama.cpp has no multi-token prediction (MTP) for this model.")
            yield Refusal(sentence, "spec_type", ["none"])
        if draft is None and options.model_draft is not None:
            sentence = Message("{name} is not a known model; presets are.", name=shown(options.model_draft))
            yield Refusal(sentence, "model_draft")
        if draft is not None or options.predicts:
            types = options.cache_type_k_draft, options.cache_type_v_draft
            yield from self.type_refusals(draft or model, types, "_draft")
        if draft is None:
            return
        for sentence in self.unread(draft, options.draft_precision(precision)):
            yield Refusal(sentence, "model_draft" if options.weights_draft is None else "weights_draft")
        if abs(draft.vocab - model.vocab) > self.vocabulary_gap:
            sentence = Message(
                "The draft model's vocabulary has {other:,} tokens, the model's {own:,}: llama.cpp takes them "
                "together where they differ by at most {most}.",
                other=draft.vocab,
                own=model.vocab,
                most=self.vocabulary_gap,
            )
            yield Refusal(sentence, "model_draft")

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """The layers of each GPU; layers on the host stand in none, and the output follows the last."""
        placement = placed(self.options, layers + self.options.predicts, pp)
        for device in range(pp):
            first, stop = (bisect(placement.layers, device, hi=layers) for bisect in (bisect_left, bisect_right))
            if first < stop:
                yield range(first, stop)
            else:
                yield range(layers, layers) if placement.output == device else range(0)

    def vocabulary(self, rows: int, tp: int) -> int:
        return rows

    def left_out(self) -> Iterator[Message]:
        if self.options.guess == "draft-simple" and self.options.model_draft is None:
            yield Message(
                "The draft model is not known (--model-draft): of it only the {n} extra rows of logits in each slot "
                "are counted.",
                n=self.options.draft_tokens,
            )
        yield Message(  # common/arg.cpp, `--cache-ram`; ggml-org/llama.cpp#16391
            "llama-server keeps the cache of earlier prompts in the host's memory too, up to 8 GiB unless --cache-ram "
            "says otherwise; that is not counted."
        )

    def file(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        if rank is not architecture:
            return stored_gguf(architecture, precision, rank)
        return model_file(architecture, precision, predicts=self.options.predicts).pieces

    def on_gpus(self, architecture: Architecture, file: list[Piece]) -> list[Piece]:
        """Neither tables of tokens nor what stays on the host; a tied head is a copy."""
        options, pieces = self.options, list[Piece]()
        placement = placed(options, layers_of(architecture, predicts=options.predicts), 1)
        left_out = {"multi_token_prediction": not options.predicts, "vision": not options.mmproj}
        for piece in file:
            tensor, name = piece.tensor, piece.tensor.name.removeprefix("blk.{layer}.")
            if name == "token_embd.weight" and architecture.tied and placement.output != HOST:
                pieces.append(Piece.of(replace(tensor, component="lm_head"), piece.form))
            elif name in ON_HOST or (tensor.excluded_as is not None and left_out.get(tensor.excluded_as, True)):
                continue
            elif tensor.excluded_as == "vision" or placement.all_on_devices:
                pieces.append(piece)
            elif tensor.layers:
                layers = tuple(layer for layer in tensor.layers if placement.of_weight(name, layer) != HOST)
                pieces += [Piece.of(replace(tensor, layers=layers), piece.form)] if layers else []
            elif placement.output != HOST:
                pieces.append(piece)
        return pieces

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        """Bytes as they are stored; what the end of a row lacks of 512 elements is in the buffers. A projector lies on
        the first GPU."""
        sizes: Counter[str] = Counter()
        for piece in pieces:
            tensor, count = piece.tensor, piece.a_layer * copies_within(rank, piece.tensor, stage)
            if tensor.excluded_as == "vision":
                sizes["vision"] += piece.nbytes * tensor.count * (stage.start == 0)
            elif tensor.excluded_as == "multi_token_prediction":
                sizes["draft"] += count * piece.nbytes
            else:
                sizes["weights"] += count * (piece.nbytes - piece.scales)
                sizes["scales"] += count * piece.scales
        return LoadedWeights(**sizes)

    def draft(self, precision: Precision) -> tuple[Architecture, Precision, int] | None:
        if self.draft_model is None:
            return None
        return self.draft_model, self.options.draft_precision(precision), self.options.spec_draft_n_max

    def draft_weights_per_stage(
        self, architecture: Architecture, precision: Precision, tp: int, stages: int
    ) -> tuple[int, ...]:
        if self.draft_model is None:
            return super().draft_weights_per_stage(architecture, precision, tp, stages)
        draft = set_up(architecture, precision, self.options, stages, self.draft_model).draft
        return (0,) * stages if draft is None else tuple(draft.weights[stage] for stage in range(stages))

    def kernel_key(self, gpu: GPU) -> tuple[Hashable, ...]:
        """One backend, and layers that pass their state on over any link, which slices of a GPU do not have."""
        return gpu.platform, gpu.capability, gpu.slice is None

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        sequences = self.options.slots(workload.batch)
        step = min(self.options.ubatch_size, self.options.batch_size)
        return Limits(step_tokens=step, sequences=sequences, share=None, in_flight_tokens=step)

    def request_refusals(self, workload: Workload, limits: Limits) -> Iterator[Refusal]:
        """More sequences than slots, or longer ones."""
        if workload.batch > limits.sequences:
            sentence = Message("llama.cpp runs {n} slots, fewer than sequences.", n=limits.sequences)
            yield Refusal(sentence, "batch", [limits.sequences])
        size = self.options.ctx_size
        if size is None:
            return
        cells = round_up(size, PADDING)
        most = cells // workload.batch if self.options.kv_unified else round_up(cells // limits.sequences, PADDING)
        if workload.context > most:
            sentence = Message("--ctx-size {size:,} holds {most:,} tokens a sequence.", size=size, most=most)
            yield Refusal(sentence, "context", [most])

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        """In fp32."""
        return sum(4 * len(block.runs_in) * sum(mixer.state_widths()) for block in blocks for mixer in block.mixers)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> SlotCache:
        return set_up(laid_out.whole, laid_out.precision, self.options, laid_out.layout.pp, self.draft_model)

    def stage_peaks(self, setup: Setup, stage: int, work: Workload, write: Numbers = NUMBERS) -> list[StagePeak]:
        """All buffers are there from the start on: that of a pass, with the tensors that stand in it at its peak and
        the gaps between them, and one of a pass of what guesses tokens."""
        cache, what = setup.cache, Message("the largest pass")
        assert isinstance(cache, SlotCache)
        if stage >= cache.model.placement.devices:
            return [StagePeak(0, Peak(what, {}))]
        model, *others = cache.contexts(work.batch, work.context)
        buffer = model.passes[stage]
        sizes = Counter(buffer.peak)
        sizes["gaps and padding"] = buffer.size - sizes.total()
        sizes["the largest pass of what guesses tokens"] = sum(other.passes[stage].size for other in others)
        named = write.named if isinstance(write, Symbols) else lambda name, size, unit: size
        tensors = {name: named(name, size, "bytes") for name, size in sizes.items() if size}
        return [StagePeak(cache.required_bytes(stage, work.batch, work.context), Peak(what, tensors))]

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        return {"cuda_context": CUDA_CONTEXT}

    def launch(self, start: ServerStart) -> Launch:
        file = f"{start.model.rpartition('/')[2]}-{start.precision.weights.upper()}.gguf"
        slots, types = self.options.slots(start.sequences), self.options.cache_types(start.precision.kv)
        return ModelStart(GGUFSource(file=file), self.options, start.length, slots, types).server()

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        for size in (256, 128):
            if size < limits.step_tokens:
                yield {"ubatch_size": size}
