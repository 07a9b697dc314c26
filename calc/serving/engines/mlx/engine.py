"""MLX by mlx-lm: weights as one folder holds them, a cache a layer that grows by steps, prompts in passes of 2,048.

Read in mlx-lm 0.32.2 and MLX 0.32: `generate.py` (`generate_step`, `BatchGenerator`), `server.py`, `models/cache.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from calc.errors import Message
from calc.formats import Precision, WeightFormat
from calc.formats.stored import Piece
from calc.hardware.engine_rules import EngineSupport
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range
from calc.hardware.parallel import Layout
from calc.hardware.shards import copies_within_piece
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.serving.engines.cache import Setup
from calc.serving.engines.engine import Engine
from calc.serving.engines.launch import Launch
from calc.serving.engines.mlx.cache import PromptCache, state_bytes
from calc.serving.engines.mlx.launch import command
from calc.serving.engines.mlx.loading import mlx_file
from calc.serving.engines.mlx.options import MLXOptions
from calc.serving.engines.mlx.rules import MLXRules
from calc.serving.engines.mlx.working_memory import Pass, pass_peaks, without_kernel
from calc.serving.engines.rules import SUPPORT
from calc.serving.engines.sizes import LaidOut, Limits, LoadedWeights, Stage, StagePeak
from calc.serving.workload import Workload
from calc.units import MIB

METAL = Range(low=0.1, high=0.6)
"""GiB of Metal's kernels, heaps and arrays of passes whose end the CPU does not wait for; an assumption."""
STEPS = (1024, 512, 256)
"""Sizes to try where a pass takes too much."""


class MLX(MLXRules, Engine):
    name: ClassVar[str] = "mlx"
    support: ClassVar[EngineSupport] = SUPPORT["mlx"]
    title: ClassVar[str] = support.title
    versions: ClassVar[str] = "0.32"
    step_option: ClassVar[str] = "prefill_step_size"
    sequences_option: ClassVar[str | None] = "decode_concurrency"
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("mlx-8bit", "mlx-4bit")

    options: MLXOptions
    options_type: ClassVar[type[MLXOptions]] = MLXOptions

    @property
    def loads_vision(self) -> bool:
        return False

    def loads_same_weights(self, other: "MLX") -> bool:
        return self.options.q_group_size == other.options.q_group_size

    def file(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        if precision.weights == "mxfp4":  # gpt-oss, whose experts stay as its checkpoint stores them
            return super().file(architecture, precision, rank)
        return mlx_file(architecture, precision, self.options.q_group_size)

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        scales = sum(copies_within_piece(rank, piece.tensor, stage) * piece.a_layer * piece.scales for piece in pieces)
        total = sum(copies_within_piece(rank, piece.tensor, stage) * piece.a_layer * piece.nbytes for piece in pieces)
        return LoadedWeights(weights=total - scales, scales=scales)

    def loading(self, stage: Stage) -> int:
        """0: the folder's tensors are what is held."""
        return 0

    def set_up(self, gpu: GPU) -> GPU:
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

        def peaks(cached: int, tokens: Any, length: int) -> Iterator[StagePeak]:
            step = Pass(
                sequences=write.of("batch", sequences),
                tokens=tokens,
                length=write.of("sequence", length),
                width=laid_out.precision.activation_bytes,
                scored=without_kernel(part.blocks, laid_out.rank),
            )
            return (StagePeak(cached, peak) for peak in pass_peaks(blocks, rank, step))

        found = list[StagePeak]()
        for prompt in passes:
            tokens = write.of("step_tokens", at_once * prompt.tokens)
            found += peaks(cache.prompt_bytes(sequences, prompt), tokens, prompt.length)
        cached = cache.generating_bytes(sequences, work.context, work.prompt)
        return [*found, *peaks(cached, write.of("batch", sequences), work.context)]

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        return {"libraries": METAL}

    def overhead_notes(self, gpu: GPU, laid_out: LaidOut, limits: Limits) -> Iterator[Message]:
        yield Message(
            "On Metal attention is taken to be one kernel where MLX has one for the width of its heads; peaks were "
            "measured on MLX's CPU build, where it is not."
        )

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
        return command(model, precision, self.options)

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        for size in STEPS:
            if size < self.options.prefill_step_size:
                yield {"prefill_step_size": size}
