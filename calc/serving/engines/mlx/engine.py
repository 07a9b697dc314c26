"""MLX by mlx-lm: weights as one folder holds them, a cache a layer that grows by steps, prompts in passes of 2,048.
Commands: mlx_lm.server, mlx_lm.generate for a rotating cache, mlx_lm.convert for formats that nobody published.

Read in mlx-lm 0.32.2 and MLX 0.32: `generate.py` (`generate_step`, `BatchGenerator`), `server.py`, `models/cache.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from calc.errors import Message, Refusal
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.formats.format_names import FLOATS, MLX_FORMATS
from calc.formats.stored import Piece
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range
from calc.hardware.parallel import Layout
from calc.hardware.shards import copies_within_piece
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.serving.engines.cache import Setup
from calc.serving.engines.engine import Engine
from calc.serving.engines.families import unserved
from calc.serving.engines.launch import Launch, ServerStart, set_flags
from calc.serving.engines.loading import round_up
from calc.serving.engines.mlx.cache import CACHE_LISTS, EXPANDED_LATENTS, OWN_CACHES, ROTATING, PromptCache, state_bytes
from calc.serving.engines.mlx.loading import MIXED_HIGH_BITS, is_down, mlx_file
from calc.serving.engines.mlx.options import STEP, MLXOptions
from calc.serving.engines.mlx.working_memory import Pass, pass_peaks, without_kernel
from calc.serving.engines.rules import Question
from calc.serving.engines.sizes import LaidOut, Limits, LoadedWeights, StagePeak
from calc.serving.workload import Workload
from calc.units import MIB

METAL = Range(low=0.1, high=0.6)
"""GiB of Metal's kernels, heaps and arrays of passes whose end the CPU does not wait for; an assumption."""
STEPS = (1024, 512, 256)
"""Sizes to try where a pass takes too much."""
PUBLISHER = "mlx-community"
CONVERTED = ("q_group_size",)
"""Options of `mlx_lm.convert`."""
OF_SERVER = ("decode_concurrency", "prompt_concurrency")
MODES: dict[WeightFormat, str] = {"mlx-mxfp4": "mxfp4", "mlx-mxfp8": "mxfp8", "mlx-nvfp4": "nvfp4"}
CACHES: tuple[CacheFormat, ...] = ("bf16", "fp16", "fp32")


def repository(model: str, precision: Precision) -> str:
    """The model as mlx-community names its conversions; as it is where it is not quantized, or is a conversion."""
    weights = precision.weights
    if weights not in MLX_FORMATS or precision.checkpoint is not None:
        return model
    return f"{PUBLISHER}/{model.rpartition('/')[2]}-{weights.removeprefix('mlx-').replace('mixed_', 'mixed-')}"


def conversion(model: str, precision: Precision, options: MLXOptions) -> Launch:
    """The command that makes such a folder, `mlx_model`, of the model's own repository."""
    weights = precision.weights
    words = ["mlx_lm.convert", "--hf-path", model, "--quantize"]
    if weights in MODES:
        words += ["--q-mode", MODES[weights]]
    elif weights.startswith("mlx-mixed"):
        words += ["--quant-predicate", weights.removeprefix("mlx-")]
    else:
        words += ["--q-bits", weights.removeprefix("mlx-").removesuffix("bit")]
    if options.q_group_size is not None and weights not in MODES:
        words += ["--q-group-size", str(options.q_group_size)]
    return Launch(words=tuple(words))


def command(model: str, precision: Precision, options: MLXOptions) -> Launch:
    """A server; a rotating cache of a set size is `mlx_lm.generate`'s alone."""
    source, alone = repository(model, precision), options.max_kv_size is not None
    spelling: dict[str, tuple[str, ...]] = dict.fromkeys((*CONVERTED, "wired_limit_mb"), ())
    if alone:
        spelling |= dict.fromkeys(OF_SERVER, ())
    words = ("mlx_lm.generate" if alone else "mlx_lm.server", "--model", source, *set_flags(options, spelling))
    return Launch(words=words, notes=tuple(notes(model, source, precision, options)))


def notes(model: str, source: str, precision: Precision, options: MLXOptions) -> Iterator[Message]:
    if source != model:
        made = conversion(model, precision, options)
        yield Message("Where {repository} is not published: {command}", repository=source, command=" ".join(made.words))
    if options.wired_limit_mb is not None:
        yield Message("Before it: sudo sysctl iogpu.wired_limit_mb={limit}", limit=options.wired_limit_mb)


