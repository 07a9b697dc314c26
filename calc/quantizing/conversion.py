"""Needs of quantizing a model: GPU memory, host memory and disk of each phase, and which GPU does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from calc.budget import budget
from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats.format_names import BITSANDBYTES, FLOATS, MLX_FORMATS, WeightFormat
from calc.formats.mixes import MIXES
from calc.formats.precision import Precision
from calc.formats.quantization_config import native
from calc.formats.stored import CheckpointSize
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU
from calc.hardware.overhead import CUDA_CONTEXT, FRAGMENTATION, bounds, left_for_overhead, libraries, sizes
from calc.model.architecture import Architecture
from calc.options import OneOf
from calc.quantizing.calibrated import autoawq, awq_sequential, gptq_sequential, gptqmodel
from calc.quantizing.files import bitsandbytes, llama_cpp, mlx, mlx_bytes, model_free
from calc.quantizing.task import Conversion, Draft, HeldPart, QuantizingPhase
from calc.serving.engines import ENGINES
from calc.serving.engines.rules import Question
from calc.serving.verdict import VerdictWord
from calc.units import GIB

TORCH: frozenset[Platform] = frozenset({"cuda", "rocm"})
GB = 10**9
ToolName = Literal["llm-compressor", "gptqmodel", "autoawq", "bitsandbytes", "llama.cpp", "mlx-lm"]


class QuantizingRecipe(NamedTuple):
    """A tool's way to some formats."""

    tool: ToolName
    method: Message  # what a title calls it
    formats: frozenset[WeightFormat]
    phases: Callable[[Conversion], Iterator[Draft]]
    samples: int = 0  # calibration samples of the tool's own examples; 0: it takes none
    tokens: int = 0
    platforms: frozenset[Platform] | None = TORCH  # None: it needs no GPU
    engine: str | None = None  # that the tool belongs to, whose refusals hold

    @property
    def keeps_inputs(self) -> bool:
        """Whether it matters where inputs of all samples are kept."""
        return self.phases is awq_sequential

    @property
    def reads_files(self) -> bool:
        return self.phases is model_free


RECIPES = (
    QuantizingRecipe("llm-compressor", Message("GPTQ"), frozenset({"int4-w4a16", "int8"}), gptq_sequential, 512, 2048),
    QuantizingRecipe("gptqmodel", Message("GPTQ"), frozenset({"int4-gptq", "int8-gptq"}), gptqmodel, 1024, 2048),
    QuantizingRecipe("llm-compressor", Message("AWQ"), frozenset({"int4"}), awq_sequential, 256, 512),
    QuantizingRecipe("autoawq", Message("AWQ"), frozenset({"int4"}), autoawq, 128, 512),
    QuantizingRecipe(
        "llm-compressor",
        Message("Rounding"),
        frozenset({"fp8", "fp8-channel", "fp8-tensor", "mxfp8", "mxfp4", "nvfp4"}),
        model_free,
    ),
    QuantizingRecipe("bitsandbytes", Message("Loading in bitsandbytes"), BITSANDBYTES, bitsandbytes),
    QuantizingRecipe("llama.cpp", Message("Conversion to GGUF"), frozenset(MIXES), llama_cpp, 0, 0, None, "llamacpp"),
    QuantizingRecipe(
        "mlx-lm", Message("Conversion to MLX"), frozenset(MLX_FORMATS), mlx, 0, 0, frozenset({"metal"}), "mlx"
    ),
)
TARGETS = tuple(dict.fromkeys(form for recipe in RECIPES for form in sorted(recipe.formats)))


class Quantizing(Frozen):
    """Into which format a model is quantized, with which tool, calibrated how."""

    to: Annotated[WeightFormat, OneOf(TARGETS)] = Field(default="int4-w4a16", description="Format that is made.")
    tool: ToolName | None = Field(default=None, description="The tool that makes it, where several can.")
    calibration_samples: int | None = Field(
        default=None, ge=1, le=2**20, description="Calibration texts; by default as in the tool's examples."
    )
    calibration_tokens: int | None = Field(
        default=None, ge=1, le=2**20, description="Tokens of each; by default as in the tool's examples."
    )
    calibration_batch: int = Field(default=1, ge=1, le=4096, description="Texts in one forward pass.")
    keep_inputs_on: Literal["gpu", "host"] | None = Field(
        default=None, description="Where AWQ keeps a block's inputs (offload_device); on the host if there are experts."
    )
    file_gb: float = Field(
        default=5, gt=0, le=1000, allow_inf_nan=False, description="GB of the checkpoint's largest file."
    )


class QuantizingVerdict(Frozen):
    """One GPU of a kind against the phase that needs most. Bytes."""

    gpu: str
    verdict: VerdictWord
    usable: int
    reason: Message


class QuantizingReport(Frozen):
    """Bytes that quantizing takes. `ram` and `gpu` are those of the phase that needs most of each."""

    model: str
    to: WeightFormat
    tool: str
    method: Message
    samples: int
    tokens: int
    phases: tuple[QuantizingPhase, ...]
    gpu: int
    overhead_low: int
    overhead_high: int
    ram: int
    disk: tuple[HeldPart, ...]
    disk_bytes: int
    verdicts: tuple[QuantizingVerdict, ...]
    assumptions: tuple[Message, ...]
    legend: Mapping[str, tuple[Any, Any]] = Field(exclude=True, repr=False)


