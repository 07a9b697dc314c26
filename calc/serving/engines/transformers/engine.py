"""Hugging Face transformers' `generate`: takes memory when it needs it, prompts whole, the cache as it grows
(`cache_utils.py`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from calc.errors import Message, Refusal
from calc.formats import CACHE_BITS, MIXES, CacheFormat, Precision, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import CUDA_CONTEXT, FRAGMENTATION, OverheadItem, Range, libraries
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.attention import BlockIndexer
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.model.mla import LightningIndexer
from calc.model.named import Peak
from calc.serving.engines.cache import Cache, Setup
from calc.serving.engines.engine import Engine
from calc.serving.engines.families import families
from calc.serving.engines.rules import without_cache_in
from calc.serving.engines.sizes import LaidOut, Limits, Stage, StagePeak
from calc.serving.engines.transformers.options import TransformersOptions
from calc.serving.engines.transformers.working_memory import Pass, decode_peaks, prefill_peaks
from calc.serving.kv_cache import Compression, compressions, growth, state_bytes
from calc.serving.workload import Workload

WRITTEN_OUT = families("transformers", "written_out")
Indexer = BlockIndexer | LightningIndexer


class StageCache(NamedTuple):
    """Cache of the layers of a stage."""

    growth: dict[int | None, int]
    """Bits of a token of all layers, by their window."""
    compressions: list[Compression]
    state: int
    """Bytes of a sequence's recurrent states."""
    views: int
    """Bytes of a sequence that convolutions' memories are views on while tokens are generated."""
    axes: int
    """Positions of a token, as index keys have them."""

    @classmethod
    def of(cls, blocks: Sequence[Block], kv: CacheFormat) -> "StageCache":
        axes = max((getattr(indexer, "position_axes", 0) for *_, indexer in indexers(blocks)), default=0)
        compressed = list(compressions(blocks, kv))
        return cls(unpooled_growth(blocks, kv), compressed, state_bytes(blocks), view_bytes(blocks), axes)


