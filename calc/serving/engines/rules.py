"""Models, formats, layouts and GPUs that an engine runs. Some rules hold for every engine, others are what both vLLM
0.33 and SGLang 0.5.23 check at start."""

import tomllib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from calc.errors import ConfigError, Message, Refusal
from calc.formats import CacheFormat, Native, Precision, WeightFormat
from calc.formats.format_names import MLX_FORMATS
from calc.formats.scheme import EXPERTS, LINEARS
from calc.formats.table import KERNELS, Format
from calc.hardware.division import nearest, widths
from calc.hardware.engine_rules import EngineSupport, missing_kernel, note, runs
from calc.hardware.gpu import GPU
from calc.hardware.mig import unjoined
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.block import Block, Extra
from calc.model.compressed_attention import CompressedAttention
from calc.model.feedforward import RankGroups
from calc.model.tensor import Tensor
from calc.serving.engines.families import FAMILIES, divided_rows
from calc.serving.engines.sizes import LaidOut, Limits
from calc.serving.engines.started import StartedEngine
from calc.serving.workload import Workload

SUPPORT = {
    name: EngineSupport.model_validate(rows)
    for name, rows in tomllib.loads(Path(__file__).with_name("support.toml").read_text(encoding="utf-8")).items()
}
"""GPUs and formats of weights on which each engine runs, by its name."""


class Question(NamedTuple):
    """Whether an engine runs a model stored so, on these ranks, on a GPU, for these requests. A part that is left out
    is still open, or was accepted before: no rule that reads it is applied."""

    model: Architecture | None = None
    precision: Precision | None = None
    layout: Layout | None = None
    laid_out: LaidOut | None = None  # what the three before come to
    gpu: GPU | None = None
    workload: Workload | None = None
    limits: Limits | None = None

    def with_degree(self, field: str, degree: int) -> Self:
        """Question with another number of tensor-parallel ranks (tp), or of those that share cached tokens (dcp)."""
        assert self.layout is not None
        other = self.layout.with_degree(degree) if field == "tp" else self.layout.model_copy(update={field: degree})
        return self._replace(layout=other)


def without_pooling(architecture: Architecture, engine: str) -> Iterator[Refusal]:
    """Why an engine whose pooling runs nobody has read is not weighed with a model that only pools."""
    if architecture.pooled:
        sentence = (
            "This model makes a vector or scores of a text. The memory that {engine} takes for such models is not "
            "known here; that of vLLM and transformers is."
        )
        yield Refusal(Message(sentence, engine=engine), "engine", ["vllm", "transformers"])


def without_cache(architecture: Architecture) -> Iterator[Refusal]:
    """Why an engine that sets its cache aside does not serve a model that keeps none, unless it reads texts whole."""
    if not architecture.encodes and not any(
        block.recurrences or (block.cached_in and any(mixer.cached_elements() for mixer in block.mixers))
        for block in architecture.all_blocks
    ):
        sentence = Message(
            "No layer of this model keeps a cache: it drafts for a larger model and is served beside it only."
        )
        yield Refusal(sentence, "engine")


def compressing(blocks: Iterable[Block]) -> Iterator[tuple[int, CompressedAttention]]:
    """Each attention of DeepSeek-V4, with the number of layers that have it."""
    for block in blocks:
        for mixer in block.mixers:
            if isinstance(mixer, CompressedAttention):
                yield len(block.runs_in), mixer


RATES = {True: 4, False: 128}
"""Tokens that an entry of DeepSeek-V4's attention stands for, by whether entries are picked."""


def with_other_rates(architecture: Architecture, engine: str) -> Iterator[Refusal]:
    """Why an engine does not run DeepSeek-V4's attention at other rates than those published: vLLM `models/deepseek_v4/
    compressor.py: CompressorStateCache`, SGLang `mem_cache/deepseek_v4_memory_pool.py: get_compress_state_ring_size`,
    TensorRT-LLM `prepare_sparse_mla_topk_lens`."""
    for _, mixer in compressing(architecture.all_blocks):
        if mixer.rate not in (None, RATES[mixer.d_index is not None]):
            sentence = (
                "{engine} runs this attention with {picked:,} tokens in an entry where entries are picked "
                "(compressed_sparse_attention) and {all:,} where all are read (heavily_compressed_attention); a layer "
                "here has {rate:,}."
            )
            message = Message(sentence, engine=engine, picked=RATES[True], all=RATES[False], rate=mixer.rate)
            yield Refusal(message, "compress_rates")
            return