class MLX(Engine):
    name: ClassVar[str] = "mlx"
    versions: ClassVar[str] = "0.32"
    step_option: ClassVar[str] = "prefill_step_size"
    sequences_option: ClassVar[str | None] = "decode_concurrency"
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("mlx-8bit", "mlx-4bit")
    weight_options: ClassVar[tuple[str, ...]] = ("q_group_size",)

    options: MLXOptions
    options_type: ClassVar[type[MLXOptions]] = MLXOptions

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """Its own formats, and what is not quantized; gpt-oss is kept in MXFP4 as it is."""
        return weights in MLX_FORMATS or weights in FLOATS or weights == "mxfp4"

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        if layout.gpus > 1:
            degree = "tp" if layout.tp > 1 else "pp" if layout.pp > 1 else "dp"
            yield Refusal(Message("MLX over several Macs (mx.distributed) is not counted here."), degree)
        yield from super().layout_refusals(model, precision, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        weights, kv = precision.weights, precision.kv
        if (family := unserved(self.name, model)) is not None:
            sentence = Message("mlx-lm {version} has no file for {family}.", version=self.versions, family=family)
            yield Refusal(sentence, "engine")
        if not self.keeps(weights):
            sentence = Message("mlx-lm does not compute with weights in {format}; mlx-4bit is usual.", format=weights)
            yield Refusal(sentence, "weights", ["mlx-4bit"])
        elif weights == "mxfp4" and precision.checkpoint is None:
            sentence = Message("MLX stores all matrices of a model in mlx-mxfp4; mxfp4 is a checkpoint's own.")
            yield Refusal(sentence, "weights", ["mlx-mxfp4"])
        if weights in MIXED_HIGH_BITS and not any(is_down(tensor.name) for tensor in model.tensors()):
            sentence = Message(
                "mlx_lm.convert has no mixed recipe for {family}: no module is a down_proj.",
                family=family or model.model_type,
            )
            yield Refusal(sentence, "weights", ["mlx-4bit"])
        if kv not in CACHES:
            sentence = Message("MLX has no cache in {kv}: --kv-bits quantizes one as it grows.", kv=kv)
            yield Refusal(sentence, "kv", ["bf16"])
        size = self.options.prefill_step_size
        if size % STEP:
            sentence = Message(
                "Caches grow by {step:,} tokens: passes of {size:,}, no multiple of it, are not counted here.",
                step=STEP,
                size=size,
            )
            yield Refusal(sentence, "prefill_step_size", [size // STEP * STEP, round_up(size, STEP)])
        group, bits = self.options.kv_group_size, self.options.kv_bits
        mixers = [mixer for block in model.blocks for mixer in block.attentions]
        widths = [width for mixer in mixers if len(mixer.cached_vectors()) > 1 for width in mixer.attended_widths]
        if bits is not None and (odd := next((width for width in widths if width % group), None)) is not None:
            sentence = Message(
                "Heads of {width:,} elements do not divide into the cache's groups of {group:,}.",
                width=odd,
                group=group,
            )
            yield Refusal(sentence, "kv_group_size", [n for n in (32, 64, 128) if odd % n == 0])

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        """Refusals: Apple's GPUs alone run it; elsewhere llama.cpp reads files of four bits."""
        for message, field, near in super().gpu_refusals(gpu, laid_out):
            if field != "gpu":
                yield Refusal(message, field, near)
                continue
            sentence = "MLX runs on Apple's GPUs, not on {gpu}: there llama.cpp runs the model in Q4_K_M."
            yield Refusal(Message(sentence, gpu=gpu.name), "gpu")

    def refusals(self, question: Question) -> Iterator[Refusal]:
        """Refusals, with those of a cache that becomes quantized as a request grows."""
        yield from super().refusals(question)
        model, workload, options = question.model, question.workload, self.options
        if (
            model is None
            or workload is None
            or options.kv_bits is None
            or workload.context < options.quantized_kv_start
        ):
            return
        family = model.model_type
        mixers = [mixer for block in model.blocks for mixer in block.attentions]
        if family in ROTATING and any(mixer.window is not None for mixer in mixers):
            sentence = Message("mlx-lm does not quantize rotating caches, which layers with a window have.")
            yield Refusal(sentence, "kv_bits")
        elif model.kernels.capped_scores:
            yield Refusal(Message("mlx-lm reads no quantized cache where scores are capped."), "kv_bits")
        elif family not in EXPANDED_LATENTS | CACHE_LISTS and any(mixer.absorbs for mixer in mixers):
            yield Refusal(Message("mlx-lm reads no quantized cache of latent attention."), "kv_bits")
        elif family not in OWN_CACHES and options.max_kv_size is not None:
            yield Refusal(Message("mlx-lm does not quantize the rotating cache of --max-kv-size."), "kv_bits")

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        yield range(layers)

    def vocabulary(self, rows: int, tp: int) -> int:
        return rows

    @property
    def loads_vision(self) -> bool:
        return False

    def file(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        if precision.weights == "mxfp4":  # gpt-oss, whose experts stay as its checkpoint stores them
            return super().file(architecture, precision, rank)
        return mlx_file(architecture, precision, self.options.q_group_size)

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        scales = sum(copies_within_piece(rank, piece.tensor, stage) * piece.a_layer * piece.scales for piece in pieces)
        total = sum(copies_within_piece(rank, piece.tensor, stage) * piece.a_layer * piece.nbytes for piece in pieces)
        return LoadedWeights(weights=total - scales, scales=scales)

    def usable_gpu(self, gpu: GPU) -> GPU:
        """macOS lets the GPU use `iogpu.wired_limit_mb` of the memory, which MLX then wires (`set_wired_limit`)."""
        limit = self.options.wired_limit_mb
        most = gpu.memory_bytes // MIB
        return gpu if limit is None else gpu.model_copy(update={"usable_mib": min(limit, most)})

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """Passes over several prompts at once; with a quantized cache one request at a time."""
        options = self.options
        alone = options.kv_bits is not None or options.max_kv_size is not None
        sequences = 1 if alone else max(options.decode_concurrency, options.prompt_concurrency)
        prompts = min(workload.batch, sequences, options.prompt_concurrency)
        step = prompts * min(options.prefill_step_size, max(1, workload.prompt - 1))
        return Limits(step_tokens=step, sequences=sequences, share=None, in_flight_tokens=step)

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        return sum(len(block.runs_in) * state_bytes(architecture, block) for block in blocks)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> PromptCache:
        return PromptCache(laid_out.whole, laid_out.precision, self.options)

    def stage_peaks(self, setup: Setup, stage: int, work: Workload, write: Numbers = NUMBERS) -> list[StagePeak]:
        """The last whole pass over the prompts, the rest of them, and the last token, each with the cache of then."""
        laid_out, limits, cache = setup
        assert isinstance(cache, PromptCache)
        part, rank, sequences = laid_out.stages[stage], write.apply(laid_out.rank), min(work.batch, limits.sequences)
        blocks, passes = [write.apply(block) for block in part.blocks], cache.last_passes(work.prompt)
        at_once = limits.step_tokens // passes[0].tokens  # prompts

        def peaks(cached: int, name: str, tokens: int, length: int) -> Iterator[StagePeak]:
            step = Pass(
                sequences=write.of("batch", sequences),
                tokens=write.of(name, tokens),
                numbers=(sequences, tokens),
                length=write.of("sequence", length),
                width=laid_out.precision.activation_bytes,
                unfused=without_kernel(part.blocks, laid_out.rank),
            )
            return (StagePeak(cached, peak) for peak in pass_peaks(blocks, rank, step))

        stage_peaks = list[StagePeak]()
        for prompt in passes:
            passed = at_once * prompt.tokens
            stage_peaks += peaks(cache.prompt_bytes(sequences, prompt), "step_tokens", passed, prompt.length)
        cached = cache.generating_bytes(sequences, work.context, work.prompt)
        return [*stage_peaks, *peaks(cached, "batch", sequences, work.context)]

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        return {"libraries": METAL}

    def overhead_notes(self, gpu: GPU, laid_out: LaidOut, limits: Limits) -> Iterator[Message]:
        yield Message(
            "On Metal attention is taken to be one kernel where MLX has one for the width of its heads; peaks were "
            "measured on MLX's CPU build, where it is not."
        )

    def launch(self, start: ServerStart) -> Launch:
        return command(start.model, start.precision, self.options)

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        for size in STEPS:
            if size < self.options.prefill_step_size:
                yield {"prefill_step_size": size}
