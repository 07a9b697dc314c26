"""Measurements of `benchmarks/measure.py` on somebody's GPU, and the predicted sizes."""

import json
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.gpus import usual_gpus
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.transformers.engine import Transformers
from calc.serving.engines.transformers.options import Attention, TransformersOptions
from calc.serving.memory import Serving
from calc.serving.workload import Workload
from calc.text import BYTE_ORDER_MARK, written
from calc.training import Recipe, Recompute, Training, TrainingScenario, TrainingWorkload

MAX_BYTES = 1_000_000  # a thousand rows are a third of it
ByteCount = Annotated[int, Field(ge=0, le=2**60)]
Words = Annotated[str, Field(max_length=300)]


class Device(Frozen):
    """The device; `total_mib` as the driver prints it."""

    name: Words
    total_mib: ByteCount | None
    driver: Words | None
    cuda: Words | None
    torch: Words
    transformers: Words


class MeasuredSettings(Frozen):
    device: Literal["cuda", "cpu"]
    dtype: Literal["bf16", "fp16", "fp32"]
    layers: int | None  # the model was cut to so many
    implementations: dict[Attention, Words]
    optimizer: Words
    peaks: Words
    """Source of the peaks: torch's allocator, or on a CPU the tensors that were watched."""


class MeasuredSize(Frozen):
    """Bytes, or the reason why there are none."""

    bytes: ByteCount | None
    error: Words | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.bytes is None) == (self.error is None):
            raise ConfigError(Message("a row has either bytes or an error"))
        return self


class MeasuredWeights(MeasuredSize):
    """All parameters, a tied one once; `allocated` and `reserved` are the allocator's, rounding included."""

    kind: Literal["weights"]
    parameters: ByteCount | None = None
    buffers: ByteCount | None = None
    allocated: ByteCount | None = None
    reserved: ByteCount | None = None


class Context(MeasuredSize):
    """Bytes that the driver gave out beyond the allocator's; cuBLAS's workspace lies within the allocator's."""

    kind: Literal["context"]
    workspace: ByteCount


class MeasuredPass(MeasuredSize):
    batch: int = Field(ge=1, le=2**24)
    context: int = Field(ge=1, le=2**29)  # tokens of each sequence that pass at once
    attention: Attention
    floor: ByteCount | None = None
    """Bytes that were allocated before."""
    reserved: ByteCount | None = None
    """Peak of the allocator's reserved bytes, weights included."""


class Serve(MeasuredPass):
    """A prefill, or a decode of one more token after it: the peak above the weights, with the cache. Or the storages of
    that cache, and what of them is visible."""

    kind: Literal["prefill", "decode", "cache"]
    generated: Literal[0, 1]
    logits: Literal["last", "all"]
    views: ByteCount | None = None

    @property
    def workload(self) -> Workload:
        return Workload(batch=self.batch, context=self.context + self.generated, generated=self.generated)

    @property
    def engine(self) -> Transformers:
        return Transformers(TransformersOptions(attention=self.attention, logits=self.logits))


class Train(MeasuredPass):
    """Peak above the weights of forward pass, backward pass and optimizer step."""

    kind: Literal["train"]
    checkpointing: bool
    gradients: ByteCount | None = None
    optimizer: ByteCount | None = None

    @property
    def workload(self) -> TrainingWorkload:
        recompute: Recompute = "full" if self.checkpointing else "none"
        batch, context, attention = self.batch, self.context, self.attention
        return TrainingWorkload(micro_batch=batch, sequence=context, attention=attention, recompute=recompute)


Measured = MeasuredWeights | Context | Serve | Train


class Measurement(Frozen):
    """The file that the script writes."""

    format: Literal["weighbridge-measurement/1"]
    config: dict[str, JsonValue]
    device: Device
    settings: MeasuredSettings
    rows: tuple[Annotated[Measured, Field(discriminator="kind")], ...] = Field(min_length=1, max_length=1000)