def without_cache_in(precision: Precision, engine: str, *formats: CacheFormat) -> Iterator[Refusal]:
    """Why an engine has no cache in a format of llama.cpp, or in these, that it has no word for; in 32 bits it is only
    where the model is."""
    kv = precision.kv
    if kv in ("q8_0", "q4_0"):
        sentence = "{kv} is a cache format of llama.cpp, which {engine} does not have; fp8 is one of its own."
        yield Refusal(Message(sentence, kv=kv, engine=engine), "engine")
    elif kv in formats or (kv == "fp32" and precision.weights != "fp32"):
        sentence = "{engine} has no cache in {kv}; fp8 is one of its own."
        yield Refusal(Message(sentence, kv=kv, engine=engine), "kv", ["fp8"])


TILE = 128
"""Columns that one scale of block fp8 stands for; a rank's share of a feed-forward must be whole tiles."""
INTEGERS = ("awq", "gptq")
"""Kernels of integers with a scale for each group of inputs."""
GROUPS = (None, 32, 64, 128)
"""Inputs of a group for which Marlin's kernels are written, None: a row (`marlin_utils.py` of both)."""
HALVED = 32
"""Inputs of the smallest group of routed experts that a kernel makes by halving."""
VOCABULARY = 64
"""Rows of embedding and head come in multiples of it (`vocab_parallel_embedding.py` of both)."""


def even_stages(layers: int, pp: int, first: int) -> Iterator[range]:
    """The layers of each of pp pipeline stages. What does not divide goes one each to the stages from `first` on."""
    each, more = divmod(layers, pp)
    start = 0
    for stage in range(pp):
        stop = start + each + (first <= stage < first + more)
        yield range(start, stop)
        start = stop


def broken_tiles(
    architecture: Architecture, precision: Precision, layout: Layout, groups: RankGroups | None = None
) -> Iterator[Refusal]:
    """Refusals of block fp8, of which each rank holds whole tiles (vLLM `fp8.py`, `create_weights`; SGLang has the
    same): Qwen3-235B's experts of 1,536 columns fail at tp 8."""
    if precision.weights != "fp8":
        return
    for wide, ranks in widths(architecture, groups or RankGroups.of(layout.tp), layout.slices):
        if ranks > 1 and wide % (ranks * TILE):
            sentence = Message(
                "{n:,} columns over {ranks:,} GPUs are {each:g} each, not whole fp8 tiles of {tile:,}: "
                "spread experts (ep) or use pipeline stages.",
                n=wide,
                ranks=ranks,
                each=wide / ranks,
                tile=TILE,
            )
            yield Refusal(sentence, "tp")


def cut_inputs(
    architecture: Architecture, layout: Layout, groups: RankGroups | None
) -> Iterator[tuple[Tensor, int, int]]:
    """Each matrix outside of routed experts that ranks cut along its inputs, the inputs, and how many of them a rank
    holds."""
    side = 0 if architecture.names.transposed else -1
    for whole, part in zip(architecture.tensors(), layout.rank(architecture, groups=groups).tensors(), strict=True):
        if whole.component in LINEARS - EXPERTS and len(whole.shape) == 2 and whole.shape[side] != part.shape[side]:
            yield whole, whole.shape[side], part.shape[side]


def broken_groups(
    architecture: Architecture,
    precision: Precision,
    layout: Layout,
    groups: RankGroups | None = None,
    *,
    repeats: bool = False,
) -> Iterator[Refusal]:
    """Refusals of weights with a scale for each group of inputs: of a matrix that is cut along them, each rank holds
    whole groups (integers: vLLM `kernels/linear/mixed_precision/marlin.py`, `auto_awq.py`; SGLang `marlin_utils.py`,
    `awq_linear.py`; NVFP4: `modelopt.py` and `modelopt_quant.py`). Qwen2.5-72B's 29,568 columns are 231 groups, and are
    padded to 29,696 in Qwen's own AWQ and GPTQ files. `repeats`: ranks hold the scales of all groups where inputs have
    an order of their own (SGLang `marlin_repeat_scales_on_all_ranks`)."""
    if max((layout.tp, *(groups or ()))) == 1 or KERNELS.get(precision.weights) not in (*INTEGERS, "nvfp4"):
        return
    scheme = precision.scheme(experts=bool(architecture.experts))
    for tensor, inputs, share in cut_inputs(architecture, layout, groups):
        form = scheme.form(tensor, tensor.layers[0] if tensor.layers else 0)
        group = form.block[1]
        if group is not None and group < inputs and share % group and not (form.ordered and repeats):
            sentence = Message(
                "{n:,} columns over {ranks:,} GPUs are {each:g} each, not whole groups of {group:,} of {format}: use "
                "pipeline stages, or files whose columns are padded.",
                n=inputs,
                ranks=inputs // share,
                each=share,
                group=group,
                format=precision.weights,
            )
            yield Refusal(sentence, "tp")
            return


