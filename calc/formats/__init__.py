"""Storage formats: how many bytes a weight or a cached element takes."""

from calc.formats.format_names import (
    BITSANDBYTES,
    CACHE_BITS,
    CACHE_FORMATS,
    FLOATS,
    WEIGHT_FORMATS,
    CacheFormat,
    WeightFormat,
)
from calc.formats.mixes import MIXES
from calc.formats.precision import Precision, native_weights
from calc.formats.scheme import Scheme
from calc.formats.table import FORMATS, Format

__all__ = [
    "BITSANDBYTES",
    "CACHE_BITS",
    "CACHE_FORMATS",
    "FLOATS",
    "FORMATS",
    "MIXES",
    "WEIGHT_FORMATS",
    "CacheFormat",
    "Format",
    "Precision",
    "Scheme",
    "WeightFormat",
    "native_weights",
]