class DynamicCache(Cache):
    """A tensor a layer, which grows token by token; layers with a window keep what was passed last whole, until the
    next pass (`DynamicSlidingWindowLayer`)."""

    def __init__(self, stages: Sequence[Sequence[Block]], precision: Precision) -> None:
        """Stages whose layers are one object are alike."""
        different = {id(blocks): blocks for blocks in stages}
        alike = {number: StageCache.of(blocks, precision.kv) for number, blocks in different.items()}
        self.stages = [alike[id(blocks)] for blocks in stages]
        axes = [stage.axes for stage in self.stages]
        self.axes = [n if n and not any(axes[:stage]) else 0 for stage, n in enumerate(axes)]
        """Positions of each token that are cached with index keys, in the first indexed layer."""

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        """While one more token of each sequence passes."""
        return self.allocated_bytes(stage, batch, length, batch)

    def allocated_bytes(self, stage: int, batch: int, length: int, tokens: int) -> int:
        """While so many tokens pass."""
        of_stage, bits, passed = self.stages[stage], 0, max(1, tokens // batch)
        for window, of_a_token in of_stage.growth.items():
            positions = batch * length
            if window is not None:
                positions = min(positions, batch * (window - 1) + tokens)
            bits += positions * of_a_token
        bits += batch * sum(compression.bits(length, passed) for compression in of_stage.compressions)
        nbytes = bits // 8 + batch * of_stage.state
        if passed == 1:
            nbytes += batch * of_stage.views
        return nbytes + self.position_bytes(stage, batch, length, passed)

    def position_bytes(self, stage: int, batch: int, length: int, passed: int) -> int:
        """Bytes of the positions of tokens, in int64, that lie with the keys of the first indexed layer: those of the
        first pass once for all axes and sequences, which are alike (`Qwen4ExpTextModel`)."""
        if length == passed:
            return 8 * length if self.axes[stage] else 0
        return 8 * self.axes[stage] * batch * length


def indexers(blocks: Sequence[Block]) -> list[tuple[Block, int | None, Indexer]]:
    mixers = [(block, mixer) for block in blocks for mixer in block.mixers]
    indexed = [(block, mixer.window, getattr(mixer, "indexer", None)) for block, mixer in mixers]
    return [(block, window, indexer) for block, window, indexer in indexed if indexer is not None]


def keeps_every_token(blocks: Sequence[Block]) -> bool:
    """Whether every layer is one of full attention with a cache of its own (`get_layer_types_and_kwargs`)."""
    attentions = [mixer for block in blocks for mixer in block.attentions]
    plain = all(mixer.window is None and mixer.cached_elements() for mixer in attentions)
    return plain and not any(
        [*indexers(blocks), *compressions(blocks, "bf16"), *(mixer for block in blocks for mixer in block.recurrences)]
    )


def unpooled_growth(blocks: Sequence[Block], kv: CacheFormat) -> dict[int | None, int]:
    """Bits cached per token of all layers, by their window, with index keys as they are before tokens share one."""
    bits = growth(blocks, kv)
    for block, window, indexer in indexers(blocks):
        more = indexer.unpooled_elements() - indexer.cached_elements()
        bits[window] += len(block.runs_in) * int(more * CACHE_BITS[kv])
    return bits


def view_bytes(blocks: Sequence[Block]) -> int:
    """Bytes a sequence that convolutions' memories are views on while tokens are generated."""
    mixers = [(len(block.runs_in), mixer) for block in blocks for mixer in block.recurrences]
    return sum(n * mixer.conv_width * mixer.view_elements() for n, mixer in mixers)


class Transformers(Engine):
    name: ClassVar[str] = "transformers"
    splits_batch: ClassVar[bool] = False  # `device_map` moves the whole batch from GPU to GPU (accelerate `hooks.py`)
    versions: ClassVar[str] = "5.23"
    step_option: ClassVar[str] = "prefill_chunk_size"
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ("int8-bnb", "nf4")

    options: TransformersOptions
    options_type: ClassVar[type[TransformersOptions]] = TransformersOptions

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """GGUF files are unpacked when they are loaded (huggingface.co/docs/transformers/gguf)."""
        return super().keeps(weights) and weights not in MIXES

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """Consecutive layers on each GPU, as equal as can be (`device_map`)."""
        for stage in range(pp):
            yield range(stage * layers // pp, (stage + 1) * layers // pp)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        yield from super().model_refusals(model, precision)
        yield from without_cache_in(precision, self.title, "fp8_ds_mla")
        if precision.kv in ("int8", "int4"):
            sentence = "{engine} keeps a cache in {kv} by HQQ or quanto. What these take is not known here; fp8's is."
            yield Refusal(Message(sentence, engine=self.title, kv=precision.kv), "kv", ["fp8"])
        if precision.kv == "fp8":
            yield from self.fp8_refusals(model)
        if model.model_type in WRITTEN_OUT:
            sentence = "The memory of attention with relative positions in transformers ({family}) is not known here."
            yield Refusal(Message(sentence, family=model.model_type), "engine")

    def fp8_refusals(self, model: Architecture) -> Iterator[Refusal]:
        """Why it has no cache in fp8 (`QuantizedCache` of `cache_utils.py`, whose backend fp8 5.19 does not have)."""
        if self.options.is_older_than(5, 23):
            sentence = "{engine} is known to keep a cache in fp8 since {least}; it is {version} here."
            values = {"engine": self.title, "least": self.versions, "version": self.options.version}
            yield Refusal(Message(sentence, **values), "kv", ["bf16"])
        elif not keeps_every_token(model.all_blocks):
            sentence = "{engine} quantizes the cache only where every layer is one of full attention."
            yield Refusal(Message(sentence, engine=self.title), "kv", ["bf16"])

    def vocabulary(self, rows: int, tp: int) -> int:
        """PyTorch's DTensor gives the first ranks one row more where they do not divide."""
        return -(-rows // tp)

    def loading(self, stage: Stage) -> int:
        """0: what the allocator rounds up is in the range of fragmentation."""
        return 0

    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """Prompts pass whole unless they are cut into chunks."""
        whole = workload.batch * workload.prompt
        step = min(whole, self.options.prefill_chunk_size or whole)
        return Limits(step_tokens=step, sequences=workload.batch, share=None, in_flight_tokens=step)

    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> DynamicCache:
        return DynamicCache([stage.blocks for stage in laid_out.stages], laid_out.precision)

    def stage_peaks(self, setup: Setup, stage: int, work: Workload, write: Numbers = NUMBERS) -> list[StagePeak]:
        return [peak for step in self.passes(setup, stage, work, write) for peak in step]

    def passes(self, setup: Setup, stage: int, work: Workload, write: Numbers = NUMBERS) -> list[list[StagePeak]]:
        """The prompts' pass, with their cache, and where tokens are generated that of the last one, with the cache of
        the whole context. Logits return to the first GPU."""
        laid_out, limits, cache = setup
        assert isinstance(cache, DynamicCache)
        part, rank = laid_out.stages[stage], write.apply(laid_out.rank)
        blocks = [write.apply(block) for block in part.blocks]
        precision, batch = laid_out.precision, work.batch
        prompt = Pass(
            sequences=write.of("batch", batch),
            length=write.of("sequence", work.prompt),
            tokens=write.of("step_tokens", limits.step_tokens),
            width=precision.activation_bytes,
            attention=self.options.attention,
            logits=self.options.rows_of_logits,
            cached=not laid_out.whole.encodes,
        )
        cached = cache.allocated_bytes(stage, batch, work.prompt, limits.step_tokens)
        prefill = prefill_peaks(blocks, rank, prompt, logits=(part.first or part.last) and not rank.pooled)
        passes = [[StagePeak(cached, peak) for peak in prefill]]
        if work.generated:
            token = replace(prompt, length=write.of("sequence", work.context), logits="last")
            cached = cache.allocated_bytes(stage, batch, work.context, batch)
            decode = decode_peaks(blocks, rank, token, precision.kv, logits=part.last)
            passes.append([StagePeak(cached, peak) for peak in decode])
        if self.options.is_older_than(4, 46) and laid_out.rank.rotary:  # each layer has tables of its own, in fp32
            nbytes = 4 * sum(rows * width for rows, width in laid_out.rank.rotary)
            tables = {"cosines and sines of each layer": nbytes * sum(len(block.layers) for block in part.blocks)}
            passes = [
                [StagePeak(cached, Peak(peak.what, {**peak.tensors, **tables})) for cached, peak in step]
                for step in passes
            ]
        return passes

    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        return {"cuda_context": CUDA_CONTEXT, "libraries": libraries(gpus), "fragmentation": FRAGMENTATION}

    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """None: its flags change the figures of the workload itself."""
        yield from ()
