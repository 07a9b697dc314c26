"""Storage formats: how many bytes a weight or a cached element takes."""

from calc.formats.format_names import (
    BITSANDBYTES,
    CACHE_BITS,
    CACHE_FORMATS,
    FLOATS,
    HEAD_SCALE_BITS,
    WEIGHT_FORMATS,
    CacheFormat,
    WeightFormat,
)
from calc.formats.mixes import MIXES
from calc.formats.precision import Precision, native_weights
from calc.formats.quantization_config import HF_QUANT_CONFIG, Native, native, with_hf_quant_config
from calc.formats.quantization_tools import COMPRESSED_TENSORS, MODELOPT
from calc.formats.scheme import Scheme
from calc.formats.table import FORMATS, GGUF, KERNELS, LABELS, Format
