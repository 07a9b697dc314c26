"""What fits where: maps that are computed once for all sessions."""

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from calc import Architecture, Precision
from calc.formats import WeightFormat
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.engine_rules import EngineName, runs
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.serving.engines import ENGINES
from calc.time.fitting import Fitting, Sized, fitting_gpus, fitting_sized, layout_on
from calc.time.operating_points import OperatingPoint, operating_points
from presets import gpus, models

FORMATS: tuple[WeightFormat, ...] = ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
FILES: tuple[WeightFormat, ...] = ("bf16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
NODE = 8


def formats_of(engine: EngineName) -> tuple[WeightFormat, ...]:
    """Those of a map: GGUF files where the engine reads them."""
    return FORMATS if ENGINES[engine].keeps(FORMATS[1]) else FILES


@cache
def architectures() -> Mapping[str, Architecture]:
    """Of all presets, the largest first."""
    known = {name: Architecture.from_config(preset.config) for name, preset in models().items()}
    return MappingProxyType(dict(sorted(known.items(), key=lambda row: -row[1].parameters().total)))


def precisions_of(engine: EngineName) -> list[Precision]:
    return [Precision(weights=form) for form in formats_of(engine)]


@lru_cache(maxsize=8)
def sized(engine: EngineName, count: int) -> Mapping[str, Sized | None]:
    """All presets on so many GPUs, whatever they are."""
    formats = precisions_of(engine)
    found = {name: Sized.of(one, ENGINES[engine](), formats, count, NODE) for name, one in architectures().items()}
    return MappingProxyType(found)


@lru_cache(maxsize=64)
def models_on(card: str, count: int, context: int, engine: EngineName) -> Fitting:
    """All presets in all formats on so many of a GPU."""
    known, formats = sized(engine, count), precisions_of(engine)
    return fitting_sized(known, find_gpu(card), ENGINES[engine](), formats, context=context, node=NODE)


def on_gpus(
    model: Architecture, own: tuple[str, ...], count: int, context: int, engine: EngineName
) -> tuple[list[GPU], Fitting]:
    """One model in all formats on so many of each GPU that the engine runs on; the reader's own come first."""
    formats = precisions_of(engine)
    known = [find_gpu(name) for name in (*own, *gpus())]
    kinds = [gpu for gpu in known if gpu.bandwidth_gb_s and runs(gpu, engine)]
    return kinds, fitting_gpus(model, kinds, ENGINES[engine](), formats, count=count, context=context, node=NODE)


def points_on(
    model: Architecture, precision: Precision, card: str, count: int, context: int, name: EngineName
) -> tuple[Layout, tuple[OperatingPoint, ...]]:
    """Where prefill and decode stand under a GPU's roofline. Raises ConfigError where no layout shares the model."""
    engine = ENGINES[name]()
    layout = layout_on(model, engine, precision, min(count, NODE), NODE)
    if layout is None or layout.pp > 1:
        engine.check_layout(model, precision, Layout(tp=min(count, NODE)))
        layout = Layout()
    return layout, operating_points(model, engine, precision, find_gpu(card), layout, context)