@budget()
def quantizing_report(
    config: Mapping[str, Any], options: Quantizing, *, gpus: Sequence[GPU] = (), model: str = "model"
) -> QuantizingReport:
    """Memory and disk to quantize a model. Raises ConfigError."""
    architecture = Architecture.from_config(config)
    if (stored := native(config).name) not in FLOATS:
        sentence = "The checkpoint is quantized already, in {form}: tools start from one in 16 bits."
        raise ConfigError(Message(sentence, form=stored), "model")
    recipe = recipe_of(options)
    if recipe.engine is not None:
        engine = ENGINES[recipe.engine]()
        for refusal in engine.refusals(Question(architecture, engine.precision(native(config), options.to))):
            raise ConfigError(refusal.message, "model")
    task = task_of(architecture, recipe, options)
    phases = tuple(map(task.phase, recipe.phases(task)))
    gpu = max(phase.gpu_bytes for phase in phases)
    low, high = overhead(gpu, recipe)
    disk = tuple(task.part(what, size) for what, size in files(task, recipe).items())
    return QuantizingReport(
        model=model,
        to=task.to,
        tool=recipe.tool,
        method=recipe.method,
        samples=task.samples if recipe.samples else 0,
        tokens=task.tokens if recipe.samples else 0,
        phases=phases,
        gpu=gpu,
        overhead_low=low,
        overhead_high=high,
        ram=max(phase.ram_bytes for phase in phases),
        disk=disk,
        disk_bytes=sum(part.bytes for part in disk),
        verdicts=tuple(judged(kind, gpu, low, high, recipe) for kind in gpus),
        assumptions=tuple(assumptions(architecture, recipe)),
        legend=task.legend(),
    )


def recipe_of(options: Quantizing) -> QuantizingRecipe:
    """The recipe that makes a format. Raises ConfigError where the tool has none for it."""
    fitting = [recipe for recipe in RECIPES if options.to in recipe.formats]
    chosen = [recipe for recipe in fitting if options.tool in (None, recipe.tool)]
    if not chosen:
        some = ", ".join(recipe.tool for recipe in fitting)
        sentence = "{tool} does not make {form}: {some} does."
        raise ConfigError(
            Message(sentence, tool=shown(options.tool), form=options.to, some=some),
            "tool",
            [recipe.tool for recipe in fitting],
        )
    return chosen[0]


def task_of(architecture: Architecture, recipe: QuantizingRecipe, options: Quantizing) -> Conversion:
    precision = Precision(weights=options.to)
    is_mlx = recipe.phases is mlx
    result = mlx_bytes(architecture, precision) if is_mlx else CheckpointSize.of(architecture, precision).total
    whole = 2 * sum(tensor.parameters for tensor in architecture.tensors())
    return Conversion(
        model=architecture,
        to=options.to,
        samples=options.calibration_samples or recipe.samples or 1,
        tokens=options.calibration_tokens or recipe.tokens or 1,
        pass_samples=options.calibration_batch,
        file_bytes=min(whole, round(options.file_gb * GB)),
        offload=options.keep_inputs_on == "host" or (options.keep_inputs_on is None and bool(architecture.experts)),
        result_bytes=result,
    )


def files(task: Conversion, recipe: QuantizingRecipe) -> dict[Message, Any]:
    """Files on disk at the end, the checkpoint that is read included."""
    read = {Message("checkpoint in 16 bits"): task.checkpoint}
    result = {Message("the result"): 1 * task.named("Q", task.result_bytes, Message("bytes of the result"))}
    if recipe.tool == "llama.cpp":
        return read | {Message("the GGUF file in 16 bits"): 1 * task.checkpoint} | result
    if recipe.tool == "gptqmodel":
        return read | {Message("blocks that are done"): 1 * task.checkpoint} | result
    return read if recipe.tool == "bitsandbytes" else read | result


def overhead(gpu: int, recipe: QuantizingRecipe) -> tuple[int, int]:
    """Bytes outside tensors on a GPU, from low to high; none where no GPU is used or the memory is the CPU's too."""
    if recipe.platforms != TORCH:
        return 0, 0
    spans = {"cuda_context": CUDA_CONTEXT, "libraries": libraries(1), "fragmentation": FRAGMENTATION}
    return bounds(sizes(spans, gpu))  # type: ignore[arg-type]


def judged(gpu: GPU, required: int, low: int, high: int, recipe: QuantizingRecipe) -> QuantizingVerdict:
    """Whether one GPU of a kind holds the tensors and the overhead."""
    left = gpu.usable_bytes - required
    word: VerdictWord = "fits" if left >= high else "tight" if left >= low else "does not fit"
    reason = left_for_overhead(left, low, high)
    if recipe.platforms is None:
        word, reason = "fits", Message("It runs on the CPU and needs no GPU.")
    elif gpu.platform is not None and gpu.platform not in recipe.platforms:
        word, reason = "does not run", Message("{tool} does not run on it.", tool=recipe.tool)
    elif left < low:
        reason = Message("It is short by {missing:.2f} GiB.", missing=(low - left) / GIB)
    return QuantizingVerdict(gpu=gpu.id, verdict=word, usable=gpu.usable_bytes, reason=reason)


def assumptions(architecture: Architecture, recipe: QuantizingRecipe) -> Iterator[Message]:
    yield from architecture.assumptions
    if recipe.samples:
        yield Message("Every calibration text has all of its tokens; shorter ones take less.")
        yield Message("One GPU, one process; the program itself and its libraries take some GB of host memory more.")
    if recipe.tool == "llm-compressor" and recipe.samples:
        yield Message(
            "A copy of the output head counts as held on the GPU through the calibration: logged peaks have it."
        )
    if recipe.samples and architecture.experts:
        yield Message(
            "Every expert sees every token where llm-compressor calibrates; elsewhere experts share them evenly."
        )
    if recipe.tool == "llama.cpp":
        yield Message("Files are mapped: they take no memory of their own, but fill the page cache.")
