"""Commands: mlx_lm.server, mlx_lm.generate for a rotating cache, mlx_lm.convert for formats that nobody published."""

from collections.abc import Iterator

from calc.errors import Message
from calc.formats import Precision, WeightFormat
from calc.formats.format_names import MLX_FORMATS
from calc.serving.engines.launch import Launch, stated
from calc.serving.engines.mlx.options import MLXOptions

PUBLISHER = "mlx-community"
CONVERTED = ("q_group_size",)
"""Options of `mlx_lm.convert`."""
OF_SERVER = ("decode_concurrency", "prompt_concurrency")
MODES: dict[WeightFormat, str] = {"mlx-mxfp4": "mxfp4", "mlx-mxfp8": "mxfp8", "mlx-nvfp4": "nvfp4"}


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
    words = ("mlx_lm.generate" if alone else "mlx_lm.server", "--model", source, *stated(options, spelling))
    return Launch(words=words, notes=tuple(notes(model, source, precision, options)))


def notes(model: str, source: str, precision: Precision, options: MLXOptions) -> Iterator[Message]:
    if source != model:
        made = conversion(model, precision, options)
        yield Message("Where {repository} is not published: {command}", repository=source, command=" ".join(made.words))
    if options.wired_limit_mb is not None:
        yield Message("Before it: sudo sysctl iogpu.wired_limit_mb={limit}", limit=options.wired_limit_mb)