class MeasuredRow(Frozen):
    """One size, measured and predicted, in bytes (parameters: their number)."""

    kind: Literal["parameters", "weights", "context", "cache", "prefill", "decode", "train"]
    batch: int | None = None
    context: int | None = None
    attention: Attention | None = None
    generated: int | None = None
    logits: Literal["last", "all"] | None = None
    checkpointing: bool | None = None
    measured: int | None  # None: the error says why
    predicted: int
    error: str | None = None

    @property
    def difference(self) -> int | None:
        """Bytes predicted less those measured; None where nothing was."""
        return None if self.measured is None else self.predicted - self.measured

    @property
    def share(self) -> float | None:
        """Difference as a share of what was measured."""
        return None if self.difference is None or not self.measured else self.difference / self.measured


def read_measurement(text: str) -> Measurement:
    """The file as the script wrote it. Raises ConfigError."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigError(
            Message("The file is larger than {most} MB; a thousand rows are a third of that.", most=MAX_BYTES // 10**6)
        )
    try:
        read = json.loads(text.removeprefix(BYTE_ORDER_MARK))
        written(read)
    except ConfigError:
        raise
    except (ValueError, RecursionError):
        raise ConfigError(Message("This is not JSON; give the file that measure.py wrote, whole.")) from None
    if not isinstance(read, dict) or "format" not in read:
        raise ConfigError(
            Message("This is not a measurement: it must be the object with “format” that measure.py wrote.")
        )
    try:
        return Measurement.model_validate(read)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100] or "the file"
    if isinstance(cause := first.get("ctx", {}).get("error"), ConfigError):
        raise ConfigError(Message("In this measurement {where} is not right: {why}.", where=where, why=cause.message))
    raise ConfigError(Message("In this measurement {where} is not right.", where=where))


def with_predictions(measurement: Measurement) -> list[MeasuredRow]:
    """Every row, and what is predicted for transformers on one GPU. Raises ConfigError if the config can't be read."""
    dtype = measurement.settings.dtype
    architecture = Architecture.from_config(measurement.config)
    serving = Serving.of(architecture, Transformers(), Precision(weights=dtype, kv=dtype), Layout(), Overhead())
    recipe = Recipe(weights=dtype, gradients=dtype, states=dtype, compute=dtype)
    common = set(MeasuredRow.model_fields)
    rows = []
    for row in measurement.rows:
        if isinstance(row, MeasuredWeights) and row.parameters is not None:
            total = architecture.parameters().total
            rows.append(MeasuredRow(kind="parameters", measured=row.parameters, predicted=total))
        rows.append(
            MeasuredRow(
                **row.model_dump(include=common),
                measured=row.bytes,
                predicted=predicted(row, architecture, serving, recipe),
            )
        )
    return rows


class Closeness(Frozen):
    """Sizes measured, those of them exact, and the share by which half and all of them miss."""

    sizes: int
    exact: int
    half: float
    most: float


def closeness(rows: Sequence[MeasuredRow]) -> Closeness | None:
    """Closeness of the sizes; None where nothing was measured."""
    misses = [abs(row.share) for row in rows if row.share is not None]
    if not misses:
        return None
    return Closeness(sizes=len(misses), exact=misses.count(0), half=median(misses), most=max(misses))


def predicted(row: Measured, architecture: Architecture, serving: Serving, recipe: Recipe) -> int:
    """Bytes of what a row measured."""
    (stage,) = serving.laid_out.stages
    if isinstance(row, MeasuredWeights):
        return stage.weights
    if isinstance(row, Context):
        sizes = serving.overhead.sizes(serving.engine.overhead(1), 0)
        return (sum(sizes["cuda_context"]) + sum(sizes["libraries"])) // 2
    if isinstance(row, Train):
        scenario = TrainingScenario(
            workload=row.workload, recipe=recipe, frozen=serving.precision, overhead=serving.overhead
        )
        training = Training(architecture, scenario)
        memory = training.memory()
        return memory.total - memory.overhead - memory.weights
    cache, working = peak_bytes(row, serving)
    return cache if row.kind == "cache" else cache + working


def peak_bytes(row: Serve, serving: Serving) -> tuple[int, int]:
    """Bytes of cache and of working memory at the peak of a prefill, or of a decode after it."""
    run = serving.with_engine(row.engine).on(usual_gpus()[0], row.workload)
    passing = row.engine.passes(run.requirements.setup, 0, row.workload)[row.generated]
    peak = max(passing, key=lambda passed: passed.bytes)
    return peak.cache, int(peak.working.bytes)