def broken_expert_groups(
    architecture: Architecture, precision: Precision, layout: Layout, least: Callable[[Format], int | None]
) -> Iterator[Refusal]:
    """Refusals of routed experts in such integers that are cut along their inputs. `least`: inputs of the smallest
    groups that a kernel makes of a format's; None: any."""
    if layout.slices == 1 or KERNELS.get(precision.weights) not in INTEGERS:
        return
    scheme = precision.scheme(experts=True)
    experts = (tensor for tensor in architecture.tensors() if tensor.component == "experts_routed")
    forms = {scheme.form(tensor, tensor.layers[0]) for tensor in experts if tensor.layers}
    groups = {least(form) for form in forms if form.block[1] is not None}
    for inputs, group in product({moe.expert.intermediate for moe in architecture.experts}, groups - {None}):
        if group is not None and inputs % (layout.slices * group):
            sentence = Message(
                "The experts' {n:,} columns over {ranks:,} GPUs are {each:g} each, not whole groups of {group:,} of "
                "{format}: spread experts (ep) or use pipeline stages.",
                n=inputs,
                ranks=layout.slices,
                each=inputs / layout.slices,
                group=group,
                format=precision.weights,
            )
            yield Refusal(sentence, "tp")
            return


def halved_group_size(form: Format) -> int | None:
    """Inputs of the smallest groups of routed experts that a kernel makes of AWQ's and GPTQ's (`moe_wna16.py` of both);
    None: of other formats none."""
    group = form.block[1]
    return min(group, HALVED) if group is not None and form.tool in INTEGERS else None


def without_asymmetry(precision: Precision, engine: str) -> Iterator[Refusal]:
    """Refusals of GPTQ's files for which no kernel is left: those that are take symmetric integers of 4 or 8 bits, with
    a scale for each row or for groups that Marlin knows (vLLM `auto_gptq.py`, `AutoGPTQConfig.TYPE_MAP`, and
    `marlin_utils.py`; SGLang `gptq.py`, `is_gptq_marlin_compatible`, without which CUDA has no method)."""
    for form in precision.stored_forms if KERNELS.get(precision.weights) == "gptq" else ():
        if form.has_index and (form.bits not in (4, 8) or form.has_zeros or form.block[1] not in GROUPS):
            sentence = Message(
                "{engine} reads GPTQ that is symmetric, of 4 or 8 bits, with a scale for a row or for 32, 64 or 128 "
                "inputs: this is not.",
                engine=engine,
            )
            yield Refusal(sentence, "weights", ["int4"])
            return


class Rules(StartedEngine):
    """Rules of an engine, and reasons for what it refuses."""

    support: ClassVar[EngineSupport]
    """The GPUs and formats that it runs on, in the table by its name; its title stands there too."""
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ()
    """Formats of weights that it is usually given to save memory, the largest first."""
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ()
    """Formats of the cache that it is usually given to save memory, the largest first."""
    cache_from: ClassVar[frozenset[str]] = frozenset()
    """Tools of quantization whose word on the format of the KV cache it takes where no flag says another."""

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            cls.support = SUPPORT[cls.name]
            cls.title = cls.support.title

    @classmethod
    def precision(
        cls, checkpoint: Native, weights: WeightFormat | None = None, kv: CacheFormat | None = None
    ) -> Precision:
        """Storage of weights and cache as it loads a checkpoint, unless other formats are chosen."""
        return Precision.stored_as(checkpoint, weights, kv, cls.cache_from)

    vocabulary_gap: ClassVar[int] = 0
    """Tokens by which a draft model's vocabulary may differ from the model's."""

    @classmethod
    def may_draft(cls, draft: Architecture, vocab: int) -> bool:
        """Whether a model may guess tokens of a vocabulary."""
        question = Question(draft, Precision(weights=cls.weight_formats[-1]))
        return abs(draft.vocab - vocab) <= cls.vocabulary_gap and not any(cls().refusals(question))

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """Whether it computes with weights as this format stores them, neither unpacking nor refusing them."""
        return weights not in MLX_FORMATS

    @property
    def stated_gpus(self) -> int | None:
        """GPUs of which flags state the share of each; None where they do not."""
        return None

    @abstractmethod
    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """The layers of each pipeline stage."""

    @abstractmethod
    def vocabulary(self, rows: int, tp: int) -> int:
        """Rows of the embedding, and of the head, on one of tp ranks."""

    def groups(self, model: Architecture, layout: Layout) -> RankGroups | None:
        """Ranks that share dense feed-forwards, shared experts and the head; None: those of a copy, which has its own
        and shares no more than routed experts with the others."""
        return None

    def embedding_rows(self, model: Architecture, layout: Layout) -> int:
        """Rows of the embedding on a rank: its share of those of a copy, or all of them."""
        whole = model.model_type in FAMILIES.get(self.name, {}).get("undivided_embedding", ())
        return model.vocab if whole else self.vocabulary(model.vocab, layout.tp)

    def rank(self, model: Architecture, layout: Layout) -> Architecture:
        """One rank's part of a model."""
        groups = self.groups(model, layout)
        head_rows = self.vocabulary(model.vocab, layout.tp if groups is None else groups.head)
        rank = layout.rank(model, self.embedding_rows(model, layout), groups, head_rows)
        divided = divided_rows(self.name, model.model_type)
        if layout.tp == 1 or not divided:
            return rank
        return rank.model_copy(update={"extras": tuple(self.part(e, layout.tp, divided) for e in rank.extras)})

    def part(self, extra: Extra, tp: int, divided: frozenset[str]) -> Extra:
        """One of tp ranks' part of a weight outside the layers; `divided`: modules whose rows are."""
        if divided.isdisjoint(extra.name.split(".")):
            return extra
        rows, *columns = extra.shape
        own = self.vocabulary(rows, tp) if extra.component == "embedding" else rows // tp
        return extra.model_copy(update={"shape": (own, *columns)})

    def all_to_all(self, layout: Layout) -> bool:
        """Whether ranks send tokens to the experts that these chose; else each gathers those of all copies of the
        attention. Of degrees in arrays, each for its own."""
        return False

    def refusals(self, question: Question) -> Iterator[Refusal]:
        """Why it does not run what is asked, whatever memory there is; nothing where it does. Reasons of the layout
        come first, then those of the model and its formats, of the GPU, and of the requests."""
        model, precision, layout, laid_out, gpu, workload, limits = question
        if model is not None and precision is not None:
            if layout is not None:
                if (why := layout.undivided(model)) is not None:
                    yield Refusal(why, "tp")
                yield from self.layout_refusals(model, precision, layout)
            yield from self.model_refusals(model, precision)
        if gpu is not None and laid_out is not None:
            yield from self.gpu_refusals(gpu, laid_out)
        if model is not None and workload is not None:
            most, context = model.learned_positions, workload.context
            if model.pooled and workload.generated:
                sentence = "This model makes a vector or scores of a text, and no output tokens."
                yield Refusal(Message(sentence), "generated", [0])
            if most is not None and context > most:  # there is a row for each token and no more
                sentence = (
                    "The model has learned positions for {most:,} tokens and none beyond; {context:,} can't be read."
                )
                yield Refusal(Message(sentence, most=most, context=context), "context", [most])
        if workload is not None and limits is not None:
            yield from self.request_refusals(workload, limits)

    def check(self, question: Question) -> None:
        """Raise ConfigError for the first refusal, with the nearest that it takes."""
        for message, field, near in self.refusals(question):
            raise ConfigError(message, field, near or self.nearest_degrees(question, field))

    def nearest_degrees(self, question: Question, field: str | None) -> tuple[int, ...]:
        """Around a refused degree of tensor or decode context parallelism, those to which no rule of it objects."""
        if question.layout is None or field not in ("tp", "dcp"):
            return ()

        def accepts(degree: int) -> bool:
            return all(refusal.field != field for refusal in self.refusals(question.with_degree(field, degree)))

        return nearest(getattr(question.layout, field), accepts)

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        """Rules of sharing a model over ranks that divide its layers: over stages, experts, and ranks that share cached
        tokens."""
        yield from layout.unspread(model)
        if layout.dcp > 1:
            yield Refusal(Message("{engine} does not share cached tokens over ranks (dcp).", engine=self.title), "dcp")

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        """Rules of families, formats and flags, wherever the model runs."""
        if precision.weights in MLX_FORMATS and not self.keeps(precision.weights):
            yield Refusal(
                Message("{format} is a format of MLX, which alone reads it.", format=precision.weights), "weights"
            )
        mixers = (mixer for block in model.all_blocks for mixer in block.mixers)
        if precision.kv == "fp8_ds_mla" and not any(mixer.absorbs for mixer in mixers):
            sentence = "fp8_ds_mla stores the latent of MLA, which this model does not have; fp8 does."
            yield Refusal(Message(sentence), "kv", ["fp8"])

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        """Rules of a GPU for such a rank, on whatever stage."""
        if (why := unjoined(gpu, laid_out.layout.gpus)) is not None:
            yield Refusal(why, "num_gpus", [1])
        if not runs(gpu, self.support) and (why := note(gpu, self.support)) is not None:
            yield Refusal(why, "gpu")
        if (why := missing_kernel(gpu, self.support, laid_out.precision.weights)) is not None:
            yield Refusal(why, "weights")

    def request_refusals(self, workload: Workload, limits: Limits) -> Iterator[Refusal]:
        """Rules by which what is set up at start does not take these sequences."""
        yield from ()
